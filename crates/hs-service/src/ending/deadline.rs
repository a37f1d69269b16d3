//! A time limit for taking everything down.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use hs_fuse::Abort;

/// How long requests that are under way may take at the end.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the rest may take when nothing waits for the disk any more.
const LAST_PATIENCE: Duration = Duration::from_millis(2_500);
/// The same when no signal asked for the end: a busy machine may take long to end many processes.
const UNHURRIED_PATIENCE: Duration = Duration::from_secs(30);

/// Between its creation and its drop everything must be taken down; otherwise the process ends by force.
pub struct Deadline {
    _done: Sender<()>,
}

impl Deadline {
    /// `aborts` fail the requests that readers wait for; `last` is called before the process ends by force.
    pub fn begin(aborts: Vec<Arc<Abort>>, last: impl FnOnce() + Send + 'static) -> Self {
        Self::within(LAST_PATIENCE, aborts, last)
    }

    /// The same for an end that no signal asked for: waiting requests fail as soon, and the rest has more
    /// time.
    pub fn unhurried(aborts: Vec<Arc<Abort>>) -> Self {
        Self::within(UNHURRIED_PATIENCE, aborts, || {})
    }

    fn within(
        last_patience: Duration,
        aborts: Vec<Arc<Abort>>,
        last: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (done, waits) = bounded(1);
        let watch = move || {
            if !matches!(waits.recv_timeout(PATIENCE), Err(crossbeam_channel::RecvTimeoutError::Timeout)) {
                return;
            }
            log::debug!("requests are still under way: they are cut off");
            aborts.iter().for_each(|abort| abort.now());
            if matches!(waits.recv_timeout(last_patience), Err(crossbeam_channel::RecvTimeoutError::Timeout))
            {
                log::error!("requests that are under way do not end: this process ends without them");
                last();
                // SAFETY: _exit has no preconditions; what destructors would wait for does not end.
                unsafe { libc::_exit(1) };
            }
        };
        if let Err(error) = std::thread::Builder::new().name("hs-deadline".to_owned()).spawn(watch) {
            log::warn!("nothing watches over the end: {error}");
        }
        Self { _done: done }
    }

    /// Until the process ends.
    pub fn lasts(self) {
        std::mem::forget(self);
    }
}
