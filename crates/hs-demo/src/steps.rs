//! How long the steps of a story took.

use std::collections::BTreeMap;
use std::time::Instant;

/// The steps so far.
pub(super) struct Steps {
    seconds: BTreeMap<&'static str, f64>,
    ended: Instant,
}

impl Steps {
    /// The first step begins.
    pub(super) fn begin() -> Self {
        Self { seconds: BTreeMap::new(), ended: Instant::now() }
    }

    /// The step `name`, which began when the last one ended, has ended; gives the seconds that it took.
    pub(super) fn end(&mut self, name: &'static str) -> f64 {
        let now = Instant::now();
        let seconds = (now - self.ended).as_secs_f64();
        self.seconds.insert(name, seconds);
        self.ended = now;
        seconds
    }

    /// Seconds of each, by name.
    pub(super) fn into_seconds(self) -> BTreeMap<&'static str, f64> {
        self.seconds
    }
}
