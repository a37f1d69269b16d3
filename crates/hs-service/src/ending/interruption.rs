//! Signals for work in steps, one of which may take long.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::signals::Ends;

/// How long work that looks for signals may take to end after one.
const PATIENCE: Duration = Duration::from_secs(2);

/// While this lives, a signal ends the process: at once where the work does not look for signals yet; after a
/// moment where it does, and a step does not end.
pub struct Interruption {
    state: Arc<SignalState>,
    over: OwnedFd,
}

#[derive(Default)]
struct SignalState {
    has_come: AtomicBool,
    is_looked_for: AtomicBool,
}

impl Interruption {
    /// Watches for these signals; calls `last` before the process ends by force.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch(signals: Ends, last: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let noted = Arc::<SignalState>::default();
        let over = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (state, end) = (Arc::clone(&noted), over.try_clone()?);
        let watch = move || {
            let signal = loop {
                let mut events = [PollFd::new(&signals, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
                let _ = poll(&mut events, None);
                if !events[1].revents().is_empty() {
                    return;
                }
                if let Some(signal) = signals.take() {
                    break signal;
                }
            };
            state.has_come.store(true, Relaxed);
            let patience = if state.is_looked_for.load(Relaxed) { PATIENCE } else { Duration::ZERO };
            let patience = Timespec::try_from(patience).ok();
            if matches!(poll(&mut [PollFd::new(&end, PollFlags::IN)], patience.as_ref()), Ok(1..)) {
                return;
            }
            last();
            // As a shell says that a signal has ended a program.
            // SAFETY: _exit has no preconditions; what is under way may wait for a network for long.
            unsafe { libc::_exit(128 + signal.as_raw()) };
        };
        std::thread::Builder::new().name("hs-interrupt".to_owned()).spawn(watch)?;
        Ok(Self { state: noted, over })
    }

    /// Whether a signal has come. From now on the work looks for signals.
    pub fn has_come(&self) -> bool {
        self.state.is_looked_for.store(true, Relaxed);
        self.state.has_come.load(Relaxed)
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.over, &1_u64.to_ne_bytes());
    }
}
