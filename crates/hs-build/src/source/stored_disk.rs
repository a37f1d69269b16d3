//! A raw disk or a qcow2 file in any store: on a server, or on a medium that is emulated.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_format::{BaseKind, FileKind};
use hs_store::Store;
use hs_units::{BLOCK_BYTES, ByteRange, to_usize};

use super::SourceError;
use super::qcow2::{BackingName, MOST_BACKING, Qcow2Fault, Qcow2Store, in_blocks};

/// A disk in a store. It may be shorter than its last block, which ends with zeros.
#[derive(Clone)]
pub struct StoredDisk {
    disk: Arc<dyn Store>,
    kinds: Vec<BaseKind>,
    ranges: Arc<dyn Fn() -> Result<Vec<ByteRange>, Qcow2Fault> + Send + Sync>,
}

impl std::fmt::Debug for StoredDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredDisk").field("name", &self.disk.name()).field("kinds", &self.kinds).finish()
    }
}

/// Opens a file by its name, in the folder of a disk.
pub type OpenBeside<'a> = dyn FnMut(&str) -> io::Result<Arc<dyn Store>> + 'a;

impl StoredDisk {
    /// Opens what lies in `file`: its first bytes say whether it is a qcow2 file. Whatever else is a disk may
    /// be one; a file that is known to be something else is not. Files behind it are opened by `beside`, the
    /// nearest first.
    ///
    /// # Errors
    /// When one of them is no disk, is damaged, or cannot be opened.
    pub fn open(file: Arc<dyn Store>, beside: &mut OpenBeside<'_>) -> Result<Self, SourceError> {
        let name = Path::new(file.name()).file_name().map(|name| name.to_string_lossy().into_owned());
        Self::open_behind(file, beside, &mut name.into_iter().collect())
    }

    /// `before` are the names of the files that lead here.
    fn open_behind(
        file: Arc<dyn Store>,
        beside: &mut OpenBeside<'_>,
        before: &mut Vec<String>,
    ) -> Result<Self, SourceError> {
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
            FileKind::Qcow2 => Self::open_qcow2(&path, file, beside, before),
            kind if kind.is_disk() || matches!(kind, FileKind::Zeros | FileKind::Unknown) => {
                Ok(Self::raw(file))
            }
            kind => Err(SourceError::NoDisk { path, kind }),
        }
    }

    fn raw(file: Arc<dyn Store>) -> Self {
        let whole = ByteRange::new(0, file.len());
        Self { disk: file, kinds: vec![BaseKind::Raw], ranges: Arc::new(move || Ok(vec![whole])) }
    }

    fn open_qcow2(
        path: &Path,
        file: Arc<dyn Store>,
        beside: &mut OpenBeside<'_>,
        before: &mut Vec<String>,
    ) -> Result<Self, SourceError> {
        let failed = |fault| SourceError::Qcow2 { path: path.to_owned(), fault: Box::new(fault) };
        let (mut disk, behind) = Qcow2Store::open(file).map_err(failed)?;
        if disk.exact_bytes() == 0 {
            return Err(SourceError::Empty { path: path.to_owned() });
        }
        let mut kinds = vec![BaseKind::Qcow2];
        if let Some(BackingName { name, format }) = behind {
            if before.contains(&name) {
                return Err(failed(Qcow2Fault::Cycle { name }));
            }
            if before.len() > MOST_BACKING {
                return Err(failed(Qcow2Fault::Depth { most: MOST_BACKING }));
            }
            let backing =
                beside(&name).map_err(|error| failed(Qcow2Fault::Backing { name: name.clone(), error }))?;
            before.push(name.clone());
            let backing_path = PathBuf::from(backing.name());
            if backing.is_empty() {
                return Err(SourceError::Empty { path: backing_path });
            }
            let backing = match format.as_deref() {
                Some(b"raw") => Self::raw(backing),
                Some(b"qcow2") => Self::open_qcow2(&backing_path, backing, beside, before)?,
                None => Self::open_behind(backing, beside, before)?,
                Some(other) => {
                    let kind = format!("of the format {}", String::from_utf8_lossy(other));
                    return Err(failed(Qcow2Fault::BackingKind { name, kind }));
                }
            };
            kinds.extend(&backing.kinds);
            disk = disk.on(backing);
        }
        let disk = Arc::new(disk);
        let of = Arc::clone(&disk);
        Ok(Self { disk, kinds, ranges: Arc::new(move || of.data_ranges()) })
    }

    /// Its bytes.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Store> {
        &self.disk
    }

    /// How the file holds it.
    #[must_use]
    pub fn kind(&self) -> BaseKind {
        self.kinds[0]
    }

    /// The same of the file and of those behind it, in their order.
    #[must_use]
    pub fn kinds(&self) -> &[BaseKind] {
        &self.kinds
    }

    /// What may hold anything but zeros.
    pub(super) fn ranges(&self) -> Result<Vec<ByteRange>, Qcow2Fault> {
        (self.ranges)()
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
        Ok(in_blocks(self.ranges().map_err(failed)?))
    }
}
