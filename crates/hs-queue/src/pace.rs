//! How fast the medium serves the waiting requests.

use hs_units::Nanos;

/// Time from the end of one request to the end of the next while the medium is busy. Each new one counts an
/// eighth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    last: Nanos,
    request: Nanos,
}

impl Pace {
    /// An idle medium has work again.
    pub(super) const fn handle_busy(&mut self, now: Nanos) {
        self.last = now;
    }

    /// A request to the medium has ended that held this many of the queue's requests.
    pub(super) fn handle_ended(&mut self, now: Nanos, requests: u32) {
        let since = now.saturating_sub(self.last).0;
        // Nearly always it is one, and a division is as expensive as a heap of clients.
        let sample = if requests > 1 { since / u64::from(requests) } else { since };
        self.last = now;
        self.request = Nanos(self.request.0 - self.request.0 / 8 + sample / 8);
    }

    /// Time of one request.
    pub(super) const fn request(self) -> Nanos {
        self.request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_medium_is_learnt_and_its_pauses_do_not_count() {
        let mut pace = Pace::default();
        for round in 0..100 {
            let began = Nanos::from_millis(1000 * round);
            pace.handle_busy(began);
            pace.handle_ended(began + Nanos::from_millis(8), 1);
            pace.handle_ended(began + Nanos::from_millis(24), 2);
        }
        let millis = pace.request().as_secs_f64() * 1e3;
        assert!((7.9..8.1).contains(&millis), "{millis} ms");
    }
}
