//! Taking down comes to an end.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use hs_serve::fuse::Abort;

/// How long taking down may wait for what is under way.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the rest may take when nothing waits for the disk any more.
const LAST_PATIENCE: Duration = Duration::from_millis(2_500);
/// The same when no signal is behind it: a busy machine may take long to end many processes.
const UNHURRIED_PATIENCE: Duration = Duration::from_secs(30);

/// From when it is made until it is dropped everything must be taken down; else it is ended by force.
pub(crate) struct Deadline {
    _done: Sender<()>,
}

impl Deadline {
    /// `aborts` end what readers wait for; `last` is done before the process ends by force.
    pub(crate) fn begin(aborts: Vec<Arc<Abort>>, last: impl FnOnce() + Send + 'static) -> Self {
        Self::within(LAST_PATIENCE, aborts, last)
    }

    /// The same for an end that no signal asked for: what waits is cut off as soon, the rest has time.
    pub(crate) fn unhurried(aborts: Vec<Arc<Abort>>) -> Self {
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
            log::debug!("still waiting for what was under way: it is cut off");
            aborts.iter().for_each(|abort| abort.now());
            if matches!(waits.recv_timeout(last_patience), Err(crossbeam_channel::RecvTimeoutError::Timeout))
            {
                log::error!("what was under way does not end: this process ends without it");
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
    pub(crate) fn lasts(self) {
        std::mem::forget(self);
    }
}
