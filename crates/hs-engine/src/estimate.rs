//! What the medium has shown of itself so far.

use hs_units::Nanos;

/// Latency, rate and seek time of a medium, estimated from the requests that it answered.
///
/// Each new observation counts a quarter, so that a change shows after a few requests and a single
/// outlier does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct MediumEstimate {
    latency_ns: Option<f64>,
    bytes_per_ns: Option<f64>,
    jump_ns: Option<f64>,
    gap_ns: Option<f64>,
}

/// Requests shorter than this say nothing certain about the rate.
const MIN_RATE_SAMPLE_BYTES: u64 = 64 * 1024;

impl MediumEstimate {
    /// Learns from a request that found the medium idle: when it was asked, when its first byte came.
    pub fn observe_latency(&mut self, asked: Nanos, first_byte: Nanos) {
        blend(&mut self.latency_ns, first_byte.saturating_sub(asked).0 as f64);
    }

    /// Learns from a request that went on where the one before ended, with nothing in between: what it cost besides its bytes.
    pub fn observe_gap(&mut self, gap: Nanos) {
        blend(&mut self.gap_ns, gap.0 as f64);
    }

    /// What a request costs besides its bytes when it goes on where the one before ended; `None` before the first such.
    #[must_use]
    pub fn gap(&self) -> Option<Nanos> {
        self.gap_ns.map(|gap| Nanos(gap as u64))
    }

    /// Learns from an answered request: when its first byte came, when its last.
    pub fn observe_rate(&mut self, first_byte: Nanos, done: Nanos, bytes: u64) {
        let transfer = done.saturating_sub(first_byte);
        if bytes >= MIN_RATE_SAMPLE_BYTES && transfer > Nanos::ZERO {
            blend(&mut self.bytes_per_ns, bytes as f64 / transfer.0 as f64);
        }
    }

    /// Learns from a request that went elsewhere, away from the stream: how long the medium worked on it beyond
    /// the transfer of its `bytes`.
    pub fn observe_jump(&mut self, worked: Nanos, bytes: u64) {
        let Some(transfer) = self.transfer(bytes) else { return };
        let sample = worked.saturating_sub(transfer).0 as f64;
        // Those that fetch out of turn often fetch neighbours, which cost no seek: one that was long says more.
        let jump = self.jump_ns.map_or(sample, |old| {
            let share = if sample > old { 0.5 } else { 1.0 / 16.0 };
            old + (sample - old) * share
        });
        self.jump_ns = Some(jump);
    }

    /// Time from asking for something elsewhere to its first byte: a seek, where the medium seeks; `None` before the
    /// first observation.
    #[must_use]
    pub fn jump(&self) -> Option<Nanos> {
        self.jump_ns.map(|jump| Nanos(jump as u64))
    }

    /// Time from asking to the first byte; zero before the first observation.
    #[must_use]
    pub fn latency(&self) -> Nanos {
        Nanos(self.latency_ns.unwrap_or(0.0) as u64)
    }

    /// Time to transfer `bytes`; `None` before the rate is known.
    #[must_use]
    pub fn transfer(&self, bytes: u64) -> Option<Nanos> {
        self.bytes_per_ns.map(|rate| Nanos((bytes as f64 / rate) as u64))
    }

    /// Bytes transferred in `span`; `None` before the rate is known.
    #[must_use]
    pub fn bytes_in(&self, span: Nanos) -> Option<u64> {
        self.bytes_per_ns.map(|rate| (span.0 as f64 * rate) as u64)
    }
}

fn blend(estimate: &mut Option<f64>, sample: f64) {
    *estimate = Some(estimate.map_or(sample, |old| old * 0.75 + sample * 0.25));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_medium_is_learnt_exactly() {
        let mut estimate = MediumEstimate::default();
        assert_eq!(estimate.transfer(1), None);
        for _ in 0..3 {
            estimate.observe_latency(Nanos(0), Nanos::from_millis(10));
            estimate.observe_rate(Nanos::from_millis(10), Nanos::from_millis(50), 1_000_000);
        }
        assert_eq!(estimate.latency(), Nanos::from_millis(10));
        assert_eq!(estimate.transfer(25_000_000), Some(Nanos::from_millis(1000)));
        assert_eq!(estimate.jump(), None);
        estimate.observe_jump(Nanos::from_millis(94), 100_000);
        assert_eq!(estimate.jump(), Some(Nanos::from_millis(90)));
    }
}
