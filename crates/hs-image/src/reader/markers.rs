//! Tripwires: blocks that are kept from the kernel, so that a program that uses its prefetched chunk is seen.
//!
//! The block of a marker lies here from when its chunk comes until it is asked for, while the rest of the
//! chunk may leave: it is in memory once, here or with its reader. See `hs_engine::Prefetch::handle_delivery`
//! for what markers are good for.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use hs_units::BLOCK_BYTES;

use super::Bytes;

/// Markers that may wait to be asked for: 4 MiB. Beyond that the oldest is a block like any other.
const MOST: usize = 1024;

/// So many ends of reads are remembered, of several readers.
const ENDS: usize = 16;

/// How use of prefetched chunks was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkerCount {
    /// Chunks of which a block was kept back.
    pub placed: u64,
    /// Of these, chunks whose block was asked for.
    pub used: u64,
}

#[derive(Debug)]
struct Marker {
    /// Where in its chunk the block begins, in bytes.
    from: u32,
    /// The block, once the chunk has come.
    block: Option<Bytes>,
    /// Whether a demand read asked for it.
    used: bool,
}

/// The markers of all hot chunks; each has one at most.
#[derive(Debug, Default)]
pub(super) struct Markers {
    waiting: HashMap<u32, Marker>,
    /// The chunks of these in the order in which they were marked, and some that wait no longer.
    order: VecDeque<u32>,
    count: MarkerCount,
    /// Where the latest reads ended, in bytes of the disk.
    ends: VecDeque<u64>,
}

impl Markers {
    pub(super) const fn count(&self) -> MarkerCount {
        self.count
    }

    /// Marks a block of a chunk; false when another is.
    pub(super) fn place(&mut self, chunk: u32, block_in_chunk: u32) -> bool {
        if self.waiting.contains_key(&chunk) {
            return false;
        }
        let from = block_in_chunk * BLOCK_BYTES as u32;
        self.waiting.insert(chunk, Marker { from, block: None, used: false });
        self.order.push_back(chunk);
        self.count.placed += 1;
        while self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.waiting.remove(&oldest);
        }
        true
    }

    /// A chunk has come: copies the block that is marked. Returns where in the chunk that is, if there is
    /// one.
    pub(super) fn fill(&mut self, chunk: u32, raw: &[u8]) -> Option<Range<u32>> {
        let marker = self.waiting.get_mut(&chunk)?;
        let range = marker.from..marker.from + BLOCK_BYTES as u32;
        let block = raw.get(range.start as usize..range.end as usize)?;
        marker.block.get_or_insert_with(|| Arc::new(block.to_vec()));
        Some(range)
    }

    /// The marked block, and where it begins in its chunk, if these bytes of the chunk lie in it and it is
    /// here.
    pub(super) fn find(&self, chunk: u32, from: u32, len: u32) -> Option<(Bytes, u32)> {
        let marker = self.waiting.get(&chunk).filter(|marker| marker.holds(from, len))?;
        Some((Bytes::clone(marker.block.as_ref()?), marker.from))
    }

    /// A demand read ended there, in bytes of the disk.
    pub(super) fn note_end(&mut self, offset: u64) {
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(offset);
    }

    /// A demand read begins at `offset` of the disk, with this byte of a chunk: whether it wants the chunk's
    /// marker. A read that continues from before it may be the kernel's read-ahead for another block.
    pub(super) fn hit(&mut self, chunk: u32, from: u32, offset: u64) -> bool {
        let begins = |marker: &&mut Marker| marker.holds(from, 1);
        let Some(marker) = self.waiting.get_mut(&chunk).filter(begins) else { return false };
        let goes_on = self.ends.contains(&offset) && from == marker.from;
        self.count.used += u64::from(!goes_on && !marker.used);
        marker.used |= !goes_on;
        !goes_on
    }

    /// These bytes of a chunk were handed over: a marker of which all was asked for is none any more.
    pub(super) fn serve(&mut self, chunk: u32, from: u32, len: u32) {
        let end = from + len;
        let is_whole = |marker: &Marker| from <= marker.from && marker.from + BLOCK_BYTES as u32 <= end;
        if self.waiting.get(&chunk).is_some_and(is_whole) {
            self.waiting.remove(&chunk);
        }
    }
}

impl Marker {
    const fn holds(&self, from: u32, len: u32) -> bool {
        self.from <= from && from + len <= self.from + BLOCK_BYTES as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u32 = BLOCK_BYTES as u32;

    fn chunk() -> Vec<u8> {
        (0..8 * BLOCK).map(|at| (at / BLOCK) as u8).collect()
    }

    #[test]
    fn a_marker_is_found_until_all_of_it_was_handed_over() {
        let mut markers = Markers::default();
        assert!(markers.place(7, 3) && !markers.place(7, 4));
        assert!(markers.find(7, 3 * BLOCK, BLOCK).is_none(), "the chunk has not come");
        assert_eq!(markers.fill(7, &chunk()), Some(3 * BLOCK..4 * BLOCK));
        assert_eq!(markers.fill(8, &chunk()), None);
        let (block, from) = markers.find(7, 3 * BLOCK, BLOCK).unwrap();
        assert_eq!((&**block, from), (&[3; BLOCK_BYTES as usize][..], 3 * BLOCK));
        for (from, len) in [(0, BLOCK), (2 * BLOCK, 2 * BLOCK), (4 * BLOCK, BLOCK)] {
            assert!(markers.find(7, from, len).is_none(), "{from}+{len}");
        }
        assert!(markers.hit(7, 3 * BLOCK, 1_000) && !markers.hit(7, 2 * BLOCK, 1_000));
        markers.serve(7, 3 * BLOCK + 512, 512);
        assert!(markers.find(7, 3 * BLOCK + 512, 512).is_some(), "a part of it was handed over");
        markers.serve(7, 2 * BLOCK, 4 * BLOCK);
        assert!(markers.find(7, 3 * BLOCK, BLOCK).is_none());
        assert_eq!(markers.count(), MarkerCount { placed: 1, used: 1 });
    }

    #[test]
    fn who_reads_on_into_a_marker_has_not_asked_for_it() {
        let mut markers = Markers::default();
        assert!(markers.place(7, 3));
        markers.note_end(50_000);
        assert!(!markers.hit(7, 3 * BLOCK, 50_000));
        assert_eq!(markers.count().used, 0);
        (0..ENDS as u64).for_each(|end| markers.note_end(end));
        assert!(markers.hit(7, 3 * BLOCK, 50_000), "that was long ago");
        assert!(markers.hit(7, 3 * BLOCK, 50_000));
        assert_eq!(markers.count().used, 1);
    }

    #[test]
    fn the_oldest_leave_and_the_memory_is_bounded() {
        let mut markers = Markers::default();
        for number in 0..3 * MOST as u32 {
            assert!(markers.place(number, 0));
            markers.fill(number, &chunk());
        }
        assert_eq!((markers.waiting.len(), markers.order.len()), (MOST, MOST));
        let last = 3 * MOST as u32 - 1;
        assert!(markers.find(last, 0, BLOCK).is_some() && !markers.hit(0, 0, 0));
    }
}
