//! Free memory in the heap, which goes back to the system while the disk is quiet.

use std::time::{Duration, Instant};

/// How long no read may have been answered.
const QUIET: Duration = Duration::from_secs(1);
/// By how much this process has grown since the heap was trimmed, at least. Trimming looks at all of the
/// heap.
const GROWN_BYTES: u64 = 2 << 20;

/// Finds the moments at which the heap is trimmed. What is freed by single chunks stays in the heap, in holes
/// and, up to 32 MiB, at its end ([`hs_linux::allocate_kindly`]): quick while much is read, and wasted when
/// nothing is.
#[derive(Debug)]
pub(crate) struct HeapTrim {
    looked: Instant,
    answered_reads: u64,
    least_bytes: u64,
}

impl HeapTrim {
    pub(crate) fn new(now: Instant) -> Self {
        Self { looked: now, answered_reads: 0, least_bytes: 0 }
    }

    /// Trims the heap if it is time. So many reads were answered until now.
    pub(crate) fn tick(&mut self, now: Instant, answered_reads: u64) {
        if !self.is_quiet(now, answered_reads) {
            return;
        }
        if let Some(own_bytes) = hs_linux::anonymous_bytes()
            && self.has_grown(own_bytes)
        {
            hs_linux::give_back();
            self.least_bytes = hs_linux::anonymous_bytes().unwrap_or(own_bytes);
        }
    }

    fn is_quiet(&mut self, now: Instant, answered_reads: u64) -> bool {
        if now.saturating_duration_since(self.looked) < QUIET {
            return false;
        }
        self.looked = now;
        std::mem::replace(&mut self.answered_reads, answered_reads) == answered_reads
    }

    /// Whether this process has so much more than when it was least.
    fn has_grown(&mut self, own_bytes: u64) -> bool {
        self.least_bytes = self.least_bytes.min(own_bytes);
        own_bytes - self.least_bytes >= GROWN_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_quiet_when_no_read_was_answered_for_a_second() {
        let began = Instant::now();
        let mut trim = HeapTrim::new(began);
        let at = |ms| began + Duration::from_millis(ms);
        assert!(!trim.is_quiet(at(100), 0), "too early to say");
        assert!(!trim.is_quiet(at(1000), 5));
        assert!(!trim.is_quiet(at(2000), 6));
        assert!(!trim.is_quiet(at(2900), 6));
        assert!(trim.is_quiet(at(3000), 6));
    }

    #[test]
    fn what_it_grew_by_is_counted_from_its_least() {
        const MIB: u64 = 1 << 20;
        let mut trim = HeapTrim::new(Instant::now());
        assert!(trim.has_grown(20 * MIB));
        trim.least_bytes = 10 * MIB;
        assert!(!trim.has_grown(11 * MIB));
        assert!(!trim.has_grown(8 * MIB));
        assert!(trim.has_grown(10 * MIB));
    }
}
