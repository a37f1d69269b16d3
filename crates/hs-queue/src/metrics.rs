//! What a queue has done so far.

use hs_units::Nanos;

use super::clients::Clients;
use super::request::{Class, ClientKey};

/// What was done for one class since the queue was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassMetrics {
    /// Requests that were sent to the medium.
    pub requests: u64,
    /// Requests to the medium, each made of one or several of them.
    pub dispatches: u64,
    /// Bytes of the requests to the medium.
    pub bytes: u64,
    /// Requests to the medium that went before more urgent ones because the class had waited too long.
    pub aged: u64,
    /// Time that requests waited before they were sent, all together.
    pub waited: Nanos,
    /// The longest of these times.
    pub longest_wait: Nanos,
}

impl ClassMetrics {
    /// Requests that went along with another one.
    #[must_use]
    pub const fn merged(&self) -> u64 {
        self.requests - self.dispatches
    }
}

/// What a queue has done so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueueMetrics {
    /// For each class, the most urgent first.
    pub classes: [ClassMetrics; Class::COUNT],
    /// Clients that are remembered.
    pub clients: u32,
    /// Jain's index of the rates at which clients were served while they wanted something.
    pub jain_index: f64,
}

/// Jain's index of fairness: 1 when all get the same, 1/n when one of n gets everything (Jain, Chiu and Hawe,
/// DEC-TR-301, 1984). Without clients it is 1.
#[must_use]
pub fn jain_index(shares: impl IntoIterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares > 0.0 { sum * sum / (count * squares) } else { 1.0 }
}

/// Jain's index of the clients' rates up to now.
pub(super) fn jain_of(clients: &Clients, now: Nanos) -> f64 {
    let known = clients.iter().filter(|client| client.key != ClientKey::NONE);
    let rates = known.filter_map(|client| {
        let active = client.active(now);
        (active > Nanos::ZERO).then(|| client.bytes as f64 / active.as_secs_f64())
    });
    jain_index(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_equals_is_one_and_of_one_among_many_its_part() {
        assert_eq!(jain_index([3.0; 7]), 1.0);
        assert_eq!(jain_index([5.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain_index([]), 1.0);
    }
}
