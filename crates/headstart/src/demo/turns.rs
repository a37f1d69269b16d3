//! Who is timed, in turns, so that whatever else the machine does hits all alike.

use std::time::Instant;

use crate::summary::{self, Summary};

/// One who takes turns, and the runs so far.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Its name in files and JSON.
    pub(super) key: &'static str,
    /// Its name for people.
    pub(super) label: &'static str,
    /// Who has used so many seconds for each repeat is not run again: slow runs hardly vary, since they wait
    /// for the emulated medium most of the time.
    pub(super) patience_s: f64,
    /// One summary a run.
    pub(super) runs: Vec<Summary>,
    spent_s: f64,
}

impl Tally {
    /// Of nobody's run yet.
    pub(super) fn new(key: &'static str, label: &'static str, patience_s: f64) -> Self {
        Self { key, label, patience_s, runs: Vec::new(), spent_s: 0.0 }
    }

    /// Start → ready of every run, in seconds.
    pub(super) fn all_ready_s(&self) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.ready_s).collect()
    }

    /// The run with the median time; of an even number the quicker of the two in the middle.
    pub(super) fn median(&self) -> Option<&Summary> {
        let mut sorted: Vec<&Summary> = self.runs.iter().collect();
        let ready = |run: &Summary| run.ready_s.unwrap_or(f64::INFINITY);
        sorted.sort_by(|a, b| ready(a).total_cmp(&ready(b)));
        sorted.get(self.runs.len().checked_sub(1)? / 2).copied()
    }
}

/// Gives everyone `repeats` turns, the slow fewer. `run` makes the run of one at a place, in a round counted
/// from 1; `show` hears what is being done.
pub(super) fn take_turns(
    tallies: &mut [Tally],
    repeats: usize,
    show: &dyn Fn(String),
    run: &mut dyn FnMut(usize, usize) -> anyhow::Result<Summary>,
) -> anyhow::Result<()> {
    // Files that are still being written would be in the way.
    rustix::fs::sync();
    for round in 1..=repeats {
        for (place, tally) in tallies.iter_mut().enumerate() {
            if tally.spent_s >= tally.patience_s * repeats as f64 {
                continue;
            }
            show(format!("timing, round {round} of {repeats}: {}", tally.label));
            summary::reset_peak_rss();
            let began = Instant::now();
            let summary = run(place, round)?;
            tally.spent_s += began.elapsed().as_secs_f64();
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
        // Not even a clock that stands still gives it a second turn.
        tallies[1].spent_s = f64::MIN_POSITIVE;
        tallies[1].patience_s = f64::MIN_POSITIVE / 2.0;
        let mut turns = Vec::new();
        take_turns(&mut tallies, 2, &|_| {}, &mut |place, round| {
            turns.push((place, round));
            Ok(ready_after(place as f64))
        })
        .unwrap();
        assert_eq!(turns, [(0, 1), (2, 1), (0, 2), (2, 2)]);
        assert_eq!(tallies[2].all_ready_s(), [2.0, 2.0]);
        assert!(tallies[1].runs.is_empty());
        assert!(take_turns(&mut tallies, 1, &|_| {}, &mut |_, _| anyhow::bail!("broken")).is_err());
    }
}
