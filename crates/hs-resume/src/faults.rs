//! How long the guest's faults waited, as the server saw them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_disk::{DemandEvent, FetchEvent, Watch};
use hs_start::summary::{FaultWaits, seconds};
use hs_units::Nanos;
use parking_lot::Mutex;

/// So long after the guest went on faults are counted.
const COUNTED: Duration = Duration::from_secs(10);
/// So many of the longest waits are told one by one.
const LONGEST: usize = 100;

/// Sees the reads of a guest's memory, and passes them on.
pub(crate) struct Faults {
    next: Option<Arc<dyn Watch>>,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    until: Option<Instant>,
    waits: Vec<Nanos>,
}

impl Faults {
    /// Passes what it sees on to `next`.
    pub(crate) fn before(next: Option<Arc<dyn Watch>>) -> Arc<Self> {
        Arc::new(Self { next, counted: Mutex::default() })
    }

    /// The guest goes on now.
    pub(crate) fn begin(&self) {
        self.counted.lock().until = Some(Instant::now() + COUNTED);
    }

    /// What was seen until now.
    pub(crate) fn waits(&self) -> FaultWaits {
        let mut waits = self.counted.lock().waits.clone();
        waits.sort_unstable();
        let at = |percent: usize| {
            let place = (waits.len() * percent).div_ceil(100).max(1) - 1;
            waits.get(place).map_or(0.0, |&wait| seconds(wait))
        };
        let longest_s = waits.iter().rev().take(LONGEST).map(|&wait| seconds(wait)).collect();
        FaultWaits { requests: waits.len() as u64, median_s: at(50), p99_s: at(99), longest_s }
    }
}

impl Watch for Faults {
    fn demand(&self, event: &DemandEvent) {
        {
            let mut counted = self.counted.lock();
            if counted.until.is_some_and(|until| Instant::now() < until) {
                counted.waits.push(event.cost);
            }
        }
        if let Some(next) = &self.next {
            next.demand(event);
        }
    }

    fn fetched(&self, event: FetchEvent) {
        if let Some(next) = &self.next {
            next.fetched(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use hs_units::ByteRange;

    use super::*;

    #[test]
    fn faults_count_from_the_moment_the_guest_goes_on() {
        let faults = Faults::before(None);
        let waited = |millis: u64| {
            let cost = Nanos::from_secs_f64(millis as f64 / 1000.0);
            let range = ByteRange::new(0, 4096);
            let (at, late_bytes) = (Nanos::from_secs_f64(0.0), 0);
            faults.demand(&DemandEvent { at, range, cost, waited: true, late_bytes, expected: false });
        };
        waited(900);
        assert_eq!(faults.waits().requests, 0);
        faults.begin();
        (1..=200).for_each(waited);
        let FaultWaits { requests, median_s, p99_s, longest_s } = faults.waits();
        assert_eq!((requests, median_s, p99_s), (200, 0.1, 0.198));
        assert_eq!((longest_s.len(), longest_s[0], longest_s[99]), (LONGEST, 0.2, 0.101));
    }
}
