//! Published measurements, and how a figure compares with them.

use crate::report::Report;

/// Share by which a figure may differ from what was published.
const TOLERANCE: f64 = 0.2;

/// The share by which two things may differ that were published as the same: a figure in a text has no more
/// digits.
const ALIKE: f64 = 0.1;

/// The statement of a text about a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Claim {
    /// One measurement over another: which of them is larger, and how much.
    Ratio(f64),
    /// A measurement in the figure's own unit.
    Amount(f64),
    /// More than one: the text says which of two is larger, and its picture has no numbers.
    More,
    /// Less than one, as [`More`](Self::More).
    Less,
    /// One: the text says that there is no difference.
    Alike,
    /// Not less than one: the text says that one of two is as good or better.
    NotLess,
}

impl Claim {
    /// The number, where there is one.
    #[must_use]
    pub const fn number(self) -> Option<f64> {
        match self {
            Self::Ratio(value) | Self::Amount(value) => Some(value),
            Self::More | Self::Less | Self::Alike | Self::NotLess => None,
        }
    }

    /// Its form in a table.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Ratio(value) | Self::Amount(value) => format!("{value:.3}"),
            Self::More => "> 1".to_owned(),
            Self::Less => "< 1".to_owned(),
            Self::Alike => "about 1".to_owned(),
            Self::NotLess => "≥ 1".to_owned(),
        }
    }

    /// The verdict on `value`.
    #[must_use]
    pub fn judge(self, value: f64) -> Verdict {
        let near = |published: f64| (value / published - 1.0).abs() <= TOLERANCE;
        match self {
            Self::Ratio(published) if (value > 1.0) != (published > 1.0) => Verdict::Missed,
            Self::Ratio(published) if near(published) => Verdict::Simulated,
            Self::Ratio(_) => Verdict::DirectionOnly,
            Self::Amount(published) if near(published) => Verdict::Simulated,
            Self::Amount(_) => Verdict::Missed,
            Self::More if value > 1.0 => Verdict::Direction,
            Self::Less if value < 1.0 => Verdict::Direction,
            Self::Alike if (value - 1.0).abs() <= ALIKE => Verdict::Direction,
            // The index of fairness of a run of some thousand reads is known to a percent.
            Self::NotLess if value >= 0.99 => Verdict::Direction,
            Self::More | Self::Less | Self::Alike | Self::NotLess => Verdict::Missed,
        }
    }
}

/// A published statement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Published {
    /// Where: the number of the seed document, and the place in it.
    pub source: &'static str,
    /// The statement.
    pub claim: Claim,
}

/// What a figure follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Basis {
    /// A simulation whose parameters were there before the figure was known.
    #[default]
    Simulation,
    /// A simulation of which this was chosen after it was known what was published.
    Chosen(&'static str),
    /// The inputs or definitions of the model: a sum or a quotient of them.
    Arithmetic,
}

/// How a figure compares with what was published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The same within a fifth, by a simulation.
    Simulated,
    /// The same, but a parameter was chosen with the published figure in view.
    Chosen,
    /// It agrees because it follows from the model's inputs or definitions, and is no test of the model.
    Arithmetic,
    /// The text gives no number, and its direction is the same.
    Direction,
    /// The right one of two is larger, by another ratio.
    DirectionOnly,
    /// The result is different.
    Missed,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Simulated, Self::Chosen, Self::Arithmetic, Self::Direction, Self::DirectionOnly, Self::Missed];

    /// How many figures of these reports have each of them.
    #[must_use]
    pub fn count(reports: &[Report]) -> [(Self, usize); 6] {
        let figures = || reports.iter().flat_map(|report| &report.figures);
        Self::ALL.map(|each| (each, figures().filter(|figure| figure.verdict() == Some(each)).count()))
    }

    /// The word for it in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Chosen => "chosen",
            Self::Arithmetic => "arithmetic",
            Self::Direction => "direction",
            Self::DirectionOnly => "direction only",
            Self::Missed => "missed",
        }
    }

    /// What the word says of a figure.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Simulated => "reproduced within a fifth by a simulation",
            Self::Chosen => "reproduced within a fifth, a parameter chosen with the answer in view",
            Self::Arithmetic => "arithmetic on what the paper and the model give: no test",
            Self::Direction => "only a direction was published, and the simulation has it",
            Self::DirectionOnly => "a number was published; the direction is right and the number is not",
            Self::Missed => "not reproduced",
        }
    }

    /// Whether a reason must be given for it.
    #[must_use]
    pub const fn is_miss(self) -> bool {
        matches!(self, Self::DirectionOnly | Self::Missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_a_direction_and_a_size() {
        assert_eq!(Claim::Ratio(2.0).judge(2.3), Verdict::Simulated);
        assert_eq!(Claim::Ratio(2.0).judge(3.0), Verdict::DirectionOnly);
        assert_eq!(Claim::Ratio(1.1).judge(0.95), Verdict::Missed);
        assert_eq!(Claim::Ratio(0.5).judge(0.9), Verdict::DirectionOnly);
    }

    #[test]
    fn what_has_no_number_is_judged_without() {
        assert_eq!(Claim::More.judge(1.5), Verdict::Direction);
        assert_eq!(Claim::Less.judge(1.5), Verdict::Missed);
        assert_eq!(Claim::Alike.judge(1.05), Verdict::Direction);
        assert_eq!(Claim::Alike.judge(0.8), Verdict::Missed);
        assert_eq!(Claim::Amount(83.0).judge(90.0), Verdict::Simulated);
        assert_eq!(Claim::Amount(83.0).judge(190.0), Verdict::Missed);
    }
}
