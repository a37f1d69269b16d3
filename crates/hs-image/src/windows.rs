//! Decompressed windows of an image in memory, within a bound.

use std::num::NonZeroUsize;

use hs_format::Decompressor;
use hs_units::to_usize;
use lru::LruCache;

use crate::{Image, ImageError};

/// The windows that were used last. `None` stands for one of zeros.
pub(crate) struct Windows {
    tools: Decompressor,
    kept: LruCache<u64, Option<Vec<u8>>>,
}

impl Windows {
    /// Keeps windows of this image, at most so many bytes.
    pub(crate) fn new(image: &Image, bytes: u64) -> Self {
        let most = NonZeroUsize::new(to_usize(bytes / image.window_bytes()));
        Self { tools: Decompressor::new(), kept: LruCache::new(most.unwrap_or(NonZeroUsize::MIN)) }
    }

    /// A window; `None` when all its bytes are zero.
    pub(crate) fn get(&mut self, image: &Image, window: u64) -> Result<Option<&[u8]>, ImageError> {
        if !self.kept.contains(&window) {
            let raw = image.load_window(window, &mut self.tools)?;
            self.kept.put(window, raw);
        }
        Ok(self.kept.get(&window).and_then(Option::as_deref))
    }

    /// Fills `bytes` with what lies on the disk from `offset` on, which it has.
    pub(crate) fn read(&mut self, image: &Image, offset: u64, bytes: &mut [u8]) -> Result<(), ImageError> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let from = to_usize(at % image.window_bytes());
            let left = to_usize(image.window_bytes()) - from;
            let (now, later) = rest.split_at_mut(rest.len().min(left));
            match self.get(image, at / image.window_bytes())? {
                Some(raw) => now.copy_from_slice(&raw[from..from + now.len()]),
                None => now.fill(0),
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }
}
