//! Blocks that are held back from a delivery, so that a reader of what was prefetched has to ask for one.
//!
//! A tripwire's block is copied when its chunk is delivered without it, or when the chunk comes whose block
//! was left out elsewhere before. It waits apart until it has been handed over, wherever the rest of the
//! chunk goes. [`Prefetch::handle_delivery`](crate::Prefetch::handle_delivery) says what tripwires are good
//! for.

use std::collections::VecDeque;

use hs_units::BLOCK_BYTES;

/// Tripwires that may wait: 4 MiB. Beyond that the oldest is a block like any other.
const MOST: usize = 1024;
/// So many ends of reads are remembered, of several readers.
const ENDS: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Tripwire {
    /// Where in its chunk the block begins, in bytes.
    from: u32,
    /// Whether the shell has the block.
    here: bool,
    /// Whether it still is a tripwire; its block may have to wait for reads that have not been answered.
    set: bool,
    /// A read that waited asked for it.
    used: bool,
    /// Reads that are to be answered from it.
    pins: u32,
}

/// How use of prefetched chunks was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TripwireCount {
    /// Chunks of which a block was held back.
    pub placed: u64,
    /// Of these, chunks whose block was asked for.
    pub used: u64,
}

/// The tripwires of all hot chunks; each chunk has one at most.
#[derive(Debug)]
pub(super) struct Tripwires {
    wires: Vec<Tripwire>,
    /// Chunks in the order in which they got theirs, and some that have none any more.
    order: VecDeque<u32>,
    count: TripwireCount,
    /// Where the latest reads ended, in bytes of the disk.
    ends: VecDeque<u64>,
    bytes: u64,
}

impl Tripwires {
    pub(super) fn new(chunks: u32) -> Self {
        Self {
            wires: vec![Tripwire::default(); chunks as usize],
            order: VecDeque::new(),
            count: TripwireCount::default(),
            ends: VecDeque::with_capacity(ENDS),
            bytes: 0,
        }
    }

    pub(super) const fn count(&self) -> TripwireCount {
        self.count
    }

    /// Bytes of blocks that wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds a block of a chunk back, which the shell does not have yet; false when the chunk has a tripwire.
    pub(super) fn place(&mut self, chunk: u32, block: u32, dropped: &mut VecDeque<u32>) -> bool {
        if self.wires[chunk as usize].here || self.wires[chunk as usize].set {
            return false;
        }
        let from = block * BLOCK_BYTES as u32;
        self.wires[chunk as usize] = Tripwire { from, here: false, set: true, used: false, pins: 0 };
        self.order.push_back(chunk);
        self.count.placed += 1;
        while self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest, dropped);
        }
        true
    }

    /// The chunk is in memory: the block that the shell has to copy now, if there is one.
    pub(super) fn fill(&mut self, chunk: u32) -> Option<u32> {
        let wire = self.wires.get_mut(chunk as usize).filter(|wire| wire.set && !wire.here)?;
        wire.here = true;
        self.bytes += BLOCK_BYTES;
        Some(wire.from / BLOCK_BYTES as u32)
    }

    /// Where in the chunk the block begins, if these bytes of the chunk lie in it; it stays until
    /// [`Tripwires::unpin`].
    pub(super) fn find(&mut self, chunk: u32, from: u32, len: u32) -> Option<u32> {
        let wire = self
            .wires
            .get_mut(chunk as usize)
            .filter(|wire| wire.set && wire.here && wire.holds(from, len))?;
        wire.pins += 1;
        Some(wire.from)
    }

    /// A read was answered from it, or will not be.
    pub(super) fn unpin(&mut self, chunk: u32, dropped: &mut VecDeque<u32>) {
        self.wires[chunk as usize].pins -= 1;
        self.settle(chunk, dropped);
    }

    /// A read that is waited for ended there, in bytes of the disk.
    pub(super) fn note_end(&mut self, offset: u64) {
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(offset);
    }

    /// A read that is waited for begins at `offset` of the disk, with this byte of a chunk; whether it trips
    /// the chunk's wire. One that continues another read may be the kernel's read-ahead of something else.
    pub(super) fn trips(&mut self, chunk: u32, from: u32, offset: u64) -> bool {
        let Some(wire) = self.wires.get_mut(chunk as usize).filter(|wire| wire.set && wire.holds(from, 1))
        else {
            return false;
        };
        let continues = from == wire.from && self.ends.contains(&offset);
        self.count.used += u64::from(!continues && !wire.used);
        wire.used |= !continues;
        !continues
    }

    /// These bytes of a chunk were handed over: a tripwire all of which was handed over is none any more.
    pub(super) fn serve(&mut self, chunk: u32, from: u32, len: u32, dropped: &mut VecDeque<u32>) {
        let Some(wire) = self.wires.get(chunk as usize).filter(|wire| wire.set) else { return };
        if from <= wire.from && wire.from + BLOCK_BYTES as u32 <= from + len {
            self.remove(chunk, dropped);
        }
    }

    /// No block is held back any more.
    pub(super) fn clear(&mut self, dropped: &mut VecDeque<u32>) {
        while let Some(chunk) = self.order.pop_front() {
            self.remove(chunk, dropped);
        }
    }

    fn remove(&mut self, chunk: u32, dropped: &mut VecDeque<u32>) {
        self.wires[chunk as usize].set = false;
        self.settle(chunk, dropped);
    }

    fn settle(&mut self, chunk: u32, dropped: &mut VecDeque<u32>) {
        let wire = &mut self.wires[chunk as usize];
        if wire.here && !wire.set && wire.pins == 0 {
            wire.here = false;
            self.bytes -= BLOCK_BYTES;
            dropped.push_back(chunk);
        }
    }
}

impl Tripwire {
    const fn holds(&self, from: u32, len: u32) -> bool {
        self.from <= from && from + len <= self.from + BLOCK_BYTES as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u32 = BLOCK_BYTES as u32;

    #[test]
    fn a_tripwire_is_found_until_all_of_it_was_delivered_and_its_reads_are_answered() {
        let (mut wires, mut dropped) = (Tripwires::new(9), VecDeque::new());
        assert!(wires.place(7, 3, &mut dropped) && !wires.place(7, 4, &mut dropped));
        assert!(wires.find(7, 3 * BLOCK, BLOCK).is_none() && wires.bytes() == 0, "it has not come");
        assert_eq!((wires.fill(7), wires.fill(7), wires.fill(8)), (Some(3), None, None));
        assert_eq!(wires.find(7, 3 * BLOCK + 512, 512), Some(3 * BLOCK));
        for (from, len) in [(0, BLOCK), (2 * BLOCK, 2 * BLOCK), (4 * BLOCK, BLOCK)] {
            assert!(wires.find(7, from, len).is_none(), "{from}+{len}");
        }
        assert!(wires.trips(7, 3 * BLOCK, 1_000) && !wires.trips(7, 2 * BLOCK, 1_000));
        wires.serve(7, 3 * BLOCK + 512, 512, &mut dropped);
        wires.serve(7, 2 * BLOCK, 4 * BLOCK, &mut dropped);
        assert!(wires.find(7, 3 * BLOCK, BLOCK).is_none() && dropped.is_empty(), "a read is not answered");
        assert!(!wires.place(7, 1, &mut dropped), "its block is still there");
        wires.unpin(7, &mut dropped);
        assert_eq!((dropped.pop_back(), wires.bytes()), (Some(7), 0));
        assert_eq!(wires.count(), TripwireCount { placed: 1, used: 1 });
    }

    #[test]
    fn a_read_that_continues_another_trips_nothing() {
        let (mut wires, mut dropped) = (Tripwires::new(9), VecDeque::new());
        assert!(wires.place(7, 3, &mut dropped));
        wires.note_end(50_000);
        assert!(!wires.trips(7, 3 * BLOCK, 50_000) && wires.count().used == 0);
        (0..ENDS as u64).for_each(|end| wires.note_end(end));
        assert!(wires.trips(7, 3 * BLOCK, 50_000), "that was long ago");
    }

    #[test]
    fn the_oldest_leave_and_the_memory_is_bounded() {
        let (mut wires, mut dropped) = (Tripwires::new(3 * MOST as u32), VecDeque::new());
        for chunk in 0..3 * MOST as u32 {
            assert!(wires.place(chunk, 0, &mut dropped) && wires.fill(chunk) == Some(0));
        }
        assert_eq!((dropped.len(), wires.bytes()), (2 * MOST, MOST as u64 * BLOCK_BYTES));
    }
}
