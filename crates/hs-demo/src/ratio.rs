//! Ratios of figures that vary from run to run, and their goals.

use serde::Serialize;

/// A figure of several runs: the median's, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    /// Of the median run.
    pub(super) median: f64,
    /// The least of any run.
    pub(super) least: f64,
    /// The most of any run.
    pub(super) most: f64,
    /// The number of runs; one run says nothing of the variation.
    pub(super) runs: usize,
}

impl Spread {
    /// The figure `median` among those of all runs.
    pub(super) fn new(median: f64, all: impl IntoIterator<Item = f64>) -> Self {
        let none = Self { median, least: median, most: median, runs: 0 };
        all.into_iter().fold(none, |spread, value| Self {
            median,
            least: spread.least.min(value),
            most: spread.most.max(value),
            runs: spread.runs + 1,
        })
    }

    /// A figure that does not vary.
    pub(super) const fn exact(value: f64) -> Self {
        Self { median: value, least: value, most: value, runs: usize::MAX }
    }

    /// The difference to `other`, between any two runs.
    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            median: self.median - other.median,
            least: self.least - other.most,
            most: self.most - other.least,
            runs: self.runs.min(other.runs),
        }
    }

    /// The same, but at least so much.
    pub(super) fn at_least(self, floor: f64) -> Self {
        Self {
            median: self.median.max(floor),
            least: self.least.max(floor),
            most: self.most.max(floor),
            runs: self.runs,
        }
    }

    /// Whether this is about `value`, as far as the runs can tell.
    pub(super) fn holds(self, value: f64) -> bool {
        self.least <= value && value <= self.most
    }
}

/// The goal of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

impl Goal {
    fn is_met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(goal) => ratio <= goal,
            Self::AtLeast(goal) => ratio >= goal,
        }
    }
}

impl Serialize for Goal {
    /// The number; its direction follows from the ratio.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::AtMost(goal) | Self::AtLeast(goal) => serializer.serialize_f64(*goal),
        }
    }
}

/// A ratio and its goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) ratio: f64,
    /// The least and the most that any of the runs could give; `None` after a single run, or for a size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range: Option<(f64, f64)>,
    /// `None` where no goal is set.
    pub(super) goal: Option<Goal>,
    pub(super) met: Option<bool>,
    /// Whether all runs agree on that, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sure: Option<bool>,
}

impl Ratio {
    /// The ratio of two exact figures.
    pub(super) fn exact(value: f64, of: f64, goal: Goal) -> Self {
        let ratio = value / of;
        Self { ratio, range: None, goal: Some(goal), met: Some(goal.is_met_by(ratio)), sure: None }
    }

    /// The ratio of two figures that vary; `None` when the second may be zero in the median run.
    pub(super) fn of_runs(value: Spread, of: Spread, goal: Option<Goal>) -> Option<Self> {
        if of.median <= 0.0 {
            return None;
        }
        let ratio = value.median / of.median;
        let (low, high) = if of.least > 0.0 {
            (
                (value.least / of.least).min(value.least / of.most),
                (value.most / of.least).max(value.most / of.most),
            )
        } else {
            // In some run the second figure was zero: the ratio may be anything.
            (f64::NEG_INFINITY, f64::INFINITY)
        };
        let range = (value.runs.min(of.runs) > 1).then_some((low, high));
        let met = |ratio| goal.map(|goal| goal.is_met_by(ratio));
        let sure = met(ratio)
            .zip(range)
            .map(|(verdict, (low, high))| met(low) == Some(verdict) && met(high) == Some(verdict));
        Some(Self { ratio, range, goal, met: met(ratio), sure })
    }

    /// The ratio to `of` in words, with its range, and whether it meets its goal.
    pub(super) fn times(&self, of: &str) -> String {
        let range = match self.range {
            Some((low, high)) if low.is_finite() && high.is_finite() => format!(" [{low:.3} to {high:.3}]"),
            Some(_) => " [it may be anything]".to_owned(),
            None => String::new(),
        };
        format!("{:.3}{range} × {of}{}", self.ratio, self.verdict())
    }

    fn verdict(&self) -> String {
        let (Some(goal), Some(met)) = (self.goal, self.met) else { return String::new() };
        let goal = match goal {
            Goal::AtMost(goal) => format!("≤ {goal:.2}"),
            Goal::AtLeast(goal) => format!("≥ {goal:.2}"),
        };
        let word = if met { "met" } else { "MISSED" };
        let doubt = if self.sure == Some(false) { ", but not by all runs" } else { "" };
        format!(" (goal {goal}: {word}{doubt})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(least: f64, median: f64, most: f64) -> Spread {
        Spread::new(median, [least, median, most])
    }

    #[test]
    fn differences_take_the_worst_of_both() {
        let wait = spread(9.0, 10.0, 12.0).minus(spread(8.0, 9.0, 10.0));
        assert_eq!(wait, Spread { median: 1.0, least: -1.0, most: 4.0, runs: 3 });
        assert!(wait.holds(0.0) && !wait.holds(4.5));
        assert_eq!(wait.at_least(0.5), Spread { least: 0.5, ..wait });
    }

    #[test]
    fn a_ratio_is_sure_only_when_all_runs_agree() {
        let of = spread(8.0, 10.0, 20.0);
        let sure = Ratio::of_runs(spread(0.4, 0.5, 0.6), of, Some(Goal::AtMost(0.10))).unwrap();
        assert_eq!((sure.ratio, sure.range), (0.05, Some((0.02, 0.075))));
        assert_eq!((sure.met, sure.sure), (Some(true), Some(true)));
        let doubtful = Ratio::of_runs(spread(-1.0, 0.5, 1.0), of, Some(Goal::AtMost(0.10))).unwrap();
        assert_eq!(doubtful.range, Some((-0.125, 0.125)));
        assert_eq!((doubtful.met, doubtful.sure), (Some(true), Some(false)));
        assert_eq!(
            doubtful.times("that"),
            "0.050 [-0.125 to 0.125] × that (goal ≤ 0.10: met, but not by all runs)"
        );
        let missed = Ratio::of_runs(spread(2.0, 3.0, 4.0), of, Some(Goal::AtLeast(0.95))).unwrap();
        assert_eq!((missed.met, missed.sure), (Some(false), Some(true)));
        assert!(missed.times("that").ends_with("× that (goal ≥ 0.95: MISSED)"));
    }

    #[test]
    fn a_ratio_to_nothing_is_none_and_to_almost_nothing_may_be_anything() {
        let value = spread(1.0, 1.0, 1.0);
        assert_eq!(Ratio::of_runs(value, spread(-1.0, 0.0, 1.0), None), None);
        let vague = Ratio::of_runs(value, spread(-1.0, 0.5, 1.0), Some(Goal::AtMost(3.0))).unwrap();
        assert_eq!((vague.ratio, vague.met, vague.sure), (2.0, Some(true), Some(false)));
        assert!(vague.times("that").contains("it may be anything"));
        let free = Ratio::of_runs(value, value, None).unwrap();
        assert_eq!((free.met, free.times("that")), (None, "1.000 [1.000 to 1.000] × that".to_owned()));
    }

    #[test]
    fn one_run_does_not_tell_how_it_varies() {
        let once = Spread::new(1.0, [1.0]);
        let ratio = Ratio::of_runs(once, spread(1.0, 2.0, 3.0), Some(Goal::AtMost(0.6))).unwrap();
        assert_eq!((ratio.range, ratio.met, ratio.sure), (None, Some(true), None));
        assert_eq!(ratio.times("that"), "0.500 × that (goal ≤ 0.60: met)");
        // What is exact is no run.
        let ratio = Ratio::of_runs(spread(1.0, 2.0, 3.0), Spread::exact(2.0), None).unwrap();
        assert_eq!(ratio.range, Some((0.5, 1.5)));
    }

    #[test]
    fn goals_are_numbers_in_json() {
        let json = serde_json::to_value(Ratio::exact(1.0, 4.0, Goal::AtMost(0.5))).unwrap();
        assert_eq!(json, serde_json::json!({ "ratio": 0.25, "goal": 0.5, "met": true }));
    }
}
