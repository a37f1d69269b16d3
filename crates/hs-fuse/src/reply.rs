//! What a disk is to the front end: reads that are answered when the answer is there.

use std::sync::Arc;

use hs_units::ByteRange;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::device::Device;
use super::replay::Sectors;
use super::wire::WriteOut;

/// A logical disk whose reads may be answered later, from any thread.
pub trait Disk: Send + Sync {
    /// Size of the disk, in bytes. It never changes.
    fn bytes(&self) -> u64;

    /// Must answer `reply` exactly once, now or later, from any thread. `offset + len` is within
    /// [`Disk::bytes`], and `len` is not 0. It is called from a worker thread of the session, which
    /// takes no other request meanwhile: whatever takes long belongs on another thread.
    fn read(&self, offset: u64, len: u32, reply: Reply);

    /// Whether it takes writes. It never changes.
    fn takes_writes(&self) -> bool {
        false
    }

    /// Writes these bytes, which lie in the disk. Must answer `reply` once, as [`Disk::read`].
    fn write(&self, _offset: u64, _bytes: Vec<u8>, reply: DoneReply) {
        reply.error(libc::EROFS);
    }

    /// Makes a range of the disk zero: a hole, where that does not matter. Must answer `reply` once.
    fn zero(&self, _range: ByteRange, _may_be_hole: bool, reply: DoneReply) {
        reply.error(libc::EROFS);
    }

    /// Answers when all that was answered before is on the medium. Must answer `reply` once.
    fn flush(&self, reply: DoneReply) {
        reply.done();
    }
}

/// The right, and the duty, to answer a request that changes the disk, or waits until changes last. Dropped
/// without an answer, it answers `EIO`.
#[derive(Debug)]
pub struct DoneReply {
    device: Arc<Device>,
    unique: u64,
    /// Bytes that were to be written, where the answer names them.
    written: Option<u32>,
    uid: u32,
    answered: bool,
}

impl DoneReply {
    pub(crate) fn new(device: Arc<Device>, unique: u64, written: Option<u32>, uid: u32) -> Self {
        Self { device, unique, written, uid, answered: false }
    }

    /// As [`Reply::uid`].
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// It is done.
    pub fn done(mut self) {
        match self.written {
            Some(size) => self.send(0, &[WriteOut { size, padding: 0 }.as_bytes()]),
            None => self.send(0, &[]),
        }
    }

    /// Answers with a (positive) errno.
    pub fn error(mut self, errno: i32) {
        self.send(if (1..512).contains(&errno) { errno } else { libc::EIO }, &[]);
    }

    /// One or the other.
    pub fn result(self, result: Result<(), i32>) {
        match result {
            Ok(()) => self.done(),
            Err(errno) => self.error(errno),
        }
    }

    fn send(&mut self, errno: i32, pieces: &[&[u8]]) {
        self.answered = true;
        match self.device.answer(self.unique, errno, pieces) {
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::PERM | Errno::CONNABORTED) => {}
            Err(errno) => log::error!("the kernel did not take answer {}: {errno}", self.unique),
        }
    }
}

impl Drop for DoneReply {
    fn drop(&mut self) {
        if !self.answered {
            self.send(libc::EIO, &[]);
        }
    }
}

/// The right, and the duty, to answer one read. Dropped without an answer, it answers `EIO`.
#[derive(Debug)]
pub struct Reply {
    device: Arc<Device>,
    unique: u64,
    len: u32,
    uid: u32,
    /// What covers the disk's bytes from an offset on.
    covered: Option<(Arc<Sectors>, u64)>,
    answered: bool,
}

impl Reply {
    pub(crate) fn new(device: Arc<Device>, unique: u64, len: u32, uid: u32) -> Self {
        Self { device, unique, len, uid, covered: None, answered: false }
    }

    /// The same read of a disk that was written to, from this offset.
    pub(crate) fn covered(mut self, replay: &Arc<Sectors>, offset: u64) -> Self {
        let is_covered = replay.covers_any(offset, self.len.into());
        self.covered = is_covered.then(|| (Arc::clone(replay), offset));
        self
    }

    /// The user who reads: whose file system user id the kernel names. Root's, when the kernel reads for
    /// itself, as a loop device does.
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// How many bytes are to be answered.
    #[allow(clippy::len_without_is_empty, reason = "a read of no bytes never becomes a Reply")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Answers with bytes that lie in `pieces`, in order. Together they must be exactly as long as
    /// was asked: the kernel takes a shorter answer for the end of the file. Any other length is
    /// answered with `EIO`, and logged.
    pub fn data(mut self, pieces: &[&[u8]]) {
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        if let (Some((replay, offset)), true) = (self.covered.take(), total == self.len as usize) {
            let mut bytes = pieces.concat();
            match replay.cover(offset, &mut bytes) {
                Ok(()) => self.send(0, &[&bytes]),
                Err(error) => {
                    log::error!("what a journal's replay wrote cannot be read: {error}");
                    self.send(libc::EIO, &[]);
                }
            }
        } else if total == self.len as usize {
            self.send(0, pieces);
        } else {
            log::error!("a read of {} bytes was answered with {total}: sent EIO instead", self.len);
            self.send(libc::EIO, &[]);
        }
    }

    /// Answers with a (positive) errno, as in `libc::EIO`.
    pub fn error(mut self, errno: i32) {
        // The kernel accepts 1..512 only. With any other number the reader would wait without a limit.
        let errno = if (1..512).contains(&errno) { errno } else { libc::EIO };
        self.send(errno, &[]);
    }

    fn send(&mut self, errno: i32, pieces: &[&[u8]]) {
        self.answered = true;
        match self.device.answer(self.unique, errno, pieces) {
            Ok(()) => {}
            // The reader, or the whole mount, went away before the answer came.
            Err(Errno::NOENT | Errno::NODEV | Errno::PERM | Errno::CONNABORTED) => {
                log::debug!("no reader waits for answer {} any more", self.unique);
            }
            Err(errno) => log::error!("the kernel did not take answer {}: {errno}", self.unique),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered {
            log::error!("a read of {} bytes was never answered: sent EIO", self.len);
            self.send(libc::EIO, &[]);
        }
    }
}
