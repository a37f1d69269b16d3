//! Figures of many samples.

use hs_units::Nanos;

/// Sorted samples of time.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Nanos>);

impl Latencies {
    /// The time that the share `quantile` of the samples does not exceed (nearest rank); zero without
    /// samples.
    ///
    /// # Panics
    /// When `quantile` is not between 0 and 1.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Nanos {
        assert!((0.0..=1.0).contains(&quantile), "{quantile} is no quantile");
        let rank = (self.0.len() as f64 * quantile).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// How many samples there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<Nanos> for Latencies {
    fn from_iter<I: IntoIterator<Item = Nanos>>(samples: I) -> Self {
        let mut samples: Vec<Nanos> = samples.into_iter().collect();
        samples.sort_unstable();
        Self(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let latencies: Latencies = (1..=100).rev().map(Nanos).collect();
        assert_eq!(latencies.quantile(0.5), Nanos(50));
        assert_eq!(latencies.quantile(0.99), Nanos(99));
        assert_eq!(latencies.quantile(1.0), Nanos(100));
        assert_eq!(latencies.quantile(0.0), Nanos(1));
        assert_eq!(Latencies::default().quantile(0.99), Nanos::ZERO);
    }
}
