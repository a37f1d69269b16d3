//! One open `/dev/fuse`: whole messages in, whole messages out.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::wire::OutHeader;
use crate::FuseError;

/// The device itself.
pub(crate) const FUSE_DEVICE: &str = "/dev/fuse";

/// Pieces that are described on the stack; an answer with more of them allocates.
const INLINE_PIECES: usize = 32;
/// The kernel takes at most this many pieces in one call (`UIO_MAXIOV`), the header included.
const MAXIMUM_PIECES: usize = 1024;

/// A queue of a FUSE connection. An answer must go out through the queue its request came from.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
}

impl Device {
    /// Takes over a descriptor of `/dev/fuse`.
    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Opens `/dev/fuse`, not yet belonging to any connection.
    pub(crate) fn open() -> Result<Self, FuseError> {
        let path = Path::new(FUSE_DEVICE);
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
            let path = PathBuf::from(path);
            match errno {
                Errno::NOENT | Errno::NODEV | Errno::NXIO => FuseError::FuseMissing { path },
                errno => FuseError::FuseDevice { path, source: errno.into() },
            }
        })?;
        Ok(Self { fd })
    }

    /// Opens a second queue of the same connection, so that threads do not share one.
    pub(crate) fn clone_queue(&self) -> Result<Self, FuseError> {
        let clone = Self::open()?;
        hs_linux::clone_fuse_queue(&clone.fd, &self.fd)
            .map_err(|source| FuseError::FuseDevice { path: FUSE_DEVICE.into(), source })?;
        Ok(clone)
    }

    /// Waits for the next message and returns its length.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.fd, buffer)
    }

    /// Answers request `unique`. `error` is a positive errno, or 0 for success.
    pub(crate) fn answer(&self, unique: u64, error: i32, pieces: &[&[u8]]) -> Result<(), Errno> {
        self.send(OutHeader { len: 0, error: -error, unique }, pieces)
    }

    /// Sends an unasked message with a code of [`super::wire::notify`].
    pub(crate) fn notify(&self, code: i32, pieces: &[&[u8]]) -> Result<(), Errno> {
        self.send(OutHeader { len: 0, error: code, unique: 0 }, pieces)
    }

    /// Sends one message in one call, as the kernel demands; fills in `header.len`.
    fn send(&self, mut header: OutHeader, pieces: &[&[u8]]) -> Result<(), Errno> {
        let body: usize = pieces.iter().map(|piece| piece.len()).sum();
        let total = size_of::<OutHeader>() + body;
        header.len = u32::try_from(total).map_err(|_| Errno::INVAL)?;
        let header = header.as_bytes();
        let written = if pieces.len() <= INLINE_PIECES {
            let mut slices = [IoSlice::new(&[]); INLINE_PIECES + 1];
            slices[0] = IoSlice::new(header);
            for (slice, piece) in slices[1..].iter_mut().zip(pieces) {
                *slice = IoSlice::new(piece);
            }
            rustix::io::writev(&self.fd, &slices[..=pieces.len()])?
        } else if pieces.len() < MAXIMUM_PIECES {
            let mut slices = Vec::with_capacity(pieces.len() + 1);
            slices.push(IoSlice::new(header));
            slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
            rustix::io::writev(&self.fd, &slices)?
        } else {
            let mut gathered = Vec::with_capacity(body);
            for piece in pieces {
                gathered.extend_from_slice(piece);
            }
            rustix::io::writev(&self.fd, &[IoSlice::new(header), IoSlice::new(&gathered)])?
        };
        debug_assert_eq!(written, total, "the FUSE device takes whole messages");
        Ok(())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
