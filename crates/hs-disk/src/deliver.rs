//! Where the blocks of hot chunks go beyond this process's memory.

use std::ops::Range;

use hs_engine::disk::UseVisibility;
use hs_units::{BlockRange, Lba};

/// What is done with hot blocks beyond keeping them in memory for their first reader.
pub trait Deliver: Send + Sync {
    /// How the use of delivered blocks is seen.
    fn visibility(&self) -> UseVisibility;
    /// Whether delivering takes no longer than copying, and the blocks that reads wait for need not be
    /// delivered as well. Then the rest of a chunk is delivered before those reads are answered; their
    /// readers would ask for it next.
    fn comes_before_answers(&self) -> bool;
    /// Takes the blocks of a chunk, extent by extent, into the kernel, but for those that are `left_out`
    /// (counted from the chunk's first, in ascending order of their starts); false when the kernel does not
    /// want them yet, and they must wait in memory for their reader.
    fn deliver(&self, extents: &[BlockRange], raw: &[u8], left_out: &[Range<u32>]) -> bool;
}

/// The parts of a chunk's extents without the blocks that are `left_out` (counted from the chunk's first, in
/// ascending order of their starts), each with the block of the chunk that it begins with.
#[must_use]
pub fn parts(extents: &[BlockRange], left_out: &[Range<u32>]) -> Vec<(BlockRange, u32)> {
    let mut parts = Vec::with_capacity(extents.len() + left_out.len());
    let mut first = 0;
    for extent in extents {
        let end = first + extent.count as u32;
        let mut at = first;
        for left_out in left_out.iter().chain([&(end..end)]) {
            let until = left_out.start.min(end);
            if at < until {
                let start = Lba(extent.start.0 + u64::from(at - first));
                parts.push((BlockRange::new(start, u64::from(until - at)), at));
            }
            at = at.max(left_out.end);
        }
        first = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use hs_units::Prng;

    /// Against a list of single blocks.
    #[test]
    fn the_parts_are_all_blocks_that_are_not_left_out_in_runs_that_are_as_long_as_can_be() {
        let mut prng = Prng::new(5);
        for _ in 0..500 {
            let extents: Vec<BlockRange> = (0..1 + prng.below(4))
                .map(|number| BlockRange::new(Lba(1000 * number + prng.below(100)), 1 + prng.below(9)))
                .collect();
            let count = extents.iter().map(|extent| extent.count).sum::<u64>();
            let mut left_out: Vec<Range<u32>> = (0..prng.below(5))
                .map(|_| (prng.below(count) as u32, 1 + prng.below(4) as u32))
                .map(|(start, count)| start..start + count)
                .collect();
            left_out.sort_unstable_by_key(|blocks| blocks.start);
            let blocks = extents.iter().flat_map(|extent| extent.start.0..extent.end().0).zip(0..);
            let expected: Vec<(u64, u32)> =
                blocks.filter(|(_, block)| !left_out.iter().any(|blocks| blocks.contains(block))).collect();
            let found = parts(&extents, &left_out);
            let each: Vec<(u64, u32)> =
                found.iter().flat_map(|(part, first)| (part.start.0..part.end().0).zip(*first..)).collect();
            assert_eq!(each, expected, "{extents:?} without {left_out:?}");
            let goes_on = |pair: &[(BlockRange, u32)]| pair[0].0.end() == pair[1].0.start;
            assert!(!found.windows(2).any(goes_on), "{extents:?} without {left_out:?}");
        }
    }
}
