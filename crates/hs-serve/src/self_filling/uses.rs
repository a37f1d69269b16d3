//! What of the hot region is read from the file.
//!
//! As long as a file is not complete, the kernel asks before each read, of what is filled as well. So unlike a page cache the file hides no
//! use, and the prefetch may be told of all of it. What is mapped is asked for once, and all that is mapped is filled before the mapping is
//! there: what is read of it then is not seen, and there is nothing left to be brought for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use hs_image::{HotPolicy, Image};
use hs_units::{BlockRange, Lba};

use super::fill_file::FillFile;
use crate::Driver;

/// The hot chunks that somebody has asked for, and whoever wants to know of it.
pub(super) struct Uses {
    image: Arc<Image>,
    file: Arc<FillFile>,
    driver: Arc<Driver>,
    asked_for: Vec<AtomicBool>,
    not_asked_for: AtomicU32,
}

impl Uses {
    pub(super) fn new(image: &Arc<Image>, file: &Arc<FillFile>, driver: &Arc<Driver>) -> Self {
        let chunks = image.hot_chunk_count();
        Self {
            image: Arc::clone(image),
            file: Arc::clone(file),
            driver: Arc::clone(driver),
            asked_for: (0..chunks).map(|_| AtomicBool::new(false)).collect(),
            not_asked_for: AtomicU32::new(chunks),
        }
    }

    /// Hot chunks of which somebody has read anything.
    pub(super) fn count(&self) -> u32 {
        self.asked_for.len() as u32 - self.not_asked_for.load(Relaxed)
    }

    /// Somebody reads these blocks, or maps them. To be called before those that are missing are filled, as of these the reader tells.
    pub(super) fn note(&self, blocks: BlockRange) {
        let tells = self.driver.asks_for_use();
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
            self.driver.used();
        }
    }
}
