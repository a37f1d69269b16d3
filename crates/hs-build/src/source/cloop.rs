//! A cloop file, read as the disk that it holds.

use std::path::PathBuf;

use hs_store::{Store, StoreError};
use hs_units::{BLOCK_BYTES, ByteRange, to_usize};
use parking_lot::Mutex;

use super::SourceError;
use crate::cloop::{CloopFault, HEADER_BYTES, Header, Inflater};

/// Offsets checked with one read.
const OFFSETS_AT_ONCE: u64 = 8192;

/// An opened cloop file. Of its offsets none are kept in memory, of its blocks the last one.
pub(super) struct CloopDisk {
    store: Box<dyn Store>,
    path: PathBuf,
    header: Header,
    last: Mutex<Last>,
}

/// The block that was inflated last.
struct Last {
    inflater: Inflater,
    block: Option<u64>,
    raw: Vec<u8>,
}

impl std::fmt::Debug for CloopDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloopDisk").field("path", &self.path).field("header", &self.header).finish()
    }
}

impl CloopDisk {
    /// Checks header and offsets, which takes one pass over the latter.
    ///
    /// # Errors
    /// [`SourceError::Cloop`] when they are not those of a cloop file, [`SourceError::CloopRead`].
    pub(super) fn open(store: Box<dyn Store>) -> Result<Self, SourceError> {
        let path = PathBuf::from(store.name());
        let mut start = vec![0; to_usize(store.len().min(HEADER_BYTES as u64))];
        store.read_at(0, &mut start).map_err(unreadable(&path))?;
        let header = Header::parse(&start, store.len()).map_err(in_file(&path))?;
        let last = Mutex::new(Last { inflater: Inflater::new(), block: None, raw: Vec::new() });
        let disk = Self { store, path, header, last };
        disk.check_offsets()?;
        Ok(disk)
    }

    fn check_offsets(&self) -> Result<(), SourceError> {
        let blocks = u64::from(self.header.blocks);
        let mut first = 0;
        while first < blocks {
            let count = (blocks - first).min(OFFSETS_AT_ONCE);
            let offsets = self.offsets(first, count + 1)?;
            for (block, pair) in (first..).zip(offsets.windows(2)) {
                self.place(block, [pair[0], pair[1]])?;
            }
            first += count;
        }
        Ok(())
    }

    fn offsets(&self, first: u64, count: u64) -> Result<Vec<u64>, SourceError> {
        let mut bytes = vec![0; 8 * to_usize(count)];
        self.store.read_at(Header::offset_of_offset(first), &mut bytes).map_err(unreadable(&self.path))?;
        let (offsets, _) = bytes.as_chunks::<8>();
        Ok(offsets.iter().map(|&offset| u64::from_be_bytes(offset)).collect())
    }

    fn place(&self, block: u64, offsets: [u64; 2]) -> Result<ByteRange, SourceError> {
        self.header.place(block, offsets, self.store.len()).map_err(in_file(&self.path))
    }

    /// Size of the disk, rounded up to whole blocks of [`BLOCK_BYTES`]; the missing bytes are zeros.
    pub(super) fn bytes(&self) -> u64 {
        self.header.disk_bytes().next_multiple_of(BLOCK_BYTES)
    }

    /// Fills `buf` from `offset`.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let (len, bytes) = (buf.len() as u64, self.bytes());
        if !ByteRange::new(offset, len).fits_in(bytes) {
            return Err(SourceError::OutOfRange { path: self.path.clone(), offset, len, bytes });
        }
        let stored = to_usize(self.header.disk_bytes().saturating_sub(offset).min(len));
        let (mut rest, padding) = buf.split_at_mut(stored);
        padding.fill(0);
        let block_bytes = u64::from(self.header.block_bytes);
        let mut last = self.last.lock();
        let mut at = offset;
        while !rest.is_empty() {
            self.inflate(at / block_bytes, &mut last)?;
            let within = to_usize(at % block_bytes);
            let take = (last.raw.len() - within).min(rest.len());
            let (head, tail) = rest.split_at_mut(take);
            head.copy_from_slice(&last.raw[within..within + take]);
            rest = tail;
            at += take as u64;
        }
        Ok(())
    }

    /// Makes `block` the one that `last` holds.
    fn inflate(&self, block: u64, last: &mut Last) -> Result<(), SourceError> {
        if last.block == Some(block) {
            return Ok(());
        }
        last.block = None;
        let offsets = self.offsets(block, 2)?;
        // Asked again, as the file may have changed since it was opened.
        let range = self.place(block, [offsets[0], offsets[1]])?;
        let mut stored = vec![0; to_usize(range.len)];
        self.store.read_at(range.offset, &mut stored).map_err(unreadable(&self.path))?;
        let Last { inflater, raw, .. } = last;
        inflater.inflate(self.header, block, range, &stored, raw).map_err(in_file(&self.path))?;
        last.block = Some(block);
        Ok(())
    }
}

fn in_file(path: &std::path::Path) -> impl FnOnce(CloopFault) -> SourceError {
    let path = path.to_owned();
    move |fault| SourceError::Cloop { path, fault: Box::new(fault) }
}

fn unreadable(path: &std::path::Path) -> impl FnOnce(StoreError) -> SourceError {
    let path = path.to_owned();
    move |error| SourceError::CloopRead { path, error: Box::new(error) }
}

#[cfg(test)]
mod tests;
