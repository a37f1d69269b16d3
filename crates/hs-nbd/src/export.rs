//! What is served: a name, and a disk.

use std::sync::Arc;

use hs_disk::{Requester, ServedDisk};
use hs_engine::queue::ClientKey;
use hs_keep::{KeptDisk, ZeroKind};
use hs_serve::{FileDisk, errno};
use hs_units::ByteRange;

use super::protocol::{ExportInfo, Zeroing};
use super::wire::errno as nbd_errno;

/// A disk that clients may open.
#[derive(Clone)]
pub struct Export {
    /// What clients call it: at most [`Export::MAX_NAME_BYTES`].
    pub name: String,
    /// What it is, for a person.
    pub description: String,
    /// Answers its reads.
    pub disk: ExportedDisk,
}

/// What answers the reads of an export.
#[derive(Clone)]
pub enum ExportedDisk {
    /// The disk in an image.
    Image(Arc<ServedDisk>),
    /// The same, with what is written to it.
    Kept(Arc<KeptImage>),
    /// A plain file.
    File(Arc<FileDisk>),
}

/// The disk in an image, and the changes of it.
pub struct KeptImage {
    /// What is served.
    pub disk: Arc<KeptDisk>,
    /// What is below, whose medium the clients share.
    pub image: Arc<ServedDisk>,
}

impl Export {
    /// The longest name that the protocol has.
    pub const MAX_NAME_BYTES: usize = 4096;

    pub(super) fn info(&self) -> ExportInfo {
        ExportInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            bytes: self.disk.bytes(),
            writable: matches!(self.disk, ExportedDisk::Kept(_)),
        }
    }
}

impl From<Arc<ServedDisk>> for ExportedDisk {
    fn from(disk: Arc<ServedDisk>) -> Self {
        Self::Image(disk)
    }
}

impl ExportedDisk {
    fn bytes(&self) -> u64 {
        match self {
            Self::Image(disk) => disk.image().exact_bytes(),
            Self::Kept(kept) => kept.disk.exact_bytes(),
            Self::File(file) => file.len(),
        }
    }

    fn image(&self) -> Option<&ServedDisk> {
        match self {
            Self::Image(disk) => Some(disk),
            Self::Kept(kept) => Some(&kept.image),
            Self::File(_) => None,
        }
    }

    /// Writes these bytes; `answer` is called once from any thread.
    pub(super) fn write(
        &self,
        requester: Requester,
        offset: u64,
        bytes: Vec<u8>,
        lasting: bool,
        answer: impl FnOnce(Result<(), u32>) + Send + 'static,
    ) {
        match self {
            Self::Kept(kept) => {
                let answer = move |result| answer(of_errno(result));
                kept.disk.write(requester, offset, bytes, lasting, answer);
            }
            _ => answer(Err(nbd_errno::EPERM)),
        }
    }

    /// Makes a range zero.
    pub(super) fn zero(
        &self,
        requester: Requester,
        range: ByteRange,
        zeroing: Zeroing,
        lasting: bool,
        answer: impl FnOnce(Result<(), u32>) + Send + 'static,
    ) {
        let kind = match zeroing {
            Zeroing::Trim => ZeroKind::Discard,
            Zeroing::Holes => ZeroKind::Holes,
            Zeroing::Zeros => ZeroKind::Zeros,
        };
        match self {
            Self::Kept(kept) => {
                let answer = move |result| answer(of_errno(result));
                kept.disk.zero(requester, range, kind, lasting, answer);
            }
            _ => answer(Err(nbd_errno::EPERM)),
        }
    }

    /// Answers when all that was answered before is on the medium.
    pub(super) fn flush(&self, answer: impl FnOnce(Result<(), u32>) + Send + 'static) {
        match self {
            // The thread is of this connection alone.
            Self::Kept(kept) => kept.disk.flush_here(move |result| answer(of_errno(result))),
            _ => answer(Ok(())),
        }
    }

    /// A client has one more connection.
    pub(super) fn open_connection(&self, client: ClientKey) {
        if let Some(disk) = self.image() {
            disk.open_connection(client);
        }
    }

    /// A client has one connection less.
    pub(super) fn close_connection(&self, client: ClientKey) {
        if let Some(disk) = self.image() {
            disk.close_connection(client);
        }
    }

    /// Reads `len` bytes from `offset`; `answer` is called once from any thread with the bytes or an error
    /// number.
    pub(super) fn submit(
        &self,
        requester: Requester,
        offset: u64,
        len: u32,
        answer: impl FnOnce(Result<&[&[u8]], u32>) + Send + 'static,
    ) {
        match self {
            Self::Image(disk) => disk.submit_for(requester, offset, len, move |result| {
                answer(result.map_err(|error| errno(error) as u32));
            }),
            Self::Kept(kept) => kept.disk.submit(requester, offset, len, move |result| {
                answer(result.map_err(|errno| errno as u32));
            }),
            Self::File(file) => file.submit(offset, len, move |result| match result {
                Ok(bytes) => answer(Ok(&[bytes])),
                Err(errno) => answer(Err(errno as u32)),
            }),
        }
    }

    /// Which parts of `range` are zero: `(bytes, zero)`, `most` of them at most. Of a plain file nothing is
    /// known.
    pub(super) fn allocation(&self, range: ByteRange, most: usize) -> Result<Vec<(u32, bool)>, u32> {
        match self {
            Self::Image(disk) => match disk.image().allocation(range, most) {
                Ok(extents) => Ok(extents.iter().map(|extent| (extent.len as u32, extent.zero)).collect()),
                Err(error) => {
                    log::error!("{error}");
                    Err(errno(&error) as u32)
                }
            },
            Self::Kept(kept) => match kept.disk.allocation(range, most) {
                Ok(extents) => Ok(extents.iter().map(|(bytes, zero)| (*bytes as u32, *zero)).collect()),
                Err(errno) => Err(errno as u32),
            },
            Self::File(_) => Ok(vec![(range.len as u32, false)]),
        }
    }
}

fn of_errno(result: Result<(), i32>) -> Result<(), u32> {
    result.map_err(|errno| errno as u32)
}
