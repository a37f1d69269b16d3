//! Blocks of the logical disk.

use core::fmt;

/// Bytes in one block, the grain of profiles and of the hot region.
pub const BLOCK_BYTES: u64 = 4096;

/// The number of a block on the logical disk: its byte offset divided by [`BLOCK_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lba(pub u64);

impl Lba {
    /// Offset in bytes of the block's first byte.
    ///
    /// # Panics
    /// When the offset does not fit in 64 bits, which no [`Lba`] of an accepted disk does.
    #[must_use]
    pub const fn byte_offset(self) -> u64 {
        self.0 * BLOCK_BYTES
    }

    /// The block that holds the byte at `offset`.
    #[must_use]
    pub const fn containing(offset: u64) -> Self {
        Self(offset / BLOCK_BYTES)
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A run of consecutive blocks, `start` included, `start + count` excluded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockRange {
    /// First block.
    pub start: Lba,
    /// Number of blocks.
    pub count: u64,
}

impl BlockRange {
    /// The run of `count` blocks from `start`.
    #[must_use]
    pub const fn new(start: Lba, count: u64) -> Self {
        Self { start, count }
    }

    /// The first block after the run.
    #[must_use]
    pub const fn end(&self) -> Lba {
        Lba(self.start.0 + self.count)
    }

    /// Whether `lba` lies in the run.
    #[must_use]
    pub const fn contains(&self, lba: Lba) -> bool {
        lba.0 >= self.start.0 && lba.0 - self.start.0 < self.count
    }

    /// Bytes in the run.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.count * BLOCK_BYTES
    }

    /// The blocks that a byte range touches, its ends widened to whole blocks.
    #[must_use]
    pub const fn covering(offset: u64, len: u64) -> Self {
        let start = offset / BLOCK_BYTES;
        let end = (offset + len).div_ceil(BLOCK_BYTES);
        Self::new(Lba(start), end - start)
    }

    /// Every block of the run, ascending.
    pub fn blocks(self) -> impl Iterator<Item = Lba> {
        (self.start.0..self.end().0).map(Lba)
    }
}

impl fmt::Display for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_widens_to_whole_blocks() {
        assert_eq!(BlockRange::covering(4095, 2), BlockRange::new(Lba(0), 2));
        assert_eq!(BlockRange::covering(4096, 4096), BlockRange::new(Lba(1), 1));
        assert_eq!(BlockRange::covering(8192, 0).count, 0);
    }

    #[test]
    fn contains_excludes_the_end() {
        let run = BlockRange::new(Lba(3), 2);
        assert!(!run.contains(Lba(2)) && run.contains(Lba(4)) && !run.contains(Lba(5)));
    }
}
