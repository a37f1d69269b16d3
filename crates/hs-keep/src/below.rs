//! The disk below an overlay: what is read where nothing was written.

use hs_disk::{Requester, ServedDisk};
use hs_serve::errno;
use hs_units::{ByteRange, Digest};

/// Called once with the bytes, or with an error number.
pub(crate) type ReadAnswer = Box<dyn FnOnce(Result<&[&[u8]], i32>) + Send>;

/// A disk that never changes.
pub trait Below: Send + Sync {
    /// Its bytes: whole blocks.
    fn bytes(&self) -> u64;

    /// Bytes that are shown: it may end within its last block.
    fn exact_bytes(&self) -> u64;

    /// The digest of its content.
    fn digest(&self) -> Digest;

    /// Reads `len` bytes from `offset`; `answer` is called once, now or later, from any thread.
    fn submit(&self, requester: Requester, offset: u64, len: u32, answer: ReadAnswer);

    /// Which parts of `range` are zero, from its start on: `(bytes, zero)`, `most` of them at most.
    ///
    /// # Errors
    /// An error number.
    fn allocation(&self, range: ByteRange, most: usize) -> Result<Vec<(u64, bool)>, i32>;
}

impl Below for ServedDisk {
    fn bytes(&self) -> u64 {
        self.image().disk_bytes()
    }

    fn exact_bytes(&self) -> u64 {
        self.image().exact_bytes()
    }

    fn digest(&self) -> Digest {
        self.image().disk_digest()
    }

    fn submit(&self, requester: Requester, offset: u64, len: u32, answer: ReadAnswer) {
        self.submit_for(requester, offset, len, move |result| answer(result.map_err(errno)));
    }

    fn allocation(&self, range: ByteRange, most: usize) -> Result<Vec<(u64, bool)>, i32> {
        match self.image().allocation(range, most) {
            Ok(extents) => Ok(extents.iter().map(|extent| (extent.len, extent.zero)).collect()),
            Err(error) => {
                log::error!("{error}");
                Err(errno(&error))
            }
        }
    }
}
