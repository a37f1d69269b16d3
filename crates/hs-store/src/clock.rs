//! The clock that layers wait on.

use std::thread;
use std::time::{Duration, Instant};

use hs_units::Nanos;

/// A clock that layers read and wait on. The real one is [`Monotonic`]; tests bring their own, so
/// that what a layer waits for can be asserted to the nanosecond.
pub trait Clock: Send + Sync {
    /// Time since the clock's start; never goes backwards.
    fn now(&self) -> Nanos;

    /// Returns when [`now`](Self::now) is `at` or later; at once if it already is.
    fn sleep_until(&self, at: Nanos);
}

/// The system's monotonic clock, from when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    origin: Instant,
}

impl Monotonic {
    /// Linux lets a timer of an ordinary thread fire up to 50 µs late, to serve several with one
    /// wake-up (timer slack, `PR_SET_TIMERSLACK` in prctl(2)). Asking for that much less lands
    /// about on time; what is left is spun away, at most this long for each wait.
    const SLACK: Duration = Duration::from_micros(50);

    /// A clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for Monotonic {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Nanos {
        self.origin.elapsed().into()
    }

    fn sleep_until(&self, at: Nanos) {
        loop {
            let left = Duration::from(at.saturating_sub(self.now()));
            if left.is_zero() {
                return;
            }
            // Returns at once where there is no more than the slack left.
            thread::sleep(left.saturating_sub(Self::SLACK));
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sleep_ends_early() {
        let clock = Monotonic::new();
        for micros in [0, 1, 49, 51, 300, 2_000] {
            let until = clock.now() + Nanos(micros * 1_000);
            clock.sleep_until(until);
            assert!(clock.now() >= until, "{micros} µs");
        }
        let before = clock.now();
        clock.sleep_until(Nanos::ZERO);
        assert!(clock.now() >= before);
    }
}
