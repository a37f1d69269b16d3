//! How many neighbours of a missed window to read with the same request.
//!
//! A request costs latency, and bytes cost transfer. Cold chunks of neighbouring windows lie one after
//! another in the file. So a neighbour that will be needed is almost free, and one that will not be needed
//! costs its transfer. The outcome of earlier neighbours decides: a starting program uses about every second
//! one, a random reader almost none (docs/decisions/004-neighbours.md).

use std::collections::VecDeque;

/// Windows read beyond the missed one, at most. Seven and itself, about 270 KB stored, take as long
/// to transfer at 25 MB/s as one latency of 10 ms.
const MAX_DEPTH: u64 = 7;
/// A neighbour that was not used within this many misses counts as unused.
const PATIENCE: u64 = 48;
/// One in this many misses reads neighbours although they have not paid: programs change.
const PROBE_EVERY: u64 = 16;
/// Weight of one outcome in the estimate.
const WEIGHT: f64 = 1.0 / 32.0;

/// Learns whether neighbours pay.
#[derive(Debug)]
pub struct Neighbours {
    used_share: f64,
    misses: u64,
    /// Neighbours without an outcome yet, with the miss that brought them.
    open: VecDeque<(u64, u64)>,
}

impl Neighbours {
    /// Without any outcome: the first misses bring all.
    #[must_use]
    pub const fn new() -> Self {
        Self { used_share: 0.4, misses: 0, open: VecDeque::new() }
    }

    /// Where few are expected to be used: none come but the odd one, until these have paid.
    #[must_use]
    pub const fn doubtful() -> Self {
        Self { used_share: 0.1, misses: 0, open: VecDeque::new() }
    }

    /// Takes a miss; returns how many of the windows after it to read as well.
    pub fn miss(&mut self) -> u64 {
        self.misses += 1;
        while let Some((_, born)) = self.open.front()
            && born + PATIENCE < self.misses
        {
            self.open.pop_front();
            self.used_share -= self.used_share * WEIGHT;
        }
        match self.used_share {
            share if share > 0.3 => MAX_DEPTH,
            share if share > 0.2 => 3,
            share if share > 0.12 => 1,
            _ if self.misses.is_multiple_of(PROBE_EVERY) => 1,
            _ => 0,
        }
    }

    /// A neighbour was read.
    pub fn brought(&mut self, window: u64) {
        self.open.push_back((window, self.misses));
    }

    /// A window was read, perhaps one that was brought as a neighbour.
    pub fn used(&mut self, window: u64) {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == window) {
            self.open.remove(at);
            self.used_share += (1.0 - self.used_share) * WEIGHT;
        }
    }
}

impl Default for Neighbours {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Misses at these windows; returns requests and windows read.
    fn replay(windows: impl Iterator<Item = u64>) -> (u64, u64) {
        let mut neighbours = Neighbours::new();
        let mut known = std::collections::HashSet::new();
        let (mut requests, mut read) = (0, 0);
        for window in windows {
            neighbours.used(window);
            if !known.insert(window) {
                continue;
            }
            requests += 1;
            read += 1;
            for neighbour in window + 1..=window + neighbours.miss() {
                if known.insert(neighbour) {
                    neighbours.brought(neighbour);
                    read += 1;
                }
            }
        }
        (requests, read)
    }

    #[test]
    fn neighbours_that_are_used_save_requests() {
        let clustered = (0..1000).filter(|window| window % 5 != 4);
        let (requests, read) = replay(clustered);
        assert!(requests < 160 && read < 1100, "{requests} requests, {read} windows");
    }

    #[test]
    fn the_less_neighbours_pay_the_fewer_come() {
        let mut neighbours = Neighbours::new();
        let mut depths: Vec<u64> = Vec::new();
        for miss in 0..1_000 {
            depths.push(neighbours.miss());
            (1..=depths[miss as usize]).for_each(|neighbour| neighbours.brought(miss * 16 + neighbour));
        }
        let probes = depths[500..].iter().filter(|depth| **depth == 1).count() as u64;
        assert!((500 / PROBE_EVERY..=500 / PROBE_EVERY + 1).contains(&probes), "{probes} of 500");
        depths.dedup();
        assert_eq!(depths[..5], [7, 3, 1, 0, 1]);
    }

    #[test]
    fn where_they_are_doubtful_they_come_once_they_have_paid() {
        let mut neighbours = Neighbours::doubtful();
        let depths = |neighbours: &mut Neighbours| {
            let miss = |miss: u64| {
                let depth = neighbours.miss();
                (1..=depth).for_each(|neighbour| {
                    neighbours.brought(miss * 16 + neighbour);
                    neighbours.used(miss * 16 + neighbour);
                });
                depth
            };
            (0..1_000).map(miss).collect::<Vec<u64>>()
        };
        let depths = depths(&mut neighbours);
        assert_eq!((depths[0], depths[999]), (0, MAX_DEPTH));
    }

    #[test]
    fn a_random_reader_soon_gets_only_what_it_asks_for() {
        let mut prng = hs_units::Prng::new(1);
        let windows: Vec<u64> = (0..1000).map(|_| prng.below(1_000_000) * 16).collect();
        let (requests, read) = replay(windows.into_iter());
        assert!(requests > 995 && read < requests + 700, "{requests} requests, {read} windows");
    }
}
