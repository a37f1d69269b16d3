//! What is served: a name, and a disk.

use std::sync::Arc;

use hs_disk::{Requester, ServedDisk};
use hs_engine::queue::ClientKey;
use hs_serve::{FileDisk, errno};
use hs_units::ByteRange;

use super::protocol::ExportInfo;

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
    /// A plain file.
    File(Arc<FileDisk>),
}

impl Export {
    /// The longest name that the protocol has.
    pub const MAX_NAME_BYTES: usize = 4096;

    pub(super) fn info(&self) -> ExportInfo {
        ExportInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            bytes: self.disk.bytes(),
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
            Self::File(file) => file.len(),
        }
    }

    /// A client has one more connection.
    pub(super) fn open_connection(&self, client: ClientKey) {
        if let Self::Image(disk) = self {
            disk.open_connection(client);
        }
    }

    /// A client has one connection less.
    pub(super) fn close_connection(&self, client: ClientKey) {
        if let Self::Image(disk) = self {
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
            Self::File(_) => Ok(vec![(range.len as u32, false)]),
        }
    }
}
