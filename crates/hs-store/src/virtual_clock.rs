//! A clock for tests, which moves only when it is told to.

use hs_units::Nanos;
use parking_lot::Mutex;

use crate::Clock;

/// A clock that stands still, except that each sleep on it moves it. For one thread.
#[derive(Debug, Default)]
pub struct Virtual {
    now: Mutex<Nanos>,
}

impl Virtual {
    /// Moves the clock forward.
    pub fn advance(&self, span: Nanos) {
        *self.now.lock() += span;
    }
}

impl Clock for Virtual {
    fn now(&self) -> Nanos {
        *self.now.lock()
    }

    fn sleep_until(&self, at: Nanos) {
        let mut now = self.now.lock();
        *now = at.max(*now);
    }
}
