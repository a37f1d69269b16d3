//! What a start is doing, second by second.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use hs_accelerate::Second;
use hs_linux::LinuxError;
use hs_linux::ends::{Ends, let_signals_through};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

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

/// A command that was started. Signals that would end this process are passed on to it.
#[derive(Debug)]
pub struct Started {
    child: Child,
    process: OwnedFd,
    ends: Ends,
    was_told: bool,
}

/// How a wait for a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The command has ended.
    Ended(ExitStatus),
    /// A signal came, which the command was sent.
    Told,
    /// The time is over.
    NothingYet,
}

impl Started {
    /// Starts it. `ends` was made before this process had other threads.
    ///
    /// # Errors
    /// [`LinuxError::OwnCommand`] when there is no such command, or it cannot be executed.
    pub fn new(words: &[OsString], ends: Ends) -> Result<Self, LinuxError> {
        let failed = |source| LinuxError::OwnCommand { command: words[0].clone(), source };
        let mut command = Command::new(&words[0]);
        let child = let_signals_through(command.args(&words[1..])).spawn().map_err(failed)?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let process = process.map_err(|errno| failed(errno.into()))?;
        Ok(Self { child, process, ends, was_told: false })
    }

    /// Waits for it, for at most `patience`. The second signal kills it.
    ///
    /// # Errors
    /// Those of waiting.
    pub fn wait(&mut self, patience: Option<Duration>) -> io::Result<Waited> {
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let mut events = [PollFd::new(&self.process, PollFlags::IN), PollFd::new(&self.ends, PollFlags::IN)];
        match poll(&mut events, patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if let Some(status) = self.child.try_wait()? {
            return Ok(Waited::Ended(status));
        }
        let Some(signal) = self.ends.take() else { return Ok(Waited::NothingYet) };
        let signal = if self.was_told { Signal::KILL } else { signal };
        self.was_told = true;
        // It may have ended just now.
        let _ = kill_process(Pid::from_child(&self.child), signal);
        Ok(Waited::Told)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Those of waiting.
    pub fn wait_for_end(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Waited::Ended(status) = self.wait(None)? {
                return Ok(status);
            }
        }
    }
}
