//! Everything that the demo found out: what `--json` prints and `demo.json` holds. docs/DEMO.md describes it.

use std::collections::BTreeMap;

use hs_build::OptimizeOptions;
use hs_device::Medium;
use serde::Serialize;
use serde_json::Value;

use super::Facts;
use super::disks;
use super::limit::Limit;
use super::story::StoryResult;
use super::turns::Tally;
use hs_start::summary::Summary;

/// What the results of all stories have.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Common {
    /// The emulated medium.
    pub(super) medium: String,
    /// zstd level of the cold region.
    pub(super) level: i32,
    /// Size of its windows.
    pub(super) window_bytes: u64,
    /// zstd level of the hot region.
    pub(super) hot_level: i32,
    pub(super) limit: Limit,
    /// Seconds that optimizing took, compression of the hot region included.
    pub(super) optimize_s: f64,
    /// Compared byte for byte.
    pub(super) cold_region_unchanged: bool,
    /// Seconds that each step took; hardly any where its result was kept.
    pub(super) steps: BTreeMap<&'static str, f64>,
}

impl Common {
    /// Of images made in the usual way.
    pub(super) fn new(
        medium: Medium,
        limit: Limit,
        optimize_s: f64,
        steps: BTreeMap<&'static str, f64>,
    ) -> Self {
        let options = disks::plain_options();
        Self {
            medium: medium.to_string(),
            level: options.level,
            window_bytes: options.window_bytes,
            hot_level: OptimizeOptions::default().level,
            limit,
            optimize_s,
            cold_region_unchanged: true,
            steps,
        }
    }
}

/// One object.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome<'a> {
    #[serde(flatten)]
    facts: &'a Facts,
    /// Each story that was told, by its key.
    #[serde(flatten)]
    stories: BTreeMap<&'static str, &'a Value>,
    /// The median boot of each contender of the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<BTreeMap<&'static str, &'a Summary>>,
    /// Seconds that making the Debian roots took; hardly any when they were kept.
    roots_s: f64,
    /// Seconds that the whole demo took.
    demo_s: f64,
}

impl<'a> Outcome<'a> {
    /// Of the stories that were told.
    pub(super) fn new(facts: &'a Facts, told: &'a [StoryResult], roots_s: f64, demo_s: f64) -> Self {
        let at_the_top = told.iter().find(|result| result.story.has_runs_at_the_top);
        Self {
            facts,
            stories: told.iter().map(|result| (result.story.key, &result.outcome)).collect(),
            runs: at_the_top.map(|result| medians(&result.tallies)),
            roots_s,
            demo_s,
        }
    }
}

fn medians(tallies: &[Tally]) -> BTreeMap<&'static str, &Summary> {
    tallies.iter().filter_map(|tally| Some((tally.key, tally.median()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::facts;

    #[test]
    fn the_boots_are_at_the_top_by_name() {
        let (facts, told) = (facts(3), [crate::boot::tests::told()]);
        let json = serde_json::to_value(Outcome::new(&facts, &told, 1.0, 2.0)).unwrap();
        assert_eq!((json["repeats"].as_u64(), json["demo_s"].as_f64()), (Some(3), Some(2.0)));
        let runs = json["runs"].as_object().unwrap();
        let names: Vec<_> = runs.keys().map(String::as_str).collect();
        assert_eq!(names, ["cloop_like", "optimized", "raw", "unoptimized", "warm"]);
        for (name, run) in runs {
            assert!(run["ready_s"].as_f64().is_some_and(|ready| ready > 0.0), "{name}");
            for key in
                ["medium", "image_bytes", "store_requests", "seeks", "medium_busy_s", "prefetch_stream_s"]
            {
                assert!(run.get(key).is_some(), "{name} {key}");
            }
        }
        assert_eq!(json["boot"]["contenders"][3]["contender"], "optimized");
        assert!(json.get("start").is_none());
    }

    #[test]
    fn without_the_boot_there_are_no_runs() {
        let facts = facts(1);
        let json = serde_json::to_value(Outcome::new(&facts, &[], 1.0, 2.0)).unwrap();
        assert!(json.get("runs").is_none() && json.get("boot").is_none() && json.get("start").is_none());
        assert_eq!((&json["version"], &json["machine"]["cores"]), (&"0".into(), &2.into()));
    }
}
