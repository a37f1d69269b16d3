//! Which blocks of a file are filled.

use std::ops::Range;

use hs_units::{BLOCK_BYTES, BlockRange, Lba};

const WORD: u64 = u64::BITS as u64;

/// A bit for each block of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilledBlocks {
    words: Vec<u64>,
    blocks: u64,
    filled: u64,
}

impl FilledBlocks {
    /// None of the blocks of a disk of so many bytes.
    #[must_use]
    pub(super) fn none(disk_bytes: u64) -> Self {
        let blocks = disk_bytes.div_ceil(BLOCK_BYTES);
        Self { words: vec![0; blocks.div_ceil(WORD) as usize], blocks, filled: 0 }
    }

    /// Blocks of the disk.
    #[must_use]
    pub(super) const fn count(&self) -> u64 {
        self.blocks
    }

    /// Of these, those that are filled.
    #[must_use]
    pub(super) const fn filled(&self) -> u64 {
        self.filled
    }

    /// Whether all are.
    #[must_use]
    pub(super) const fn is_complete(&self) -> bool {
        self.filled == self.blocks
    }

    /// Fills blocks; those that are filled stay so.
    ///
    /// # Panics
    /// When they are not of the disk.
    pub(super) fn fill(&mut self, range: Range<u64>) {
        assert!(range.end <= self.blocks, "blocks {range:?} of {}", self.blocks);
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / WORD + 1) * WORD);
            let count = end - at;
            let mask = (u64::MAX >> (WORD - count)) << (at % WORD);
            let word = &mut self.words[(at / WORD) as usize];
            self.filled += u64::from((mask & !*word).count_ones());
            *word |= mask;
            at = end;
        }
    }

    /// The first run of blocks in `range` that are not filled, of at most `most` blocks.
    #[must_use]
    pub(super) fn missing(&self, range: Range<u64>, most: u64) -> Option<BlockRange> {
        let start = self.next(range.clone(), false)?;
        let end = range.end.min(self.blocks).min(start.saturating_add(most));
        let end = self.next(start..end, true).unwrap_or(end);
        Some(BlockRange::new(Lba(start), end - start))
    }

    /// The first block in `range` that is filled, or is not.
    fn next(&self, range: Range<u64>, filled: bool) -> Option<u64> {
        let end = range.end.min(self.blocks);
        let mut at = range.start;
        while at < end {
            let word = self.words[(at / WORD) as usize];
            let found = if filled { word } else { !word } >> (at % WORD);
            if found != 0 {
                let found = at + u64::from(found.trailing_zeros());
                return (found < end).then_some(found);
            }
            at = (at / WORD + 1) * WORD;
        }
        None
    }

    /// Bits as bytes, from a block that is a multiple of 64: block 0 is the lowest bit of the first byte.
    ///
    /// # Panics
    /// When `first` is no multiple of 64.
    pub(super) fn copy_to(&self, first: u64, bytes: &mut [u8]) {
        assert_eq!(first % WORD, 0, "the bits of a word lie together");
        bytes.fill(0);
        let words = self.words.get((first / WORD) as usize..).unwrap_or_default();
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Takes bits over as [`FilledBlocks::copy_to`] gives them. False, and nothing, when they name blocks
    /// beyond the end of the disk.
    ///
    /// # Panics
    /// When `first` is no multiple of 64.
    #[must_use]
    pub(super) fn copy_from(&mut self, first: u64, bytes: &[u8]) -> bool {
        assert_eq!(first % WORD, 0, "the bits of a word lie together");
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
            .collect();
        let fits = words.iter().enumerate().all(|(number, word)| {
            let start = first + number as u64 * WORD;
            let inside = self.blocks.saturating_sub(start).min(WORD);
            word.checked_shr(inside as u32).unwrap_or(0) == 0
        });
        if fits {
            for (known, word) in self.words.iter_mut().skip((first / WORD) as usize).zip(&words) {
                self.filled += u64::from((word & !*known).count_ones());
                *known |= word;
            }
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model_missing(model: &[bool], range: Range<usize>, most: usize) -> Option<(u64, u64)> {
        let end = range.end.min(model.len());
        let start = (range.start..end).find(|&block| !model[block])?;
        let count = (start..end).take(most).take_while(|&block| !model[block]).count();
        Some((start as u64, count as u64))
    }

    proptest! {
        #[test]
        fn behaves_as_a_list_of_truths(
            blocks in 1_usize..400,
            fills in prop::collection::vec((0_usize..400, 0_usize..150), 0..20),
            asks in prop::collection::vec((0_usize..420, 0_usize..420, 1_usize..200), 20),
        ) {
            let mut model = vec![false; blocks];
            let mut filled = FilledBlocks::none(blocks as u64 * BLOCK_BYTES - 5);
            prop_assert_eq!(filled.count(), blocks as u64);
            for (start, count) in fills {
                let (start, end) = (start.min(blocks), (start + count).min(blocks));
                model[start..end].fill(true);
                filled.fill(start as u64..end as u64);
            }
            prop_assert_eq!(filled.filled(), model.iter().filter(|filled| **filled).count() as u64);
            prop_assert_eq!(filled.is_complete(), model.iter().all(|filled| *filled));
            for (start, end, most) in asks {
                let found = filled.missing(start as u64..end as u64, most as u64);
                let found = found.map(|run| (run.start.0, run.count));
                prop_assert_eq!(found, model_missing(&model, start..end, most));
            }
            let mut bytes = [[0; 16]; 4];
            let mut copy = FilledBlocks::none(blocks as u64 * BLOCK_BYTES);
            for (number, bytes) in bytes.iter_mut().enumerate() {
                filled.copy_to(number as u64 * 128, bytes);
                prop_assert!(copy.copy_from(number as u64 * 128, bytes));
            }
            prop_assert_eq!(copy, filled);
        }
    }

    #[test]
    fn bits_beyond_the_end_are_refused() {
        let mut filled = FilledBlocks::none(70 * BLOCK_BYTES);
        let mut bytes = [0; 16];
        bytes[8] = 0b0100_0000;
        assert!(!filled.copy_from(0, &bytes));
        assert_eq!(filled.filled(), 0);
        bytes[8] = 0b0010_0000;
        assert!(filled.copy_from(0, &bytes));
        assert_eq!(filled.missing(64..70, 100), Some(BlockRange::new(Lba(64), 5)));
        assert!(!filled.copy_from(128, &bytes));
    }
}
