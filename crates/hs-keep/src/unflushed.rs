//! Whether writes were answered that are not flushed yet, known beyond the end of a process.
//!
//! A supervisor holds the memory. A server that takes over from one that was killed must not answer a flush
//! as if nothing had been lost: its users, a kernel with a mounted file system for example, go on.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

/// One byte of memory that outlives a process.
#[derive(Debug)]
pub struct Unflushed(File);

impl Unflushed {
    /// A new one: nothing is unflushed.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new() -> std::io::Result<Self> {
        let memory = File::from(memfd_create("headstart-unflushed", MemfdFlags::CLOEXEC)?);
        memory.write_all_at(&[0], 0)?;
        Ok(Self(memory))
    }

    /// The one that a server which died had.
    #[must_use]
    pub fn held(memory: OwnedFd) -> Self {
        Self(memory.into())
    }

    /// Whether something was unflushed when this was set last.
    #[must_use]
    pub fn is_set(&self) -> bool {
        let mut found = [1];
        // What cannot be read is taken for lost.
        self.0.read_exact_at(&mut found, 0).is_err() || found != [0]
    }

    pub(crate) fn set(&self, unflushed: bool) {
        if let Err(error) = self.0.write_all_at(&[u8::from(unflushed)], 0) {
            log::error!("the supervisor is not told of unflushed writes: {error}");
        }
    }
}

impl AsFd for Unflushed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
