//! How many neighbours of a missed window to read with the same request.
//!
//! A request costs latency, and bytes cost transfer. Cold chunks of neighbouring windows lie one after
//! another in the file. So a neighbour that will be needed is almost free, and one that will not be needed
//! costs its transfer. The outcome of earlier neighbours decides: a starting program uses about every second
//! one, a random reader almost none (docs/decisions/004-neighbours.md).

use std::collections::VecDeque;

use hs_units::Nanos;

/// Neighbours farther from the missed window are not read with it.
pub(crate) const FARTHEST: u64 = 31;
/// The chance of a neighbour falls with its distance: it is learned for each of these distances and nearer
/// ones.
const REACHES: [u64; 4] = [2, 7, 15, FARTHEST];
/// The chances before anything was seen: a start reads two fifths of an image's windows at most. Far ones
/// begin to come when near ones are read.
const ASSUMED: [f64; 4] = [0.4, 0.4, 0.12, 0.12];
/// Neighbours no farther than this come on any medium where they are read this often.
const NEAR: u64 = 7;
const OFTEN: f64 = 0.3;
/// Where few are expected to be used.
const DOUBTFUL: f64 = 0.1;
/// A shorter latency cannot be told from what a busy machine adds to each request, and saves little.
const LEAST_LATENCY: Nanos = Nanos::from_millis(2);
/// A neighbour that was not used within this many misses counts as unused.
const PATIENCE: u64 = 48;
/// One in this many misses reads a neighbour although it does not pay: programs change.
const PROBE_EVERY: u64 = 16;
/// Weight of one outcome in the estimate of its own distance, and in those of farther ones.
const WEIGHT: f64 = 1.0 / 32.0;
const FARTHER_WEIGHT: f64 = WEIGHT / 4.0;

/// What a neighbour costs and saves.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourPrice {
    /// What a request of its own would cost besides its bytes.
    pub latency: Nanos,
    /// How long its bytes take.
    pub transfer: Nanos,
}

/// Learns whether neighbours pay.
#[derive(Debug)]
pub struct Neighbours {
    chances: [f64; REACHES.len()],
    misses: u64,
    /// Neighbours without an outcome yet.
    open: VecDeque<Brought>,
}

#[derive(Clone, Copy, Debug)]
struct Brought {
    window: u64,
    reach: usize,
    /// The miss that brought it.
    miss: u64,
}

impl Neighbours {
    /// Without any outcome: the first misses bring all that would pay in a usual start.
    #[must_use]
    pub const fn new() -> Self {
        Self { chances: ASSUMED, misses: 0, open: VecDeque::new() }
    }

    /// Where few are expected to be used: none come but the odd one, until these have paid.
    #[must_use]
    pub const fn doubtful() -> Self {
        Self { chances: [DOUBTFUL; REACHES.len()], misses: 0, open: VecDeque::new() }
    }

    /// Takes a miss.
    pub fn handle_miss(&mut self) {
        self.misses += 1;
        while let Some(brought) = self.open.front().copied()
            && brought.miss + PATIENCE < self.misses
        {
            self.open.pop_front();
            self.learn(brought.reach, 0.0);
        }
    }

    /// Whether the neighbour this far behind the missed window should come: when the latency that it saves if
    /// it is read is longer than the transfer that is in vain if it is not, each times its chance. The
    /// nearest also come where latency is short: bytes come while the program computes.
    #[must_use]
    pub fn pays(&self, distance: u64, price: Option<NeighbourPrice>) -> bool {
        let Some(reach) = reach(distance) else { return false };
        let chance = self.chances[reach];
        let saves = |price: NeighbourPrice| {
            price.latency >= LEAST_LATENCY
                && chance * price.latency.0 as f64 > (1.0 - chance) * price.transfer.0 as f64
        };
        (distance <= NEAR && chance > OFTEN) || price.is_some_and(saves)
    }

    /// Whether the nearest neighbour of this miss comes though it does not pay, to see whether it would.
    #[must_use]
    pub const fn probes(&self) -> bool {
        self.misses.is_multiple_of(PROBE_EVERY)
    }

    /// A neighbour comes from this far behind the missed window.
    pub fn handle_brought(&mut self, window: u64, distance: u64) {
        if let Some(reach) = reach(distance) {
            self.open.push_back(Brought { window, reach, miss: self.misses });
        }
    }

    /// A window was read, perhaps one that was brought as a neighbour.
    pub fn handle_used(&mut self, window: u64) {
        if let Some(at) = self.open.iter().position(|brought| brought.window == window)
            && let Some(brought) = self.open.remove(at)
        {
            self.learn(brought.reach, 1.0);
        }
    }

    /// What became of a neighbour, 1 or 0, says something of farther ones too.
    fn learn(&mut self, reach: usize, outcome: f64) {
        self.chances[reach] += (outcome - self.chances[reach]) * WEIGHT;
        for farther in &mut self.chances[reach + 1..] {
            *farther += (outcome - *farther) * FARTHER_WEIGHT;
        }
    }
}

fn reach(distance: u64) -> Option<usize> {
    REACHES.iter().position(|reach| distance <= *reach)
}

impl Default for Neighbours {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 ms a request, and 1.5 ms for a window.
    const DEAR: Option<NeighbourPrice> =
        Some(NeighbourPrice { latency: Nanos(10_000_000), transfer: Nanos(1_500_000) });
    /// 0.1 ms a request.
    const CHEAP: Option<NeighbourPrice> =
        Some(NeighbourPrice { latency: Nanos(100_000), transfer: Nanos(1_500_000) });

    /// How many windows come behind one that is missed.
    fn depth(neighbours: &Neighbours, price: Option<NeighbourPrice>) -> u64 {
        let pays =
            |distance: &u64| neighbours.pays(*distance, price) || (*distance == 1 && neighbours.probes());
        (1..=FARTHEST).take_while(pays).count() as u64
    }

    /// Misses at these windows; returns requests and windows read.
    fn replay(price: Option<NeighbourPrice>, windows: impl Iterator<Item = u64>) -> (u64, u64) {
        let mut neighbours = Neighbours::new();
        let mut known = std::collections::HashSet::new();
        let (mut requests, mut read) = (0, 0);
        for window in windows {
            neighbours.handle_used(window);
            if !known.insert(window) {
                continue;
            }
            requests += 1;
            read += 1;
            neighbours.handle_miss();
            for distance in 1..=depth(&neighbours, price) {
                if known.insert(window + distance) {
                    neighbours.handle_brought(window + distance, distance);
                    read += 1;
                }
            }
        }
        (requests, read)
    }

    #[test]
    fn neighbours_that_are_used_save_requests() {
        let clustered = || (0..1000).filter(|window| window % 5 != 4);
        for (price, most) in [(None, 160), (CHEAP, 160), (DEAR, 50)] {
            let (requests, read) = replay(price, clustered());
            assert!(requests < most && read < 1100, "{requests} requests, {read} windows");
        }
    }

    #[test]
    fn a_dear_request_brings_more_than_a_cheap_one() {
        let neighbours = Neighbours::new();
        let depths = [None, CHEAP, DEAR].map(|price| depth(&neighbours, price));
        assert_eq!(depths, [NEAR, NEAR, NEAR], "nothing was seen yet");
    }

    #[test]
    fn windows_of_any_length_count_by_their_transfer() {
        let neighbours = Neighbours::new();
        let slow = DEAR.map(|price| NeighbourPrice { transfer: Nanos(30_000_000), ..price });
        assert_eq!(depth(&neighbours, slow), NEAR);
    }

    #[test]
    fn where_they_are_never_read_one_in_many_misses_tries_one() {
        let mut neighbours = Neighbours::new();
        let mut depths = Vec::new();
        for miss in 0..1_000 {
            neighbours.handle_miss();
            let depth = depth(&neighbours, CHEAP);
            (1..=depth).for_each(|distance| {
                neighbours.handle_brought(miss * 64 + distance, distance);
            });
            depths.push(depth);
        }
        let probes = depths[500..].iter().filter(|depth| **depth == 1).count() as u64;
        assert!((500 / PROBE_EVERY..=500 / PROBE_EVERY + 1).contains(&probes), "{probes} of 500");
        assert!(depths[500..].iter().all(|depth| *depth <= 1), "{depths:?}");
    }

    #[test]
    fn where_they_are_doubtful_they_come_once_they_have_paid() {
        let mut neighbours = Neighbours::doubtful();
        let mut depths = Vec::new();
        for miss in 0..2_000 {
            neighbours.handle_miss();
            let depth = depth(&neighbours, CHEAP);
            for distance in 1..=depth {
                neighbours.handle_brought(miss * 64 + distance, distance);
                neighbours.handle_used(miss * 64 + distance);
            }
            depths.push(depth);
        }
        assert_eq!(depths[0], 0);
        assert!(depths[1_999] >= 2, "{}", depths[1_999]);
    }

    #[test]
    fn a_random_reader_soon_gets_only_what_it_asks_for() {
        let mut prng = hs_units::Prng::new(1);
        let windows: Vec<u64> = (0..1000).map(|_| prng.below(1_000_000) * 64).collect();
        let (requests, read) = replay(CHEAP, windows.into_iter());
        assert!(requests > 995 && read < requests + 700, "{requests} requests, {read} windows");
    }
}
