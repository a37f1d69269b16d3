//! Which hot chunks are read from the file.
//!
//! As long as a file is not complete, the kernel sends an event before each read, also of filled blocks. So
//! unlike a page cache the file hides no use, and all of it can be reported to the prefetch. A mapping causes
//! one event, and all of its blocks are filled before the mapping is there. Later reads of it are not seen,
//! and nothing is left to be fetched for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use hs_disk::ServedDisk;
use hs_image::Image;
use hs_units::{BlockRange, Lba};

use super::fill_file::FillFile;

/// The hot chunks that were read, and the disk that is told of it.
pub(super) struct Uses {
    image: Arc<Image>,
    file: Arc<FillFile>,
    disk: Arc<ServedDisk>,
    asked_for: Vec<AtomicBool>,
    not_asked_for: AtomicU32,
}

impl Uses {
    pub(super) fn new(disk: &Arc<ServedDisk>, file: &Arc<FillFile>) -> Self {
        let chunks = disk.image().hot_chunk_count();
        Self {
            image: Arc::clone(disk.image()),
            file: Arc::clone(file),
            disk: Arc::clone(disk),
            asked_for: (0..chunks).map(|_| AtomicBool::new(false)).collect(),
            not_asked_for: AtomicU32::new(chunks),
        }
    }

    /// Hot chunks of which any block was read.
    pub(super) fn count(&self) -> u32 {
        self.asked_for.len() as u32 - self.not_asked_for.load(Relaxed)
    }

    /// Notes that a program reads these blocks, or maps them. Call it before the missing ones are filled,
    /// because the reader reports the use of those.
    pub(super) fn note(&self, blocks: BlockRange) {
        let tells = self.disk.asks_for_use();
        if !tells && self.not_asked_for.load(Relaxed) == 0 {
            return;
        }
        let mut is_used = false;
        let mut at = blocks.start;
        while at < blocks.end() {
            let Some(place) = self.image.hot_place(at) else {
                match self.image.next_hot_after(at) {
                    Some(hot) => at = hot,
                    None => break,
                }
                continue;
            };
            if !self.asked_for[place.chunk as usize].swap(true, Relaxed) {
                self.not_asked_for.fetch_sub(1, Relaxed);
            }
            let end = Lba(at.0 + u64::from(place.run)).min(blocks.end());
            is_used = is_used || (tells && self.file.missing(at.0..end.0, 1).is_none());
            at = end;
        }
        if is_used {
            self.disk.used();
        }
    }
}
