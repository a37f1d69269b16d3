//! How much may be gathered: what the medium writes in the time that a flush may take.

use hs_units::Nanos;

use crate::layout::SEGMENT_BYTES;
use crate::overlay::{Limits, Overlay};

/// A flush waits for the append that is under way and for its own, both of what was gathered at most.
const APPEND_TARGET: Nanos = Nanos::from_millis(250);
/// A shorter append says more of the medium's latency than of its rate.
const LEAST_MEASURED_BYTES: u64 = 128 << 10;
/// So much may be gathered on every medium.
const LEAST_GATHERED_BYTES: u64 = 256 << 10;
/// So much before the first append is measured.
const FIRST_GATHERED_BYTES: u64 = 1 << 20;

/// What may be gathered on a medium that is known by its appends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    most_bytes: u64,
    /// Bytes of segments that were prepared since the last append: its sync writes them as well.
    prepared_bytes: u64,
}

impl Pace {
    pub(crate) const fn new(limits: &Limits) -> Self {
        Self { most_bytes: limits.gathered_bytes, prepared_bytes: 0 }
    }

    /// Gathered bytes from which on writes have to wait.
    pub(crate) const fn gathered_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Whether a segment is written in the time that an append may take: a flush may wait for it.
    pub(crate) const fn may_prepare(&self) -> bool {
        self.most_bytes >= SEGMENT_BYTES
    }

    pub(crate) const fn prepared(&mut self) {
        self.prepared_bytes += SEGMENT_BYTES;
    }

    fn begin(&mut self) {
        self.most_bytes = self.most_bytes.min(FIRST_GATHERED_BYTES);
    }

    fn measured(&mut self, limits: &Limits, bytes: u64, took: Nanos) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes + std::mem::take(&mut self.prepared_bytes);
        if bytes < LEAST_MEASURED_BYTES || took == Nanos::ZERO {
            return;
        }
        let fits = u128::from(bytes) * u128::from(APPEND_TARGET.0) / u128::from(took.0);
        let most = limits.gathered_bytes;
        let fits = u64::try_from(fits).unwrap_or(u64::MAX).clamp(LEAST_GATHERED_BYTES.min(most), most);
        // One append that was held up by others is no other medium.
        self.most_bytes = self.most_bytes.midpoint(fits);
    }
}

impl Overlay {
    /// Ends of jobs will be told by [`Overlay::handle_done_in`]: little is gathered until one was.
    pub fn begin_paced(&mut self) {
        self.pace.begin();
    }

    /// As [`Overlay::handle_done`], where it is known how long the job took: on a slow medium less is
    /// gathered, so that a flush waits half a second at most, and not for as long as 16 MiB take there.
    pub fn handle_done_in(&mut self, took: Nanos) {
        let (bytes, is_append) = (self.appending_bytes(), self.is_appending());
        self.handle_done();
        if is_append {
            self.siblings.took(took);
        }
        self.pace.measured(&self.limits, bytes, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(appends: &[(u64, u64)]) -> u64 {
        let limits = Limits::default();
        let mut pace = Pace::new(&limits);
        for (bytes, millis) in appends {
            pace.measured(&limits, *bytes, Nanos::from_millis(*millis));
        }
        pace.gathered_bytes()
    }

    #[test]
    fn a_slow_medium_gathers_what_it_writes_in_time() {
        assert_eq!(after(&[]), 16 << 20);
        // 8 MiB a second.
        let slow = after(&[(1 << 20, 125); 20]);
        assert!((2 << 20..=(2 << 20) + 64).contains(&slow), "{slow}");
        assert!(after(&[(1 << 20, 125), (4096, 1), (64 << 10, 1)]) > 8 << 20);
    }

    #[test]
    fn segments_are_prepared_where_that_is_quick() {
        let limits = Limits::default();
        let mut pace = Pace::new(&limits);
        pace.begin();
        assert!(pace.may_prepare());
        pace.prepared();
        // A MiB and a block in 0.8 s.
        pace.measured(&limits, 4096, Nanos::from_millis(800));
        assert!(!pace.may_prepare(), "{pace:?}");
    }

    #[test]
    fn there_is_a_least_and_a_most() {
        assert!(after(&[(1 << 20, 60_000); 40]) <= (256 << 10) + 64);
        assert_eq!(after(&[(1 << 20, 1)]), 16 << 20);
        let limits = Limits::default();
        let mut pace = Pace::new(&limits);
        pace.begin();
        assert_eq!(pace.gathered_bytes(), 1 << 20);
        (0..6).for_each(|_| pace.measured(&limits, 1 << 20, Nanos::from_millis(2)));
        assert!(pace.gathered_bytes() > 15 << 20, "{}", pace.gathered_bytes());
        let recovered = after(&[(1 << 20, 60_000), (1 << 20, 1), (1 << 20, 1), (1 << 20, 1)]);
        assert!(recovered > 14 << 20, "{recovered}");
    }
}
