//! Single blocks of an image's disk, for passes over much of it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use hs_format::Decompressor;
use hs_units::{BLOCK_BYTES, Lba, to_usize};
use lru::LruCache;

use crate::{Image, ImageError};

/// Decompressed windows kept in memory.
const CACHE_BYTES: u64 = 256 << 20;

/// Single blocks of an image's cold region, its windows kept in memory within a bound.
pub struct Blocks<'a> {
    image: &'a Image,
    tools: Decompressor,
    windows: LruCache<u64, Option<Arc<Vec<u8>>>>,
    zero: [u8; to_usize(BLOCK_BYTES)],
}

impl<'a> Blocks<'a> {
    /// Nothing is in memory yet.
    #[must_use]
    pub fn new(image: &'a Image) -> Self {
        let kept = to_usize((CACHE_BYTES / image.window_bytes()).max(1));
        let kept = NonZeroUsize::new(kept).unwrap_or(NonZeroUsize::MIN);
        Self {
            image,
            tools: Decompressor::new(),
            windows: LruCache::new(kept),
            zero: [0; to_usize(BLOCK_BYTES)],
        }
    }

    /// The bytes of a block, verified.
    ///
    /// # Errors
    /// When its window cannot be read or is damaged.
    pub fn block(&mut self, lba: Lba) -> Result<&[u8], ImageError> {
        let window = lba.byte_offset() / self.image.window_bytes();
        let from = to_usize(lba.byte_offset() % self.image.window_bytes());
        if !self.windows.contains(&window) {
            let raw = self.image.load_window(window, &mut self.tools)?;
            self.windows.put(window, raw.map(Arc::new));
        }
        match self.windows.get(&window) {
            Some(Some(raw)) => Ok(&raw[from..from + to_usize(BLOCK_BYTES)]),
            _ => Ok(&self.zero),
        }
    }

    /// Fills `bytes` with what lies on the disk from `offset` on.
    ///
    /// # Errors
    /// When it ends beyond the disk, or a window cannot be read or is damaged.
    pub fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.image.disk_bytes()) {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let lba = Lba::containing(at);
            let from = to_usize(at - lba.byte_offset());
            let block = self.block(lba).map_err(std::io::Error::other)?;
            let (now, later) = rest.split_at_mut(rest.len().min(block.len() - from));
            now.copy_from_slice(&block[from..from + now.len()]);
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }
}
