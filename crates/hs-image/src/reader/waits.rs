//! How long readers waited, each moment counted once however many of them waited in it.

use std::sync::Arc;
use std::time::Instant;

use hs_units::Nanos;
use parking_lot::Mutex;

/// The time in which at least one reader waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Readers that wait now.
    waiting: u64,
    /// Since when there has always been one.
    since: Option<Instant>,
    /// The time before that.
    over: Nanos,
}

/// One reader's wait, which ends with this value.
#[derive(Debug)]
pub(super) struct Wait(Arc<Mutex<State>>);

impl Waits {
    /// A reader begins to wait.
    pub(super) fn begin(&self) -> Wait {
        let mut state = self.0.lock();
        state.waiting += 1;
        state.since.get_or_insert_with(Instant::now);
        drop(state);
        Wait(Arc::clone(&self.0))
    }

    /// The time so far, with that of a wait that has not ended.
    pub(super) fn time(&self) -> Nanos {
        let state = self.0.lock();
        let now = state.since.map_or(Nanos(0), |since| since.elapsed().into());
        Nanos(state.over.0 + now.0)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting -= 1;
        if state.waiting == 0
            && let Some(since) = state.since.take()
        {
            state.over = Nanos(state.over.0 + Nanos::from(since.elapsed()).0);
        }
    }
}
