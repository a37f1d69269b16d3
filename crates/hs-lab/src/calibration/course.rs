//! The course of a probe: whether the device became slower while it was read.
//!
//! Clouds limit disks by *buckets of tokens*: each read takes tokens, which return at a steady rate and are
//! saved up to a limit. So a disk that has rested is fast until the bucket is empty, and then as fast as
//! tokens return (Amazon's gp2 volumes and Firecracker's rate limiter work like this). A probe that sees both
//! phases would measure a rate that is neither.

use hs_units::Nanos;

use super::{Measured, Probe};

/// Parts of a probe that are counted apart.
const PARTS: usize = 32;
/// A part of the probe is a phase when it has as many of these.
const LEAST_PARTS: usize = 6;
/// The fewest reads of a phase: with fewer its rate may be chance.
const LEAST_READS: u64 = 24;
/// The first phase is faster by at least this factor, and three quarters of its parts are faster than three
/// quarters of the rest by the other one.
const FALL: f64 = 1.5;
const APART: f64 = 1.25;

/// A device that was faster at first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Burst {
    /// Reads a second at first.
    pub burst_per_s: f64,
    /// Reads a second afterwards.
    pub sustained_per_s: f64,
    /// How long the first phase took, since the probe began.
    pub after: Nanos,
}

/// When the reads of a probe ended, counted in equal parts of its time.
#[derive(Clone, Debug)]
pub struct Course {
    time: Nanos,
    parts: [u64; PARTS],
    reads: u64,
    ended: Nanos,
}

impl Course {
    /// Nothing read yet, of a probe that takes `time`.
    #[must_use]
    pub const fn new(time: Nanos) -> Self {
        Self { time, parts: [0; PARTS], reads: 0, ended: Nanos::ZERO }
    }

    /// A read has ended, this long after the probe began.
    pub fn note(&mut self, ended: Nanos) {
        self.reads += 1;
        self.ended = self.ended.max(ended);
        // What ends after the time is no part of a whole phase.
        let part = u128::from(ended.0) * PARTS as u128 / u128::from(self.time.0.max(1));
        if let Some(part) = usize::try_from(part).ok().and_then(|part| self.parts.get_mut(part)) {
            *part += 1;
        }
    }

    /// The result of the probe: of a device that became slower, the part after that.
    #[must_use]
    pub fn measured(&self, probe: Probe) -> (Measured, Option<Burst>) {
        let Some((fall, burst)) = self.burst() else {
            return (Measured { probe, reads: self.reads, time: self.ended }, None);
        };
        let later: u64 = self.parts[fall..].iter().sum();
        let time = self.part_time().0 * (PARTS - fall) as u64;
        (Measured { probe, reads: later, time: Nanos(time) }, Some(burst))
    }

    fn part_time(&self) -> Nanos {
        Nanos(self.time.0 / PARTS as u64)
    }

    /// The part with which the slower phase begins, where there is one.
    fn burst(&self) -> Option<(usize, Burst)> {
        if self.ended < self.time {
            // The probe was over before its time, so its parts cannot be compared.
            return None;
        }
        let falls = (LEAST_PARTS..=PARTS - LEAST_PARTS).filter(|fall| self.falls_at(*fall));
        // Of several possible parts, the clearest one.
        let fall = falls.max_by(|one, other| self.fall(*one).total_cmp(&self.fall(*other)))?;
        let (before, after) = self.parts.split_at(fall);
        let rate = |parts: &[u64]| mean(parts) / self.part_time().as_secs_f64().max(1e-12);
        let after_s = Nanos(self.part_time().0 * fall as u64);
        Some((fall, Burst { burst_per_s: rate(before), sustained_per_s: rate(after), after: after_s }))
    }

    /// The ratio of the rate before a part to that of the rest.
    fn fall(&self, at: usize) -> f64 {
        let (before, after) = self.parts.split_at(at);
        mean(before) / mean(after).max(1e-9)
    }

    fn falls_at(&self, at: usize) -> bool {
        let (before, after) = self.parts.split_at(at);
        let enough = [before, after].iter().all(|parts| parts.iter().sum::<u64>() >= LEAST_READS);
        let sorted = |parts: &[u64]| {
            let mut sorted = parts.to_vec();
            sorted.sort_unstable();
            sorted
        };
        let slow_before = sorted(before)[before.len() / 4] as f64;
        let quick_after = sorted(after)[after.len() * 3 / 4] as f64;
        // A device that stalls for a while has no bucket: what comes after the fall goes on evenly.
        let slow_after = sorted(after)[after.len() / 4] as f64;
        let is_even = slow_after * 2.0 >= quick_after;
        enough && is_even && self.fall(at) >= FALL && slow_before >= APART * quick_after
    }
}

fn mean(parts: &[u64]) -> f64 {
    parts.iter().sum::<u64>() as f64 / parts.len().max(1) as f64
}
