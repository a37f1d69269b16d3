//! Single blocks of an image's disk, for passes over much of it.

use hs_units::{BLOCK_BYTES, Lba, to_usize};

use crate::windows::Windows;
use crate::{Image, ImageError};

/// Decompressed windows kept in memory.
const CACHE_BYTES: u64 = 256 << 20;

/// Single blocks of an image's cold region, its windows kept in memory within a bound.
pub struct Blocks<'a> {
    image: &'a Image,
    windows: Windows,
    zero: [u8; to_usize(BLOCK_BYTES)],
}

impl<'a> Blocks<'a> {
    /// Nothing is in memory yet.
    #[must_use]
    pub fn new(image: &'a Image) -> Self {
        Self { image, windows: Windows::new(image, CACHE_BYTES), zero: [0; to_usize(BLOCK_BYTES)] }
    }

    /// The bytes of a block, verified.
    ///
    /// # Errors
    /// When its window cannot be read or is damaged.
    pub fn block(&mut self, lba: Lba) -> Result<&[u8], ImageError> {
        let window = lba.byte_offset() / self.image.window_bytes();
        let from = to_usize(lba.byte_offset() % self.image.window_bytes());
        Ok(match self.windows.get(self.image, window)? {
            Some(raw) => &raw[from..from + to_usize(BLOCK_BYTES)],
            None => &self.zero,
        })
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
        self.windows.read(self.image, offset, bytes).map_err(std::io::Error::other)
    }
}
