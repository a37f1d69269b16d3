//! Pages of files that the warmer has requested.

use std::collections::HashMap;

use hs_image::Hint;
use hs_trace::BlockSet;
use hs_units::{BLOCK_BYTES, BlockRange, Lba};

/// The requested pages, file by file, and how far the kernel reads ahead in them.
pub(super) struct AskedPages {
    files: HashMap<u64, BlockSet>,
    read_ahead: u64,
}

impl AskedPages {
    /// No pages; the kernel reads so many KiB ahead.
    pub(super) fn new(read_ahead_kib: u32) -> Self {
        Self { files: HashMap::new(), read_ahead: u64::from(read_ahead_kib) * 1024 / BLOCK_BYTES }
    }

    /// Notes that these pages of a file are requested.
    pub(super) fn note(&mut self, hint: &Hint) {
        let pages = BlockRange::new(Lba(hint.page.into()), hint.blocks.into());
        self.files.entry(hint.inode).or_default().insert(pages, |_| {});
    }

    /// Whether the kernel would read a page of a file of so many bytes alone, if only that page were missing.
    /// Around a page of a mapping it reads half of its read-ahead before and half behind
    /// (`do_sync_mmap_readahead` of mm/filemap.c). From a page of a sequential read it reads on
    /// (`page_cache_sync_ra`). It skips pages that it has.
    pub(super) fn is_read_alone(&self, inode: u64, page: u32, file_bytes: u64) -> bool {
        let page = u64::from(page);
        let pages = file_bytes.div_ceil(BLOCK_BYTES);
        let first = page.saturating_sub(self.read_ahead / 2);
        let end = (page + self.read_ahead.max(1)).min(pages);
        let Some(asked) = self.files.get(&inode).filter(|_| page < end) else { return false };
        let mut is_alone = true;
        asked.split(BlockRange::new(Lba(first), end - first), |_, was_asked| is_alone &= was_asked);
        is_alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(page: u32, blocks: u32) -> Hint {
        Hint { lba: Lba(1_000 + u64::from(page)), blocks, inode: 12, page }
    }

    #[test]
    fn what_read_ahead_would_bring_must_have_been_asked_for() {
        let mut asked = AskedPages::new(128);
        let file = 200 * BLOCK_BYTES;
        asked.note(&hint(50, 48));
        let alone: Vec<u32> = (0..200).filter(|page| asked.is_read_alone(12, *page, file)).collect();
        assert_eq!(alone, [66], "16 pages before it and 31 behind");
        assert!(!asked.is_read_alone(13, 66, file));
        // Behind the end of a file there is nothing to read.
        assert!((66..98).all(|page| asked.is_read_alone(12, page, 97 * BLOCK_BYTES + 1)));
        assert!(!asked.is_read_alone(12, 98, 98 * BLOCK_BYTES), "there is no such page");
        asked.note(&hint(0, 3));
        assert!((0..3).all(|page| asked.is_read_alone(12, page, 3 * BLOCK_BYTES)));
        assert!(!asked.is_read_alone(12, 0, 4 * BLOCK_BYTES));
    }

    #[test]
    fn without_read_ahead_each_page_is_read_alone() {
        let mut asked = AskedPages::new(0);
        asked.note(&hint(7, 1));
        assert!(
            asked.is_read_alone(12, 7, 100 * BLOCK_BYTES) && !asked.is_read_alone(12, 8, 100 * BLOCK_BYTES)
        );
    }
}
