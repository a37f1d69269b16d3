//! Many times, in bounded memory.

use hs_units::Nanos;

/// Buckets for each doubling: a quantile is right to 1.6%.
const PER_DOUBLING: usize = 64;
const BUCKETS: usize = PER_DOUBLING * 60;

/// Counts of times, in buckets that grow with them (as in HdrHistogram, G. Tene).
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    most: Nanos,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum: 0, most: Nanos::ZERO }
    }
}

impl Histogram {
    /// One more.
    pub fn note(&mut self, time: Nanos) {
        self.counts[bucket(time.0)] += 1;
        self.count += 1;
        self.sum += u128::from(time.0);
        self.most = self.most.max(time);
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
        self.count += other.count;
        self.sum += other.sum;
        self.most = self.most.max(other.most);
    }

    /// How many.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    #[must_use]
    pub const fn most(&self) -> Nanos {
        self.most
    }

    /// The mean; zero of none.
    #[must_use]
    pub fn mean(&self) -> Nanos {
        Nanos((self.sum / u128::from(self.count.max(1))) as u64)
    }

    /// The time that the share `quantile` does not exceed, to 1.6%; zero of none.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Nanos {
        let rank = ((self.count as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (number, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Nanos(longest_of(number)).min(self.most);
            }
        }
        Nanos::ZERO
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < PER_DOUBLING as u64 {
        return nanos as usize;
    }
    let doubling = nanos.ilog2() as usize - PER_DOUBLING.ilog2() as usize;
    let within = (nanos >> doubling) as usize - PER_DOUBLING;
    (PER_DOUBLING * (doubling + 1) + within).min(BUCKETS - 1)
}

fn longest_of(bucket: usize) -> u64 {
    if bucket < PER_DOUBLING {
        return bucket as u64;
    }
    let (doubling, within) = (bucket / PER_DOUBLING - 1, bucket % PER_DOUBLING);
    ((PER_DOUBLING + within + 1) as u64).checked_shl(doubling as u32).map_or(u64::MAX, |end| end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hs_units::Prng;

    #[test]
    fn quantiles_are_right_to_two_per_cent() {
        let mut prng = Prng::new(3);
        let mut times: Vec<u64> = (0..10_000).map(|number| prng.below(2 << (number % 50))).collect();
        let mut histogram = Histogram::default();
        times.iter().for_each(|time| histogram.note(Nanos(*time)));
        times.sort_unstable();
        for quantile in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let exact = times[((times.len() as f64 * quantile).ceil() as usize).max(1) - 1];
            let found = histogram.quantile(quantile).0;
            assert!(
                found >= exact && found as f64 <= exact as f64 * 1.016 + 1.0,
                "{quantile}: {found} {exact}"
            );
        }
        assert_eq!(histogram.most(), Nanos(*times.last().unwrap()));
        assert_eq!(Histogram::default().quantile(0.5), Nanos::ZERO);
        assert!(bucket(u64::MAX) < BUCKETS);
    }
}
