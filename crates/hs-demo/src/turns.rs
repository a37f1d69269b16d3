//! The timed contenders take turns, so that other load of the machine affects all of them alike.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use hs_start::summary::Summary;

/// How many turns the contenders have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    /// At most so often.
    pub(super) most: usize,
    /// After the first, no round begins that would end later than this, if all contenders take as long as the
    /// last time.
    pub(super) until: Option<Instant>,
}

/// A contender that takes turns, and its runs so far.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Its name in files and JSON.
    pub(super) key: &'static str,
    /// Its name for people.
    pub(super) label: &'static str,
    /// A contender that has used so many seconds for each repeat is not run again. Slow runs hardly vary,
    /// since they wait for the emulated medium most of the time.
    pub(super) patience_s: f64,
    /// One summary a run.
    pub(super) runs: Vec<Summary>,
    spent_s: f64,
    last_s: f64,
}

impl Tally {
    /// A tally without runs.
    pub(super) fn new(key: &'static str, label: &'static str, patience_s: f64) -> Self {
        Self { key, label, patience_s, runs: Vec::new(), spent_s: 0.0, last_s: 0.0 }
    }

    /// Start → ready of every run, in seconds.
    pub(super) fn all_ready_s(&self) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.ready_s).collect()
    }

    /// Whether another turn is due, when there are at most so many.
    fn has_patience(&self, most: usize) -> bool {
        self.spent_s < self.patience_s * most as f64
    }

    /// The run with the median time; of an even number the quicker of the two in the middle.
    pub(super) fn median(&self) -> Option<&Summary> {
        self.median_place().map(|place| &self.runs[place])
    }

    /// Its place among the runs.
    pub(super) fn median_place(&self) -> Option<usize> {
        let mut sorted: Vec<usize> = (0..self.runs.len()).collect();
        let ready = |place: usize| self.runs[place].ready_s.unwrap_or(f64::INFINITY);
        sorted.sort_by(|a, b| ready(*a).total_cmp(&ready(*b)));
        sorted.get(self.runs.len().checked_sub(1)? / 2).copied()
    }
}

/// Writes new files in the file system of `folder` to its disk, because write-back would disturb the timed
/// runs. Only there: other file systems of this machine may take long, or wait without an end.
pub(super) fn settle(folder: &Path) -> anyhow::Result<()> {
    let opened = std::fs::File::open(folder).with_context(|| format!("open {}", folder.display()))?;
    rustix::fs::syncfs(&opened).with_context(|| format!("write {} to its disk", folder.display()))
}

/// Gives all contenders their turns, the slow ones fewer. `run` makes the run of the contender at a place, in
/// a round counted from 1; `show` gets messages about the progress.
pub(super) fn take_turns(
    tallies: &mut [Tally],
    rounds: Rounds,
    show: &dyn Fn(String),
    run: &mut dyn FnMut(usize, usize) -> anyhow::Result<Summary>,
) -> anyhow::Result<()> {
    let Rounds { most, until } = rounds;
    for round in 1..=most {
        let round_s = tallies.iter().filter(|tally| tally.has_patience(most)).map(|tally| tally.last_s).sum();
        let end = Instant::now() + Duration::from_secs_f64(round_s);
        if round > 1 && until.is_some_and(|until| end > until) {
            log::info!("no round {round}: it would end too late");
            break;
        }
        for (place, tally) in tallies.iter_mut().enumerate() {
            if !tally.has_patience(most) {
                continue;
            }
            show(format!("timing, round {round} of {most}: {}", tally.label));
            hs_service::memory::reset_peak_rss();
            let began = Instant::now();
            let summary = run(place, round)?;
            tally.last_s = began.elapsed().as_secs_f64();
            tally.spent_s += tally.last_s;
            tally.runs.push(summary);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_after(time: f64) -> Summary {
        Summary { ready_s: Some(time), ..Summary::default() }
    }

    #[test]
    fn the_median_run_is_the_one_in_the_middle() {
        let median_of = |times: &[f64]| {
            let mut tally = Tally::new("a", "a", f64::INFINITY);
            tally.runs = times.iter().map(|&time| ready_after(time)).collect();
            tally.median().and_then(|run| run.ready_s)
        };
        assert_eq!(median_of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median_of(&[4.0, 1.0, 3.0, 2.0]), Some(2.0));
        assert_eq!(median_of(&[5.0]), Some(5.0));
        assert_eq!(median_of(&[]), None);
    }

    #[test]
    fn turns_alternate_and_who_has_no_patience_left_is_passed_over() {
        let mut tallies =
            [Tally::new("a", "a", f64::INFINITY), Tally::new("b", "b", 0.0), Tally::new("c", "c", 1e9)];
        // Even with a clock that does not advance it gets no second turn.
        tallies[1].spent_s = f64::MIN_POSITIVE;
        tallies[1].patience_s = f64::MIN_POSITIVE / 2.0;
        let mut turns = Vec::new();
        take_turns(&mut tallies, Rounds { most: 2, until: None }, &|_| {}, &mut |place, round| {
            turns.push((place, round));
            Ok(ready_after(place as f64))
        })
        .unwrap();
        assert_eq!(turns, [(0, 1), (2, 1), (0, 2), (2, 2)]);
        assert_eq!(tallies[2].all_ready_s(), [2.0, 2.0]);
        assert!(tallies[1].runs.is_empty());
        let one = Rounds { most: 1, until: None };
        assert!(take_turns(&mut tallies, one, &|_| {}, &mut |_, _| anyhow::bail!("broken")).is_err());
    }

    #[test]
    fn no_round_begins_that_would_end_too_late() {
        let counts = |until| {
            let mut tallies = [Tally::new("a", "a", f64::INFINITY), Tally::new("b", "b", f64::INFINITY)];
            let rounds = Rounds { most: 3, until: Some(until) };
            take_turns(&mut tallies, rounds, &|_| {}, &mut |_, _| Ok(ready_after(1.0))).unwrap();
            tallies.map(|tally| tally.runs.len())
        };
        assert_eq!(counts(Instant::now()), [1, 1], "the first is told whatever it takes");
        assert_eq!(counts(Instant::now() + Duration::from_secs(3600)), [3, 3]);
    }
}
