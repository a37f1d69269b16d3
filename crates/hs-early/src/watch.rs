//! What a start is doing, second by second.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use hs_accelerate::Second;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Recording;
use crate::machine::ProcessorTime;

/// Compares each second with the one before.
#[derive(Debug)]
pub struct Watch {
    pages: u64,
    processors: ProcessorTime,
}

impl Watch {
    /// Begins to watch.
    #[must_use]
    pub fn start(recording: &Recording) -> Self {
        Self { pages: recording.page_ins().others(), processors: ProcessorTime::now() }
    }

    /// What happened since the last call.
    pub fn second(&mut self, recording: &Recording, has_session: bool) -> Second {
        let now = Self::start(recording);
        let second = Second {
            new_pages: now.pages.saturating_sub(self.pages),
            idle_percent: now.processors.idle_percent_since(self.processors),
            has_session,
        };
        *self = now;
        second
    }
}

/// Waits for a process for at most `patience`.
///
/// # Errors
/// Those of waiting.
pub fn wait_for(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_child(child);
    let process: OwnedFd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut events = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    match poll(&mut events, Timespec::try_from(patience).ok().as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => child.try_wait(),
        Err(errno) => Err(errno.into()),
    }
}
