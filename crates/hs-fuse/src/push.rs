//! Pushes bytes into the kernel's page cache before they are read.

use std::os::fd::AsFd;
use std::sync::Arc;

use hs_linux::with_one_descriptor;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::device::Device;
use super::files::DISK_NODE;
use super::wire::{StoreOut, notify};
use super::workers::Workers;

/// Why a push did not happen. None of them is a fault of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The kernel has not looked the file up yet (or has forgotten it): nothing can hold its pages.
    #[error("the kernel does not know the file yet: a program has to look it up first")]
    NotLookedUp,
    /// The file system is unmounted.
    #[error("the file system is unmounted")]
    Unmounted,
    /// The range is not inside the file.
    #[error("bytes {offset}+{len} are not inside a file of {file_bytes} bytes")]
    OutOfRange {
        /// Where the push begins, in bytes.
        offset: u64,
        /// How long it is, in bytes.
        len: u64,
        /// How long the file is, in bytes.
        file_bytes: u64,
    },
    /// The kernel refused for another reason, such as no memory; the errno.
    #[error("the kernel refused pushed bytes (errno {0})")]
    Refused(i32),
}

/// A way to push; cheap to clone, usable from any thread.
///
/// Pushing waits for pages that are being read, so it must never happen inside [`super::Disk::read`],
/// nor keep the thread busy that would answer such a read. Only pages that are pushed whole become
/// readable without asking: `offset` and length should be multiples of 4096, except at the file's end.
/// With direct I/O ([`super::SessionOptions::direct_io`]) nothing reads the page cache, and pushing is
/// useless.
#[derive(Clone, Debug)]
pub struct Pusher {
    device: Arc<Device>,
    /// Each push is made by a thread with that descriptor alone: where the kernel cannot resend, a push that
    /// waits for a page must not keep open what a killed server had taken, for the page may be among it.
    apart: bool,
    workers: Arc<Workers>,
    file_bytes: u64,
}

impl Pusher {
    pub(crate) fn new(device: Arc<Device>, can_resend: bool, workers: Arc<Workers>, file_bytes: u64) -> Self {
        // No requests are taken from a queue of its own.
        let own = (!can_resend).then(|| device.clone_queue());
        let (device, apart) = match own {
            None => (device, false),
            Some(Ok(queue)) => (Arc::new(queue), true),
            Some(Err(error)) => {
                log::warn!("what is read when this server dies may hang: {error}");
                (device, false)
            }
        };
        Self { device, apart, workers, file_bytes }
    }

    /// Puts the bytes in `pieces`, one after the other, at `offset` (bytes) into the page cache.
    pub fn push(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), PushError> {
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let outside = PushError::OutOfRange { offset, len, file_bytes: self.file_bytes };
        // A push past the end would make the file longer in the kernel's eyes.
        if offset.checked_add(len).is_none_or(|end| end > self.file_bytes) {
            return Err(outside);
        }
        let size = u32::try_from(len).map_err(|_| outside)?;
        let store = StoreOut { nodeid: DISK_NODE, offset, size, padding: 0 };
        let tell = || self.tell(&store, pieces);
        let sent = if self.apart {
            with_one_descriptor("pushing", self.device.as_fd(), tell).unwrap_or_else(|_| tell())
        } else {
            tell()
        };
        sent.map_err(|errno| match errno {
            // The kernel reports the same error when nothing is mounted any more; the workers have ended
            // then.
            Errno::NOENT if self.workers.have_ended() => PushError::Unmounted,
            Errno::NOENT => PushError::NotLookedUp,
            Errno::NODEV | Errno::PERM | Errno::CONNABORTED | Errno::NOTCONN => PushError::Unmounted,
            errno => PushError::Refused(errno.raw_os_error()),
        })
    }

    fn tell(&self, store: &StoreOut, pieces: &[&[u8]]) -> Result<(), Errno> {
        if let [piece] = pieces {
            return self.device.notify(notify::STORE, &[store.as_bytes(), piece]);
        }
        let mut all = Vec::with_capacity(pieces.len() + 1);
        all.push(store.as_bytes());
        all.extend_from_slice(pieces);
        self.device.notify(notify::STORE, &all)
    }
}
