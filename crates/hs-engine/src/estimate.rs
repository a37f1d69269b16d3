//! What was measured of the medium so far.

use hs_units::Nanos;

/// Latency, rate and seek time of a medium, estimated from the requests that it answered.
///
/// Each new observation counts a quarter, so that a change shows after a few requests and a single
/// outlier does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct MediumEstimate {
    latency: Option<Opening>,
    in_place_ns: Option<f64>,
    bytes_per_ns: Option<f64>,
    jump_ns: Option<f64>,
    gap: Option<Opening>,
}

/// How long requests take until their first piece is there, and how large that is.
#[derive(Clone, Copy, Debug)]
struct Opening {
    ns: f64,
    bytes: f64,
}

/// Requests shorter than this say nothing certain about the rate.
const MIN_RATE_SAMPLE_BYTES: u64 = 64 * 1024;

impl MediumEstimate {
    /// Learns from a request that found the medium idle: when it was asked, when its first byte came, and how
    /// many bytes with it.
    pub fn observe_latency(&mut self, asked: Nanos, first_byte: Nanos, bytes: u64) {
        blend_opening(&mut self.latency, first_byte.saturating_sub(asked), bytes);
    }

    /// Learns from a request that found the medium idle and that no other request had led elsewhere since the
    /// last one: when it was made, and when its first piece came.
    pub fn observe_latency_in_place(&mut self, asked: Nanos, first_piece: Nanos) {
        blend(&mut self.in_place_ns, first_piece.saturating_sub(asked).0 as f64);
    }

    /// Learns from a request that continued where the one before ended, with nothing in between: how long
    /// after that its first byte came, and how many bytes with it.
    pub fn observe_gap(&mut self, gap: Nanos, bytes: u64) {
        blend_opening(&mut self.gap, gap, bytes);
    }

    /// What a request costs besides its bytes when it continues where the one before ended; `None` before the
    /// first such request.
    #[must_use]
    pub fn gap(&self) -> Option<Nanos> {
        self.gap.map(|gap| self.without_bytes(gap))
    }

    /// The time until the first piece, without the time for its bytes: on a slow disc a piece of 64 KiB takes
    /// longer than everything else.
    fn without_bytes(&self, opening: Opening) -> Nanos {
        let transfer = self.bytes_per_ns.map_or(0.0, |rate| opening.bytes / rate);
        Nanos((opening.ns - transfer).max(0.0) as u64)
    }

    /// Learns from an answered request: when its first byte came, when its last, and how many bytes after the
    /// former.
    pub fn observe_rate(&mut self, first_byte: Nanos, done: Nanos, bytes: u64) {
        let transfer = done.saturating_sub(first_byte);
        if bytes >= MIN_RATE_SAMPLE_BYTES && transfer > Nanos::ZERO {
            blend(&mut self.bytes_per_ns, bytes as f64 / transfer.0 as f64);
        }
    }

    /// Learns from a request away from the stream: how long the medium worked on it beyond the transfer of
    /// its `bytes`.
    pub fn observe_jump(&mut self, worked: Nanos, bytes: u64) {
        let Some(transfer) = self.transfer(bytes) else { return };
        let sample = worked.saturating_sub(transfer).0 as f64;
        // Requests out of turn often fetch neighbours, which cost no seek. A long one says more about a seek.
        let jump = self.jump_ns.map_or(sample, |old| {
            let share = if sample > old { 0.5 } else { 1.0 / 16.0 };
            old + (sample - old) * share
        });
        self.jump_ns = Some(jump);
    }

    /// Time from a request elsewhere to its first byte, which is a seek where the medium seeks; `None` before
    /// the first observation.
    #[must_use]
    pub fn jump(&self) -> Option<Nanos> {
        self.jump_ns.map(|jump| Nanos(jump as u64))
    }

    /// Time from asking to the first byte; zero before the first observation. As long as the rate is not
    /// known, to the first piece.
    #[must_use]
    pub fn latency(&self) -> Nanos {
        self.latency.map(|latency| self.without_bytes(latency)).unwrap_or_default()
    }

    /// Time from asking to the first piece; zero before the first observation.
    #[must_use]
    pub fn latency_with_piece(&self) -> Nanos {
        Nanos(self.latency.map_or(0.0, |latency| latency.ns) as u64)
    }

    /// Time from the request to the first piece where no other request had led the medium elsewhere before,
    /// so that it contains no seek; zero before the first observation.
    #[must_use]
    pub fn latency_in_place(&self) -> Nanos {
        Nanos(self.in_place_ns.unwrap_or(0.0) as u64)
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

fn blend_opening(estimate: &mut Option<Opening>, time: Nanos, bytes: u64) {
    *estimate = Some(Opening {
        ns: blended(estimate.map(|opening| opening.ns), time.0 as f64),
        bytes: blended(estimate.map(|opening| opening.bytes), bytes as f64),
    });
}

fn blend(estimate: &mut Option<f64>, sample: f64) {
    *estimate = Some(blended(*estimate, sample));
}

fn blended(estimate: Option<f64>, sample: f64) -> f64 {
    estimate.map_or(sample, |old| old * 0.75 + sample * 0.25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_medium_is_learnt_exactly() {
        let mut estimate = MediumEstimate::default();
        assert_eq!(estimate.transfer(1), None);
        for _ in 0..3 {
            estimate.observe_latency(Nanos(0), Nanos::from_millis(10), 0);
            estimate.observe_rate(Nanos::from_millis(10), Nanos::from_millis(50), 1_000_000);
        }
        assert_eq!(estimate.latency(), Nanos::from_millis(10));
        assert_eq!(estimate.transfer(25_000_000), Some(Nanos::from_millis(1000)));
        assert_eq!(estimate.jump(), None);
        estimate.observe_jump(Nanos::from_millis(94), 100_000);
        assert_eq!(estimate.jump(), Some(Nanos::from_millis(90)));
    }

    #[test]
    fn what_the_first_piece_takes_to_come_is_no_price_of_a_request() {
        let millis = Nanos::from_millis;
        // 64 KB a piece at 4 MB/s are 16 ms; a request from rest costs 12 ms, and one that goes on 1 ms.
        let mut estimate = MediumEstimate::default();
        estimate.observe_latency(millis(0), millis(12 + 16), 64_000);
        assert_eq!(estimate.latency(), millis(12 + 16), "nothing else is known");
        estimate.observe_rate(millis(28), millis(128), 400_000);
        (0..5).for_each(|_| estimate.observe_gap(millis(1 + 16), 64_000));
        assert_eq!((estimate.latency(), estimate.gap()), (millis(12), Some(millis(1))));
        // A piece that had come before it was asked for.
        (0..20).for_each(|_| estimate.observe_gap(Nanos::ZERO, 64_000));
        assert_eq!(estimate.gap(), Some(Nanos::ZERO));
    }
}
