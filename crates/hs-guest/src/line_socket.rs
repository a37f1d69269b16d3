//! A serial line of a guest: a socket of ours, to which QEMU connects.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Guest, GuestError};

/// How often it is checked that the guest runs.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The socket for the line of one guest.
#[derive(Debug)]
pub struct LineSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl LineSocket {
    /// Listens at `path`.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(path: PathBuf) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(&path)?, path })
    }

    /// Where QEMU connects to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the QEMU of `guest` has connected.
    ///
    /// # Errors
    /// When it ends before it has, or does not in time.
    pub fn accept(
        &self,
        guest: &mut Guest,
        patience: Duration,
    ) -> Result<io::Result<UnixStream>, GuestError> {
        let began = Instant::now();
        loop {
            let mut polled = [PollFd::new(&self.listener, PollFlags::IN)];
            if matches!(poll(&mut polled, Some(&LOOK_EVERY)), Ok(ready) if ready > 0) {
                return Ok(self.listener.accept().map(|(stream, _)| stream));
            }
            guest.check_runs()?;
            if began.elapsed() > patience {
                return Ok(Err(io::ErrorKind::TimedOut.into()));
            }
        }
    }
}
