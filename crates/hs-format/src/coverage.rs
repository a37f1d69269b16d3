//! What no single leaf can show: that the cold chunks of all leaves together fill their space.

use hs_units::ByteRange;

use crate::Superblock;
use crate::check;
use crate::error::{FormatError, Part};
use crate::leaf::{ColdLeaf, WindowRef};

/// Collects the chunks of every leaf, for a verifier that reads the whole image; 16 bytes of memory for
/// each window that is not zero.
#[derive(Clone, Debug, Default)]
pub struct ColdCoverage {
    ranges: Vec<ByteRange>,
}

impl ColdCoverage {
    /// No chunks yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the chunks of one leaf.
    pub fn add(&mut self, leaf: &ColdLeaf) {
        self.ranges.extend(leaf.windows().filter_map(|window| match window {
            WindowRef::Zero => None,
            WindowRef::Chunk(chunk) => Some(chunk.range),
        }));
    }

    /// Checks, when every leaf has been given, that chunks do not overlap, leave no gap in their space, and
    /// are as many as the superblock says.
    ///
    /// # Errors
    /// [`FormatError::Overlap`], [`FormatError::Gap`] or [`FormatError::Inconsistent`].
    pub fn finish(mut self, superblock: &Superblock) -> Result<(), FormatError> {
        let part = Part::File;
        self.ranges.sort_unstable();
        self.ranges.dedup();
        let distinct_chunks = self.ranges.len() as u64;
        let space = superblock.cold.chunk_space();
        self.ranges.push(ByteRange::new(space.end(), 0));
        let mut before = ByteRange::new(0, 0);
        for range in self.ranges {
            // R16, between leaves.
            if range.offset < before.end() {
                return Err(FormatError::Overlap { part, first: before, second: range });
            }
            if range.offset > before.end() {
                let gap = ByteRange::new(before.end(), range.offset - before.end());
                return Err(FormatError::Gap { part, limit: 1, gap });
            }
            before = range;
        }
        check::equal(part, "distinct cold chunks", distinct_chunks, superblock.cold.distinct_chunks)
    }
}
