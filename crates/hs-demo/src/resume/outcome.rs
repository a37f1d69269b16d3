//! The result of the third story: ratios, whether they meet their goals, and the text.

use std::collections::BTreeMap;

use anyhow::Context;
use hs_device::Medium;
use hs_output::show::mib;
use hs_start::summary::Summary;
use hs_units::ByteSize;
use serde::Serialize;

use super::{BOOT, WARM};
use crate::facts::Facts;
use crate::ratio::{Goal, Ratio, Spread};
use crate::table;
use crate::turns::Tally;

/// A resume from a medium may take so many times its limit.
const GOAL_LIMIT: Goal = Goal::AtMost(1.15);
/// It may move so many times the packed pages that are touched.
const GOAL_MOVED: Goal = Goal::AtMost(1.15);

/// A medium, and what share of the boot from memory a resume from it may take.
pub(super) struct OnMedium {
    pub(super) key: &'static str,
    pub(super) label: &'static str,
    pub(super) name: &'static str,
    pub(super) share: f64,
}

/// The media, as their contenders stand.
pub(super) const MEDIA: [OnMedium; 3] = [
    OnMedium { key: "flat", label: "resumed, 10 ms and 25 MB/s", name: "flat-10ms-25mbs", share: 0.07 },
    OnMedium { key: "cd", label: "resumed, CD", name: "cd-24x-cav", share: 0.20 },
    OnMedium { key: "lan", label: "resumed, 10 Mbit/s", name: "lan-10m", share: 0.25 },
];

/// What a medium's resumes say.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Resumed {
    /// The resume from memory + the packed touched bytes at the medium's rate + one access.
    limit_s: f64,
    to_limit: Option<Ratio>,
    to_boot: Option<Ratio>,
    moved_to_packed: Ratio,
}

/// The median run of a contender.
#[derive(Clone, Debug, Serialize)]
struct Run {
    contender: &'static str,
    label: &'static str,
    /// Start → ready of every run, in seconds.
    all_ready_s: Vec<f64>,
    #[serde(flatten)]
    summary: Summary,
}

/// `resume` in the demo's JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// Stored bytes of what the recorded resumes touched, of snapshot and disk.
    packed_bytes: u64,
    /// The file of the snapshot.
    snapshot_bytes: u64,
    /// By the name of the medium.
    media: BTreeMap<&'static str, Resumed>,
    /// One for each contender.
    runs: Vec<Run>,
    /// Seconds that each step took; hardly any where its result was kept.
    steps: BTreeMap<&'static str, f64>,
}

impl Outcome {
    pub(super) fn judge(
        tallies: &[Tally],
        packed_bytes: u64,
        snapshot_bytes: u64,
        steps: BTreeMap<&'static str, f64>,
    ) -> anyhow::Result<Self> {
        let spread = |place: usize| -> anyhow::Result<Spread> {
            let tally: &Tally = &tallies[place];
            let median = tally.median().and_then(|run| run.ready_s).context("a contender was not ready")?;
            Ok(Spread::new(median, tally.all_ready_s()))
        };
        let (boot, warm) = (spread(BOOT)?, spread(WARM)?);
        let mut media = BTreeMap::new();
        for (place, OnMedium { name, share, .. }) in (WARM + 1..).zip(&MEDIA) {
            let medium = Medium::parse(name)?;
            let rate = medium.rate_bytes_per_second(snapshot_bytes, 0).context("a medium without a rate")?;
            let access_s = medium.latency().as_secs_f64();
            let limit_s = warm.median + packed_bytes as f64 / rate as f64 + access_s;
            let ready = spread(place)?;
            let moved = tallies[place].median().map_or(0, |run| run.store_bytes);
            let resumed = Resumed {
                limit_s,
                to_limit: Ratio::of_runs(ready, Spread::exact(limit_s), Some(GOAL_LIMIT)),
                to_boot: Ratio::of_runs(ready, boot, Some(Goal::AtMost(*share))),
                moved_to_packed: Ratio::exact(moved as f64, packed_bytes as f64, GOAL_MOVED),
            };
            media.insert(*name, resumed);
        }
        let run = |tally: &Tally| Run {
            contender: tally.key,
            label: tally.label,
            all_ready_s: tally.all_ready_s(),
            summary: tally.median().cloned().unwrap_or_default(),
        };
        Ok(Self { packed_bytes, snapshot_bytes, media, runs: tallies.iter().map(run).collect(), steps })
    }

    /// The whole text, ending in a line break.
    pub(super) fn render(&self, facts: &Facts, tallies: &[Tally]) -> String {
        let counts = tallies.iter().map(|tally| (tally.label, tally.runs.len()));
        let heading = format!(
            "Debian with systemd, in QEMU: ready is the answer to a command\n{}",
            facts.line("resume", counts)
        );
        let titles = ["", "runs", "seconds", "of all runs", "requests", "MiB read"];
        table::render(&heading, titles, tallies.iter().map(row), &self.sentences())
    }

    fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![format!(
            "The boot ends at the login prompt; the resumes log in and run a command. They touch {} as stored, \
             of a snapshot of {}. The limit is the resume from memory + those bytes at the medium's rate + one \
             access.",
            ByteSize(self.packed_bytes),
            ByteSize(self.snapshot_bytes)
        )];
        let say = |ratio: &Option<Ratio>, of: &str| {
            ratio.map_or_else(|| "it cannot be told".to_owned(), |ratio| ratio.times(of))
        };
        for OnMedium { name, .. } in &MEDIA {
            let Some(Resumed { limit_s, to_limit, to_boot, moved_to_packed }) = self.media.get(name) else {
                continue;
            };
            sentences.push(format!(
                "{name}: {}; {}; it moves {}.",
                say(to_boot, "the boot from memory"),
                say(to_limit, &format!("the limit of {limit_s:.2} s")),
                moved_to_packed.times("what is touched")
            ));
        }
        sentences
    }
}

fn row(tally: &Tally) -> [String; 6] {
    let run = tally.median().cloned().unwrap_or_else(Summary::default);
    let all = tally.all_ready_s();
    let ready = Spread::new(run.ready_s.unwrap_or_default(), all.iter().copied());
    let is_from_memory = run.medium == Medium::None.to_string();
    let on_medium = |text: String| if is_from_memory { "–".to_owned() } else { text };
    [
        tally.label.to_owned(),
        all.len().to_string(),
        format!("{:.2}", ready.median),
        if all.len() > 1 { format!("{:.2}–{:.2}", ready.least, ready.most) } else { "–".to_owned() },
        on_medium(run.store_requests.to_string()),
        on_medium(mib(run.store_bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::facts;

    #[test]
    fn shares_and_limits_are_judged() {
        let run = |medium: &str, ready: f64, bytes: u64| Summary {
            medium: medium.to_owned(),
            ready_s: Some(ready),
            store_bytes: bytes,
            ..Summary::default()
        };
        let tally = |key, medium: &str, ready: f64, bytes: u64| {
            let mut tally = Tally::new(key, key, f64::INFINITY);
            tally.runs = vec![run(medium, ready, bytes)];
            tally
        };
        let tallies = [
            tally("boot_warm", "none", 16.0, 0),
            tally("warm", "none", 0.9, 0),
            tally("flat", MEDIA[0].name, 1.1, 5_000_000),
            tally("cd", MEDIA[1].name, 4.0, 5_000_000),
            tally("lan", MEDIA[2].name, 4.9, 9_000_000),
        ];
        let outcome = Outcome::judge(&tallies, 5_000_000, 60_000_000, BTreeMap::new()).unwrap();
        let text = outcome.render(&facts(1), &tallies);
        assert!(text.contains("flat-10ms-25mbs: 0.069 × the boot from memory (goal ≤ 0.07: met)"), "{text}");
        assert!(text.contains("cd-24x-cav: 0.250 × the boot from memory (goal ≤ 0.20: MISSED)"), "{text}");
        assert!(text.contains("1.800 × what is touched (goal ≤ 1.15: MISSED)"), "{text}");
        let limit = outcome.media["flat-10ms-25mbs"].limit_s;
        assert!((limit - (0.9 + 0.2 + 0.01)).abs() < 1e-6, "{limit}");
        assert!(
            Outcome::judge(&[Tally::new("a", "a", 1.0), Tally::new("b", "b", 1.0)], 1, 1, BTreeMap::new())
                .is_err()
        );
    }
}
