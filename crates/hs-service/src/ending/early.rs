//! Signals that come before a server without a supervisor serves.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_fuse::Abort;
use hs_fuse::ServedImage;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::signals::Ends;

/// How long the process may take to take everything down.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it waits for a disk that is just being shown: between its mount and [`EndsEarly::serves`] it
/// cannot be taken down.
const SHOWING: Duration = Duration::from_secs(1);
/// How often it checks whether the disk is shown.
const LOOK: Duration = Duration::from_millis(10);

/// While this lives, a signal ends the process: reads that wait for the disk fail, and everything is taken
/// down.
pub struct EndsEarly {
    over: Option<OwnedFd>,
    abort: Arc<Mutex<Option<Arc<Abort>>>>,
}

impl EndsEarly {
    /// Watches `signals`, if there are any; calls `last` before the process ends.
    pub fn watch(signals: Option<&Ends>, last: impl FnOnce() + Send + 'static) -> anyhow::Result<Self> {
        let abort = Arc::<Mutex<Option<Arc<Abort>>>>::default();
        let Some(signals) = signals else { return Ok(Self { over: None, abort }) };
        let over = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (heard, end) = (signals.as_fd().try_clone_to_owned()?, over.try_clone()?);
        let served = Arc::clone(&abort);
        std::thread::Builder::new().name("hs-early".to_owned()).spawn(move || {
            let mut events = [PollFd::new(&heard, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
            while !matches!(poll(&mut events, None), Ok(1..)) {}
            if !events[1].revents().is_empty() {
                return;
            }
            // The mount in progress ends with an error, and the rest is taken down.
            let heard = Instant::now();
            let is_shown = loop {
                let abort = served.lock().take();
                if let Some(abort) = &abort {
                    abort.now();
                }
                if abort.is_some() || heard.elapsed() >= SHOWING {
                    break abort.is_some();
                }
                std::thread::sleep(LOOK);
            };
            if is_shown {
                std::thread::sleep(PATIENCE);
                // The connection has been ended, so `last` does not wait for it.
                last();
            }
            // SAFETY: _exit has no preconditions; the opening of an image may wait for a network for long.
            unsafe { libc::_exit(1) };
        })?;
        Ok(Self { over: Some(over), abort })
    }

    /// From now on the disk is mounted.
    pub fn serves(&self, served: &ServedImage) {
        *self.abort.lock() = served.session().abort();
    }

    /// From now on another object handles signals.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for EndsEarly {
    fn drop(&mut self) {
        if let Some(over) = &self.over {
            let _ = rustix::io::write(over, &1_u64.to_ne_bytes());
        }
    }
}
