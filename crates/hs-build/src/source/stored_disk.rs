//! A raw disk or a qcow2 file in any store: on a server, or on a medium that is emulated.

use std::path::PathBuf;
use std::sync::Arc;

use hs_format::{BaseKind, FileKind};
use hs_store::Store;
use hs_units::{BLOCK_BYTES, ByteRange, to_usize};

use super::SourceError;
use super::qcow2::{Qcow2Fault, Qcow2Store, in_blocks};

/// A disk in a store. It may be shorter than its last block, which ends with zeros.
#[derive(Clone)]
pub struct StoredDisk {
    disk: Arc<dyn Store>,
    kind: BaseKind,
    ranges: Arc<dyn Fn() -> Result<Vec<ByteRange>, Qcow2Fault> + Send + Sync>,
}

impl std::fmt::Debug for StoredDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredDisk").field("name", &self.disk.name()).field("kind", &self.kind).finish()
    }
}

impl StoredDisk {
    /// Opens what lies in `file`: its first bytes say whether it is a qcow2 file. Whatever else is a disk may
    /// be one; a file that is known to be something else is not.
    ///
    /// # Errors
    /// When it is no disk, is damaged, or has a backing file.
    pub fn open(file: Arc<dyn Store>) -> Result<Self, SourceError> {
        let path = PathBuf::from(file.name());
        if file.is_empty() {
            return Err(SourceError::Empty { path });
        }
        let mut start = vec![0; to_usize(file.len().min(FileKind::NEEDED_BYTES as u64))];
        let unreadable = |error: hs_store::StoreError| SourceError::Unreadable {
            path: path.clone(),
            error: std::io::Error::other(error.with_causes()),
        };
        file.read_at(0, &mut start).map_err(unreadable)?;
        match FileKind::of(&start) {
            FileKind::Qcow2 => {
                let failed = |fault| SourceError::Qcow2 { path: path.clone(), fault: Box::new(fault) };
                let disk = Arc::new(Qcow2Store::open(file).map_err(failed)?);
                if disk.exact_bytes() == 0 {
                    return Err(SourceError::Empty { path });
                }
                let of = Arc::clone(&disk);
                Ok(Self { disk, kind: BaseKind::Qcow2, ranges: Arc::new(move || of.data_ranges()) })
            }
            kind if kind.is_disk() || matches!(kind, FileKind::Zeros | FileKind::Unknown) => {
                let whole = ByteRange::new(0, file.len());
                Ok(Self { disk: file, kind: BaseKind::Raw, ranges: Arc::new(move || Ok(vec![whole])) })
            }
            kind => Err(SourceError::NoDisk { path, kind }),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Store> {
        &self.disk
    }

    /// How the file holds it.
    #[must_use]
    pub const fn kind(&self) -> BaseKind {
        self.kind
    }

    /// Its size.
    #[must_use]
    pub fn exact_bytes(&self) -> u64 {
        self.disk.len()
    }

    /// Its size in whole blocks.
    pub(super) fn bytes(&self) -> u64 {
        self.exact_bytes().next_multiple_of(BLOCK_BYTES)
    }

    /// Fills `buf` from `offset`.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let (len, bytes) = (buf.len() as u64, self.bytes());
        let path = || PathBuf::from(self.disk.name());
        if !ByteRange::new(offset, len).fits_in(bytes) {
            return Err(SourceError::OutOfRange { path: path(), offset, len, bytes });
        }
        let there = to_usize(self.exact_bytes().saturating_sub(offset).min(len));
        let (stored, missing) = buf.split_at_mut(there);
        missing.fill(0);
        self.disk.read_at(offset, stored).map_err(|error| SourceError::Read {
            path: path(),
            offset,
            len,
            error: std::io::Error::other(error.with_causes()),
        })
    }

    /// What may hold anything but zeros, in whole blocks.
    pub(super) fn data_ranges(&self) -> Result<Vec<ByteRange>, SourceError> {
        let failed =
            |fault| SourceError::Qcow2 { path: PathBuf::from(self.disk.name()), fault: Box::new(fault) };
        Ok(in_blocks((self.ranges)().map_err(failed)?))
    }
}
