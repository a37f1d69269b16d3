//! The stages of a boot as parts of its time.

use hs_units::Nanos;

use crate::summary::Stage;

/// A part of the time of a boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageSpan {
    /// The stage.
    pub name: &'static str,
    /// When it began, from the start on.
    pub from: Nanos,
    /// When the next one began, or the boot ended.
    pub to: Nanos,
}

/// Stages of a boot that ended then: those that begin at these times, and what the console showed. One that
/// would begin after the one behind it is left out.
pub(crate) fn spans(before: &[(&'static str, Nanos)], stages: &[Stage], ended: Nanos) -> Vec<StageSpan> {
    let shown = stages.iter().map(|stage| (stage.name, Nanos::from_secs_f64(stage.at_s)));
    let mut to = ended;
    let mut spans: Vec<StageSpan> = Vec::new();
    for (name, from) in before.iter().copied().chain(shown).collect::<Vec<_>>().into_iter().rev() {
        if from < to {
            spans.push(StageSpan { name, from, to });
            to = from;
        }
    }
    spans.reverse();
    spans
}

/// The stage of this moment.
pub(crate) fn stage_at(spans: &[StageSpan], at: Nanos) -> Option<&'static str> {
    let begun = spans.partition_point(|span| span.from <= at);
    spans[..begun].last().map(|span| span.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_lasts_until_the_next_one() {
        let stage = |name, at_s| Stage { name, at_s, ..Stage::default() };
        let found = spans(
            &[("firmware", Nanos::ZERO), ("boot loader", Nanos(9_000_000_000))],
            &[stage("kernel", 2.0), stage("init", 3.0)],
            Nanos(5_000_000_000),
        );
        let shown: Vec<_> = found.iter().map(|span| (span.name, span.from.0, span.to.0)).collect();
        let expected = [
            ("firmware", 0, 2_000_000_000),
            ("kernel", 2_000_000_000, 3_000_000_000),
            ("init", 3_000_000_000, 5_000_000_000),
        ];
        assert_eq!(shown, expected);
        assert_eq!(stage_at(&found, Nanos(2_000_000_000)), Some("kernel"));
        assert_eq!(stage_at(&found[1..], Nanos(1)), None);
    }
}
