//! Whether order of position is quicker than order of arrival, by trying.
//!
//! Of a medium on which nothing turns it is not known what a step to another address costs. Flash with a
//! small controller reads its map for some steps and not for others; a network does not know of addresses.
//! Order of position has a price: a request waits for up to a whole sweep, twice as long as in order of
//! arrival. So it must gain something. While requests wait, both orders alternate, and order of position is
//! kept if it saved enough, and more than by chance. Machines are busy with other things for a moment: of the
//! rounds, the quarter that saved most and the quarter that saved least do not count.

use hs_units::Nanos;

/// Requests of a phase that are timed.
const PHASE: u32 = 32;
/// Requests before these: as many as the phase before may have left at a medium that overlaps them.
const LEAD: u32 = 16;
/// Rounds of two phases each, in one order and in the other: so few that show how much they differ among
/// themselves, and the most.
const LEAST_ROUNDS: usize = 6;
const MOST_ROUNDS: usize = 16;
/// Order of position has to save this share of the time.
const LEAST_SAVED: f64 = 0.015;
/// What a round saves has to be so many standard errors of that.
const SURE: f64 = 6.0;
/// Requests that wait, at least, while it is tried: with fewer, both orders are nearly the same.
const LEAST_WAITING: u32 = 4;
/// Requests until it is tried again, since there may be other readers by then: so many that those of a phase
/// that gained nothing are not among the slowest in a hundred.
const REST: u32 = 32_768;

#[derive(Debug, Default)]
pub(super) struct Trial {
    /// Whether order of position was quicker.
    is_quicker: bool,
    /// Requests until the next trial.
    rest: u32,
    phase: Option<Phase>,
    /// What the phase in order of arrival took, while the other one of its round goes on.
    by_arrival: Option<Nanos>,
    /// The share of the time that order of position saved, of each round.
    saved: [f64; MOST_ROUNDS],
    rounds: usize,
}

#[derive(Clone, Copy, Debug)]
struct Phase {
    /// When the first timed request was chosen.
    began: Nanos,
    left: u32,
}

impl Phase {
    const fn new(now: Nanos) -> Self {
        Self { began: now, left: LEAD + PHASE }
    }
}

impl Trial {
    /// A request is chosen from `waiting` ones: whether it is in order of position.
    pub(super) fn choose(&mut self, now: Nanos, waiting: u32) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return self.is_quicker;
        }
        if waiting < LEAST_WAITING {
            // What the medium does now says nothing.
            (self.phase, self.by_arrival) = (None, None);
            return self.is_quicker;
        }
        let phase = self.phase.get_or_insert(Phase::new(now));
        if phase.left == 0 {
            let took = now.saturating_sub(phase.began);
            *phase = Phase::new(now);
            match self.by_arrival.take() {
                None => self.by_arrival = Some(took),
                Some(by_arrival) => self.end_round(by_arrival, took),
            }
        }
        if self.rest > 0 {
            return self.is_quicker;
        }
        let phase = self.phase.get_or_insert(Phase::new(now));
        if phase.left == PHASE {
            phase.began = now;
        }
        phase.left -= 1;
        self.by_arrival.is_some()
    }

    fn end_round(&mut self, by_arrival: Nanos, by_position: Nanos) {
        self.saved[self.rounds] = 1.0 - by_position.0 as f64 / by_arrival.0.max(1) as f64;
        self.rounds += 1;
        if self.rounds < LEAST_ROUNDS {
            return;
        }
        let mut saved = self.saved;
        let saved = &mut saved[..self.rounds];
        saved.sort_unstable_by(f64::total_cmp);
        let (mean, error) = mean_and_error(&saved[self.rounds / 4..self.rounds - self.rounds / 4]);
        let is_sure = mean > SURE * error;
        if is_sure || mean <= 0.0 || self.rounds == MOST_ROUNDS {
            *self = Self { is_quicker: is_sure && mean >= LEAST_SAVED, rest: REST, ..Self::default() };
        }
    }
}

/// The mean of several samples, and its standard error.
fn mean_and_error(samples: &[f64]) -> (f64, f64) {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|sample| (sample - mean) * (sample - mean)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use hs_units::Prng;

    use super::*;

    /// Requests in order of position among so many, where each takes so long by position and by arrival.
    fn by_position(requests: u32, waiting: u32, by_position: u64, by_arrival: u64) -> u32 {
        let (mut trial, mut now, mut count) = (Trial::default(), Nanos::ZERO, 0);
        for _ in 0..requests {
            let sweeps = trial.choose(now, waiting);
            now += Nanos(if sweeps { by_position } else { by_arrival });
            count += u32::from(sweeps);
        }
        count
    }

    /// Requests of a phase.
    const EACH: u32 = LEAD + PHASE;

    #[test]
    fn the_quicker_order_is_kept() {
        // Rounds in which both alternate, then the quicker one until the next trial.
        assert_eq!(by_position(2 * EACH * LEAST_ROUNDS as u32, 16, 98, 100), EACH * LEAST_ROUNDS as u32);
        assert_eq!(
            by_position(2 * EACH * LEAST_ROUNDS as u32 + REST, 16, 98, 100),
            EACH * LEAST_ROUNDS as u32 + REST
        );
        // As many rounds, when it gains too little.
        assert_eq!(
            by_position(2 * EACH * LEAST_ROUNDS as u32 + REST, 16, 995, 1_000),
            EACH * LEAST_ROUNDS as u32
        );
        assert_eq!(
            by_position(2 * (2 * EACH * LEAST_ROUNDS as u32 + REST), 16, 100, 100),
            2 * EACH * LEAST_ROUNDS as u32
        );
    }

    #[test]
    fn where_few_requests_wait_nothing_is_tried() {
        assert_eq!(by_position(10_000, LEAST_WAITING - 1, 50, 100), 0);
    }

    #[test]
    fn a_medium_that_changes_is_noticed() {
        let (mut trial, mut now) = (Trial::default(), Nanos::ZERO);
        let mut choose = |gain: u64| {
            let sweeps = trial.choose(now, 16);
            now += Nanos(if sweeps { 100 - gain } else { 100 });
            sweeps
        };
        let learnt = (0..=2 * EACH * LEAST_ROUNDS as u32).map(|_| choose(5)).last();
        assert_eq!(learnt, Some(true));
        let forgotten = (0..=REST + 2 * EACH * LEAST_ROUNDS as u32).map(|_| choose(0)).last();
        assert_eq!(forgotten, Some(false));
    }

    /// How many of a thousand trials find order of position quicker, where it saves so many parts in a
    /// thousand, and a request takes up to half as long or longer by chance, or fifty times as long now and
    /// then, when the machine does something else.
    fn found(saves: u64, hiccups: bool) -> usize {
        let mut prng = Prng::new(1);
        (0..1_000)
            .filter(|_| {
                let (mut trial, mut now) = (Trial::default(), Nanos::ZERO);
                while trial.rest == 0 {
                    let takes = if trial.choose(now, 16) { 1_000 - saves } else { 1_000 };
                    let hiccup = if hiccups && prng.below(300) == 0 { 50_000 } else { 0 };
                    now += Nanos(takes / 2 + prng.below(takes) + hiccup);
                }
                trial.is_quicker
            })
            .count()
    }

    #[test]
    fn a_gain_is_found_among_chances_and_seldom_where_there_is_none() {
        for (saves, hiccups, at_least, at_most) in
            [(0, false, 0, 60), (0, true, 0, 60), (200, false, 990, 1_000), (200, true, 850, 1_000)]
        {
            let found = found(saves, hiccups);
            assert!((at_least..=at_most).contains(&found), "{saves} {hiccups}: {found}");
        }
    }
}
