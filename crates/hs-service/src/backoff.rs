//! After which pause the next server is started when one has died.

use std::time::Duration;

/// A server that dies again before it has lived this long waits before it is started.
pub(super) const STEADY: Duration = Duration::from_secs(5);
/// The first pause; each doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Servers that are killed from outside while they serve begin so far apart at least.
const APART: Duration = Duration::from_millis(250);

/// After so many crashes in a row the requests that were under way are suspected to cause them.
const CRASHES_OF_ONE_REQUEST: u32 = 3;

/// How a server died.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// Whether it had begun to serve.
    pub served: bool,
    /// How long it was there.
    pub lived: Duration,
    /// Whether another process, or the kernel for want of memory, has killed it.
    pub was_killed: bool,
}

/// Servers that died one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pause: Duration,
    /// That died young, in a row.
    deaths: u32,
    /// That ended before they served, of themselves, in a row.
    failures: u32,
    /// That died young by a fault of their own, in a row.
    crashes: u32,
}

impl Default for Backoff {
    /// None has died yet.
    fn default() -> Self {
        Self { pause: FIRST_PAUSE, deaths: 0, failures: 0, crashes: 0 }
    }
}

impl Backoff {
    /// Servers in a row that did not even begin to serve. One that was killed says nothing of the next.
    pub const fn failures(self) -> u32 {
        self.failures
    }

    /// Whether the next server answers the requests that were under way with an error: one of them may have
    /// crashed each server that took it.
    pub const fn suspects_requests(self) -> bool {
        self.crashes >= CRASHES_OF_ONE_REQUEST
    }

    /// Whether the server that [died](Self::died) did so by a fault of its own, not by a signal from outside.
    /// One that refused requests gives the next one another chance.
    pub fn crashed(&mut self, by_itself: bool) {
        self.crashes = match by_itself && self.deaths > 0 && !self.suspects_requests() {
            true => self.crashes + 1,
            false => 0,
        };
    }

    /// The next pause of those that double.
    pub fn longer(&mut self) -> Duration {
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.pause
    }

    /// One has died: the pause before the next, while readers wait. One that served is replaced at once where
    /// it was killed, however often, and where it is the first that died young: once is an accident.
    pub fn died(&mut self, death: Death) -> Duration {
        let Death { served, lived, was_killed } = death;
        self.failures = match (served, was_killed) {
            (true, _) => 0,
            (false, true) => self.failures,
            (false, false) => self.failures + 1,
        };
        if lived >= STEADY {
            (self.pause, self.deaths) = (FIRST_PAUSE, 0);
            return Duration::ZERO;
        }
        self.deaths += 1;
        if served && was_killed {
            self.pause = FIRST_PAUSE;
            return APART.saturating_sub(lived);
        }
        let pause = self.longer();
        if served && self.deaths == 1 { Duration::ZERO } else { pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YOUNG: Duration = Duration::from_millis(300);

    fn death(served: bool, lived: Duration, was_killed: bool) -> Death {
        Death { served, lived, was_killed }
    }

    #[test]
    fn a_server_that_serves_and_crashes_again_and_again_is_no_busy_loop() {
        let mut backoff = Backoff::default();
        let crash = death(true, YOUNG, false);
        assert_eq!(backoff.died(crash), Duration::ZERO, "once is an accident");
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.died(crash)).collect();
        assert!(pauses.iter().all(|pause| *pause >= FIRST_PAUSE), "{pauses:?}");
        assert!(pauses.is_sorted() && pauses.last() == Some(&LONGEST_PAUSE), "{pauses:?}");
        assert_eq!(backoff.failures(), 0);
        // One that has lived makes the next accident the first again.
        assert_eq!(backoff.died(death(true, STEADY, false)), Duration::ZERO);
        assert_eq!(backoff.died(crash), Duration::ZERO);
        assert!(backoff.died(crash) > Duration::ZERO);
    }

    #[test]
    fn a_server_that_is_killed_again_and_again_is_replaced_at_once_but_not_faster_than_it_starts() {
        let mut backoff = Backoff::default();
        for _ in 0..200 {
            assert_eq!(backoff.died(death(true, YOUNG, true)), Duration::ZERO);
            let soon = Duration::from_millis(1);
            assert_eq!(backoff.died(death(true, soon, true)), APART - soon);
            // Some are killed before they serve: these wait a little, and are no failures.
            assert_eq!(backoff.died(death(false, soon, true)), FIRST_PAUSE * 2);
            assert_eq!(backoff.failures(), 0);
        }
        let unserved: Vec<Duration> = (0..20).map(|_| backoff.died(death(false, YOUNG, true))).collect();
        assert_eq!((unserved.last(), backoff.failures()), (Some(&LONGEST_PAUSE), 0));
    }

    #[test]
    fn the_third_crash_in_a_row_makes_requests_suspicious() {
        let suspicions = |crashes: &[(bool, Duration)]| -> Vec<bool> {
            let mut backoff = Backoff::default();
            let died = |&(by_itself, lived): &(bool, Duration)| {
                backoff.died(death(true, lived, !by_itself));
                backoff.crashed(by_itself);
                backoff.suspects_requests()
            };
            crashes.iter().map(died).collect()
        };
        assert_eq!(suspicions(&[(true, YOUNG); 5]), [false, false, true, false, false]);
        assert_eq!(suspicions(&[(false, YOUNG); 4]), [false; 4], "killed from outside");
        assert_eq!(suspicions(&[(true, STEADY); 4]), [false; 4], "they lived");
        assert_eq!(suspicions(&[(true, YOUNG), (true, YOUNG), (false, YOUNG), (true, YOUNG)]), [false; 4]);
    }

    #[test]
    fn those_that_end_and_never_serve_are_counted() {
        let mut backoff = Backoff::default();
        for failures in 1..10 {
            assert!(backoff.died(death(false, YOUNG, false)) > Duration::ZERO);
            assert_eq!(backoff.failures(), failures);
        }
        backoff.died(death(false, YOUNG, true));
        assert_eq!(backoff.failures(), 9);
        backoff.died(death(true, YOUNG, false));
        assert_eq!(backoff.failures(), 0);
    }
}
