//! The requests that wait, sorted by position.
//!
//! Sorted blocks of offsets under one sorted table of their lowest offsets: a B-tree of two levels whose
//! upper one is an array. With 10,000 requests the table has a few hundred entries, which stay in the
//! processor's first cache; a step is one binary search in it, one in a block, and a move of a few hundred
//! bytes. Nothing is allocated once the queue has been as long before.

use std::num::NonZeroU32;

/// Requests in a block, which is then 512 bytes.
const BLOCK_LEN: usize = 32;

/// A request: what is compared and what it stands for lie together, so that a step moves one piece of memory,
/// not two.
#[derive(Clone, Copy, Debug)]
struct Position {
    offset: u64,
    /// Place in the arena of the request with this offset.
    index: u32,
}

#[derive(Clone, Debug)]
struct Block {
    len: usize,
    positions: [Position; BLOCK_LEN],
}

impl Block {
    const EMPTY: Self = Self { len: 0, positions: [Position { offset: 0, index: 0 }; BLOCK_LEN] };

    fn positions(&self) -> &[Position] {
        &self.positions[..self.len]
    }

    fn insert(&mut self, slot: usize, position: Position) {
        // Often it is the last one, and a call that does nothing costs more than this check.
        if slot < self.len {
            self.positions.copy_within(slot..self.len, slot + 1);
        }
        self.positions[slot] = position;
        self.len += 1;
    }

    fn remove(&mut self, slot: usize, count: usize) {
        if slot + count < self.len {
            self.positions.copy_within(slot + count..self.len, slot);
        }
        self.len -= count;
    }

    /// Appends the entries of another block from a slot on.
    fn append(&mut self, other: &Self, from: usize) {
        let count = other.len - from;
        self.positions[self.len..self.len + count].copy_from_slice(&other.positions[from..other.len]);
        self.len += count;
    }
}

/// Where a request stands. Void after any change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor(NonZeroU32);

impl Cursor {
    pub(super) const START: Self = Self(NonZeroU32::MIN);

    /// One number, so that what an elevator has found is handed over in a register.
    const fn new(row: usize, slot: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add((row * BLOCK_LEN + slot) as u32))
    }

    const fn row(self) -> usize {
        (self.0.get() - 1) as usize / BLOCK_LEN
    }

    const fn slot(self) -> usize {
        (self.0.get() - 1) as usize % BLOCK_LEN
    }
}

/// A request in order of position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    pub offset: u64,
    /// Place in the arena.
    pub index: u32,
    pub at: Cursor,
}

/// Requests by offset; those with the same one in the order in which they came.
#[derive(Debug)]
pub(super) struct Positions {
    /// Lowest offset of each block, ascending.
    lows: Vec<u64>,
    /// Which block it is; as long as `lows`. There is always one, which may be empty when it is the only one.
    order: Vec<u32>,
    blocks: Vec<Block>,
    free: Vec<u32>,
    len: u32,
}

impl Default for Positions {
    fn default() -> Self {
        Self { lows: vec![0], order: vec![0], blocks: vec![Block::EMPTY], free: Vec::new(), len: 0 }
    }
}

impl Positions {
    /// Whether no request waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first of the lowest offset that is not below this one.
    #[inline]
    pub(super) fn at_or_above(&self, offset: u64) -> Option<Spot> {
        if self.is_empty() {
            return None;
        }
        let row = self.lows.partition_point(|low| *low < offset).saturating_sub(1);
        let slot = self.block(row).positions().partition_point(|present| present.offset < offset);
        self.spot(row, slot)
    }

    /// The lowest one.
    pub(super) fn first(&self) -> Option<Spot> {
        if self.is_empty() { None } else { self.spot(0, 0) }
    }

    /// Where the request at `index` of the arena stands.
    pub(super) fn find(&self, offset: u64, index: u32) -> Option<Cursor> {
        let mut spot = self.at_or_above(offset)?;
        while (spot.offset, spot.index) != (offset, index) {
            spot = self.next(spot.at)?;
        }
        Some(spot.at)
    }

    /// The next one above.
    #[inline]
    pub(super) fn next(&self, cursor: Cursor) -> Option<Spot> {
        self.spot(cursor.row(), cursor.slot() + 1)
    }

    /// The next one below.
    #[inline]
    pub(super) fn previous(&self, cursor: Cursor) -> Option<Spot> {
        if let Some(slot) = cursor.slot().checked_sub(1) {
            return self.spot(cursor.row(), slot);
        }
        let row = cursor.row().checked_sub(1)?;
        self.spot(row, self.block(row).len - 1)
    }

    /// Takes a request in.
    pub(super) fn insert(&mut self, offset: u64, index: u32) {
        self.len += 1;
        let mut row = self.last_row_of(offset);
        if self.block(row).len == BLOCK_LEN {
            self.split(row);
            row = self.last_row_of(offset);
        }
        let block = self.block_mut(row);
        let slot = block.positions().partition_point(|present| present.offset <= offset);
        block.insert(slot, Position { offset, index });
        if slot == 0 {
            self.lows[row] = offset;
        }
    }

    /// Takes out as many requests, one after another, from a place on.
    pub(super) fn remove(&mut self, from: Cursor, mut count: usize) {
        let (mut row, mut slot) = (from.row(), from.slot());
        self.len -= count as u32;
        while count > 0 {
            let block = self.block_mut(row);
            let here = count.min(block.len - slot);
            block.remove(slot, here);
            count -= here;
            let (left, lowest) = (block.len, block.positions[0].offset);
            if left == 0 && self.order.len() > 1 {
                self.drop_row(row);
                continue;
            }
            if slot == 0 {
                self.lows[row] = lowest;
            }
            row += 1;
            slot = 0;
        }
        if from.row() < self.order.len() {
            self.join(from.row());
        }
    }

    fn block(&self, row: usize) -> &Block {
        &self.blocks[self.order[row] as usize]
    }

    fn block_mut(&mut self, row: usize) -> &mut Block {
        &mut self.blocks[self.order[row] as usize]
    }

    /// The last row that holds this offset, or would.
    fn last_row_of(&self, offset: u64) -> usize {
        self.lows.partition_point(|low| *low <= offset).saturating_sub(1)
    }

    /// The request at a place; a place after the last one of a row is the first of the next row.
    #[inline]
    fn spot(&self, row: usize, slot: usize) -> Option<Spot> {
        let block = self.block(row);
        if slot < block.len {
            let Position { offset, index } = block.positions[slot];
            return Some(Spot { offset, index, at: Cursor::new(row, slot) });
        }
        self.first_of(row + 1)
    }

    /// The first request of a row, if there is one.
    #[cold]
    fn first_of(&self, row: usize) -> Option<Spot> {
        let block = &self.blocks[*self.order.get(row)? as usize];
        let Position { offset, index } = block.positions[0];
        Some(Spot { offset, index, at: Cursor::new(row, 0) })
    }

    fn new_block(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.blocks.push(Block::EMPTY);
            (self.blocks.len() - 1) as u32
        })
    }

    /// Moves the upper half of a full row to a new one after it.
    fn split(&mut self, row: usize) {
        let mut upper = Block::EMPTY;
        let lower = self.block_mut(row);
        upper.append(lower, BLOCK_LEN / 2);
        lower.len = BLOCK_LEN / 2;
        self.lows.insert(row + 1, upper.positions[0].offset);
        let new = self.new_block();
        self.order.insert(row + 1, new);
        self.blocks[new as usize] = upper;
    }

    /// Joins a row that is nearly empty with the next, if both fit in half a block.
    fn join(&mut self, row: usize) {
        let small = self.block(row).len <= BLOCK_LEN / 8;
        if small && row + 1 < self.order.len() && self.block(row + 1).len <= BLOCK_LEN / 2 {
            let next = self.block(row + 1).clone();
            self.block_mut(row).append(&next, 0);
            self.drop_row(row + 1);
        }
    }

    fn drop_row(&mut self, row: usize) {
        self.lows.remove(row);
        let block = self.order.remove(row);
        self.blocks[block as usize].len = 0;
        self.free.push(block);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hs_units::Prng;

    use super::*;

    /// Numbers of requests grow, so that the plain set has those with the same offset in order of arrival
    /// too.
    #[test]
    fn it_is_a_sorted_set() {
        for (seed, offsets) in [(1, 50_000), (2, 40)] {
            let mut prng = Prng::new(seed);
            let mut positions = Positions::default();
            let mut model = BTreeSet::new();
            for step in 0..20_000_u32 {
                // It grows to some thousand requests, then shrinks to none.
                let grows = prng.below(100) < if step < 10_000 { 75 } else { 45 };
                let offset = prng.below(offsets);
                if grows || model.is_empty() {
                    positions.insert(offset, step);
                    model.insert((offset, step));
                } else {
                    let victim = *model.range((offset, 0)..).next().or_else(|| model.first()).unwrap();
                    let run: Vec<_> =
                        model.range(victim..).take(1 + prng.below(3) as usize).copied().collect();
                    positions.remove(positions.find(victim.0, victim.1).unwrap(), run.len());
                    model.retain(|key| !run.contains(key));
                }
                let found = positions.at_or_above(offset);
                let mut range = model.range((offset, 0)..);
                let get = |spot: Option<Spot>| spot.map(|spot| (spot.offset, spot.index));
                assert_eq!(get(found), range.next().copied(), "seed {seed}, step {step}");
                if let Some(Spot { at, .. }) = found {
                    assert_eq!(get(positions.next(at)), range.next().copied(), "seed {seed}, step {step}");
                    let before = model.range(..get(found).unwrap()).next_back().copied();
                    assert_eq!(get(positions.previous(at)), before, "seed {seed}, step {step}");
                }
            }
            let mut spot = positions.at_or_above(0);
            for key in &model {
                assert_eq!(spot.map(|spot| (spot.offset, spot.index)), Some(*key));
                spot = positions.next(spot.unwrap().at);
            }
            assert_eq!(spot, None);
        }
    }

    #[test]
    fn what_is_left_of_many_lies_together() {
        let mut positions = Positions::default();
        (0..3_200).for_each(|number| positions.insert(number, number as u32));
        for number in (0..3_200).filter(|number| number % 16 > 0) {
            let at = positions.find(number, number as u32).expect("it is in");
            positions.remove(at, 1);
        }
        let (left, rows) = (positions.len as usize, positions.order.len());
        assert!(rows * 4 <= left, "{left} requests in {rows} blocks");
    }
}
