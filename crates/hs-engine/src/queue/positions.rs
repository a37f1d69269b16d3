//! The requests that wait, sorted by position.
//!
//! Sorted blocks of keys under one sorted table of their lowest keys: a B-tree of two levels whose upper one is an
//! array. With 10,000 requests the table has a few hundred entries, which stay in the processor's first cache; a
//! step is one binary search in it, one in a block, and a move of a few hundred bytes. Nothing is allocated once the
//! queue has been as long before.

/// Keys in a block. A block of 32 keys is half a kilobyte.
const BLOCK_KEYS: usize = 32;

/// Group, offset and place of a request, in one number that sorts by them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key(u128);

impl Key {
    /// The key of the request at `index` of the arena. Requests of one group are sorted by `offset` among themselves.
    pub(super) const fn new(group: u32, offset: u64, index: u32) -> Self {
        Self((group as u128) << 96 | (offset as u128) << 32 | index as u128)
    }

    /// No key of the group is lower than this one for the same offset.
    pub(super) const fn first_at(group: u32, offset: u64) -> Self {
        Self::new(group, offset, 0)
    }

    pub(super) const fn offset(self) -> u64 {
        (self.0 >> 32) as u64
    }

    pub(super) const fn group(self) -> u32 {
        (self.0 >> 96) as u32
    }

    /// Place of the request in the arena.
    pub(super) const fn index(self) -> u32 {
        self.0 as u32
    }
}

#[derive(Clone, Debug)]
struct Block {
    len: usize,
    keys: [Key; BLOCK_KEYS],
}

impl Block {
    const EMPTY: Self = Self { len: 0, keys: [Key(0); BLOCK_KEYS] };

    fn keys(&self) -> &[Key] {
        &self.keys[..self.len]
    }

    fn insert(&mut self, slot: usize, key: Key) {
        self.keys.copy_within(slot..self.len, slot + 1);
        self.keys[slot] = key;
        self.len += 1;
    }

    fn remove(&mut self, slot: usize, count: usize) {
        self.keys.copy_within(slot + count..self.len, slot);
        self.len -= count;
    }

    fn append(&mut self, other: &Self) {
        self.keys[self.len..self.len + other.len].copy_from_slice(other.keys());
        self.len += other.len;
    }
}

/// Where a key is. Void after any change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    row: usize,
    slot: usize,
}

impl Cursor {
    pub(super) const START: Self = Self { row: 0, slot: 0 };
}

/// A sorted set of [`Key`]s.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// Lowest key of each block, ascending.
    lows: Vec<Key>,
    /// Which block it is; as long as `lows`.
    order: Vec<u32>,
    blocks: Vec<Block>,
    free: Vec<u32>,
}

impl Positions {
    /// The key at a place.
    pub(super) fn key(&self, cursor: Cursor) -> Key {
        self.block(cursor.row).keys[cursor.slot]
    }

    /// The lowest key that is not below `key`.
    pub(super) fn at_or_after(&self, key: Key) -> Option<Cursor> {
        if self.lows.is_empty() {
            return None;
        }
        let row = self.row_of(key);
        let slot = self.block(row).keys().partition_point(|present| *present < key);
        self.normal(Cursor { row, slot })
    }

    /// The next higher key.
    pub(super) fn next(&self, cursor: Cursor) -> Option<Cursor> {
        self.normal(Cursor { slot: cursor.slot + 1, ..cursor })
    }

    /// The next lower key.
    pub(super) fn previous(&self, cursor: Cursor) -> Option<Cursor> {
        if cursor.slot > 0 {
            return Some(Cursor { slot: cursor.slot - 1, ..cursor });
        }
        let row = cursor.row.checked_sub(1)?;
        Some(Cursor { row, slot: self.block(row).len - 1 })
    }

    /// Takes a key in that is not there yet.
    pub(super) fn insert(&mut self, key: Key) {
        if self.lows.is_empty() {
            let block = self.new_block();
            self.lows.push(key);
            self.order.push(block);
        }
        let mut row = self.row_of(key);
        if self.block(row).len == BLOCK_KEYS {
            self.split(row);
            row = self.row_of(key);
        }
        let slot = self.block(row).keys().partition_point(|present| *present < key);
        if slot == 0 {
            self.lows[row] = key;
        }
        self.block_mut(row).insert(slot, key);
    }

    /// Takes out as many keys, one after another, from a place on.
    pub(super) fn remove(&mut self, from: Cursor, mut count: usize) {
        let Cursor { mut row, mut slot } = from;
        while count > 0 {
            let block = self.block_mut(row);
            let here = count.min(block.len - slot);
            block.remove(slot, here);
            count -= here;
            if block.len == 0 {
                self.drop_row(row);
                continue;
            }
            if slot == 0 {
                self.lows[row] = self.block(row).keys[0];
            }
            row += 1;
            slot = 0;
        }
        if from.row < self.order.len() {
            self.join(from.row);
        }
    }

    fn block(&self, row: usize) -> &Block {
        &self.blocks[self.order[row] as usize]
    }

    fn block_mut(&mut self, row: usize) -> &mut Block {
        &mut self.blocks[self.order[row] as usize]
    }

    /// The row in which a key is or would be.
    fn row_of(&self, key: Key) -> usize {
        self.lows.partition_point(|low| *low <= key).saturating_sub(1)
    }

    /// A place after the last key of a row is the first of the next one.
    fn normal(&self, cursor: Cursor) -> Option<Cursor> {
        if cursor.slot < self.block(cursor.row).len {
            return Some(cursor);
        }
        let row = cursor.row + 1;
        (row < self.order.len()).then_some(Cursor { row, slot: 0 })
    }

    fn new_block(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.blocks.push(Block::EMPTY);
            (self.blocks.len() - 1) as u32
        })
    }

    /// Moves the upper half of a full row to a new one after it.
    fn split(&mut self, row: usize) {
        let new = self.new_block();
        let half = BLOCK_KEYS / 2;
        let mut upper = Block::EMPTY;
        let lower = self.block_mut(row);
        upper.keys[..BLOCK_KEYS - half].copy_from_slice(&lower.keys[half..]);
        upper.len = BLOCK_KEYS - half;
        lower.len = half;
        self.lows.insert(row + 1, upper.keys[0]);
        self.order.insert(row + 1, new);
        self.blocks[new as usize] = upper;
    }

    /// Joins a row that is nearly empty with the next, if both fit in half a block.
    fn join(&mut self, row: usize) {
        let small = self.block(row).len <= BLOCK_KEYS / 8;
        if small && row + 1 < self.order.len() && self.block(row + 1).len <= BLOCK_KEYS / 2 {
            let next = self.block(row + 1).clone();
            self.block_mut(row).append(&next);
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

    #[test]
    fn it_is_a_sorted_set() {
        let seed = 0x5eed;
        let mut prng = Prng::new(seed);
        let mut positions = Positions::default();
        let mut model = BTreeSet::new();
        for step in 0..40_000_u32 {
            // It grows to some thousand keys, then shrinks to none.
            let grows = prng.below(100) < if step < 20_000 { 75 } else { 45 };
            let key = Key::new(prng.below(3) as u32, prng.below(50_000), step);
            if grows || model.is_empty() {
                positions.insert(key);
                model.insert(key);
            } else {
                let victim = model.range(key..).next().or_else(|| model.first()).copied().unwrap();
                let at = positions.at_or_after(victim).unwrap();
                let run: Vec<_> = model.range(victim..).take(1 + prng.below(3) as usize).copied().collect();
                positions.remove(at, run.len());
                model.retain(|key| !run.contains(key));
            }
            let found = positions.at_or_after(key);
            let mut range = model.range(key..);
            assert_eq!(found.map(|at| positions.key(at)), range.next().copied(), "seed {seed}, step {step}");
            if let Some(at) = found {
                let next = positions.next(at).map(|at| positions.key(at));
                assert_eq!(next, range.next().copied(), "seed {seed}, step {step}");
                let previous = positions.previous(at).map(|at| positions.key(at));
                let before = model.range(..positions.key(at)).next_back().copied();
                assert_eq!(previous, before, "seed {seed}, step {step}");
            }
        }
        let mut cursor = positions.at_or_after(Key::first_at(0, 0));
        for key in &model {
            assert_eq!(cursor.map(|at| positions.key(at)), Some(*key));
            cursor = cursor.and_then(|at| positions.next(at));
        }
        assert_eq!(cursor, None);
    }
}
