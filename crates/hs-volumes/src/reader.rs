//! A disk, or a part of it, that is read.

use hs_units::{ByteRange, to_usize};

/// What brings bytes of a disk: it fills the buffer from the offset.
pub type ReadAt<'a, E> = dyn FnMut(u64, &mut [u8]) -> Result<(), E> + 'a;

/// A disk, or a part of it. Nothing beyond its end is ever asked for.
pub struct Reader<'a, E> {
    range: ByteRange,
    read: &'a mut ReadAt<'a, E>,
}

impl<'a, E> Reader<'a, E> {
    /// A disk of so many bytes.
    pub fn new(bytes: u64, read: &'a mut ReadAt<'a, E>) -> Self {
        Self { range: ByteRange::new(0, bytes), read }
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.range.len
    }

    /// A part of it, which must lie in it.
    pub(crate) fn part(&mut self, range: ByteRange) -> Reader<'_, E> {
        assert!(range.fits_in(self.range.len), "{range:?} of {:?}", self.range);
        let start = self.range.offset + range.offset;
        // The lifetime of a trait object behind `&mut` cannot shrink, so each part has a closure of its own.
        Reader { range: ByteRange::new(start, range.len), read: shorter(self.read) }
    }

    /// So many bytes from `offset`, or `None` where the disk ends before.
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<Option<Vec<u8>>, E> {
        if !ByteRange::new(offset, len as u64).fits_in(self.range.len) {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        (self.read)(self.range.offset + offset, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Up to so many bytes from `offset`, as many as there are.
    pub(crate) fn read_some(&mut self, offset: u64, most: usize) -> Result<Vec<u8>, E> {
        let len = self.range.len.saturating_sub(offset).min(most as u64);
        Ok(self.read(offset, to_usize(len))?.unwrap_or_default())
    }
}

fn shorter<'a, 'b: 'a, E>(read: &'a mut ReadAt<'b, E>) -> &'a mut ReadAt<'a, E> {
    read
}

/// A number of two bytes, least significant first; zero beyond the end.
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// The same of four bytes.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// The same of eight bytes.
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// A number of two bytes, most significant first; zero beyond the end.
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

/// The same of four bytes.
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

/// The same of eight bytes.
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// So many bytes from `at`; zeros beyond the end.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    if let Some(there) = bytes.get(at..).and_then(|rest| rest.get(..N)) {
        found.copy_from_slice(there);
    }
    found
}
