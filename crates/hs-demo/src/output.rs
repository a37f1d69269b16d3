//! The folder of `--out`: `demo.json`, the tables, the profiles, the traces, and every run.

use std::path::Path;

use anyhow::Context;

use super::outcome::Outcome;
use super::run_file::run_file;
use super::story::{Story, StoryResult};
use super::turns::Tally;
use hs_output::whole_file::write_whole;

/// Makes it, before anything slow begins.
pub(super) fn prepare(out: &Path) -> anyhow::Result<()> {
    let runs = out.join("runs");
    std::fs::create_dir_all(&runs).with_context(|| format!("create {}", runs.display()))
}

/// Keeps everything that was found out.
pub(super) fn keep(out: &Path, outcome: &Outcome<'_>, told: &[StoryResult]) -> anyhow::Result<()> {
    for StoryResult { story, tallies, profile, .. } in told {
        keep_runs(out, story, tallies)?;
        write_whole(&out.join(story.profile), &profile.encode()?)?;
    }
    let tables: Vec<&str> = told.iter().map(|result| result.text.as_str()).collect();
    write_whole(&out.join("table.txt"), tables.join("\n").as_bytes())?;
    write_whole(&out.join("demo.json"), pretty(outcome)?.as_bytes())
}

/// Keeps each run's summary; consoles and traces are there already. The trace of a median run is kept beside
/// demo.json, which has its summary.
fn keep_runs(out: &Path, story: &Story, tallies: &[Tally]) -> anyhow::Result<()> {
    for tally in tallies {
        let path = |number, kind| run_file(out, story.prefix, tally.key, number, kind);
        for (index, run) in tally.runs.iter().enumerate() {
            write_whole(&path(index + 1, "json"), pretty(run)?.as_bytes())?;
        }
        let trace = tally.median_place().map(|index| path(index + 1, "csv")).filter(|trace| trace.exists());
        if let Some(trace) = trace {
            let kept = out.join(format!("{}-{}.csv", story.key, tally.key));
            std::fs::copy(&trace, &kept).with_context(|| format!("write {}", kept.display()))?;
        }
        // Of an earlier demo with more repeats.
        let mut number = tally.runs.len() + 1;
        while std::fs::remove_file(path(number, "json")).is_ok() {
            for kind in ["console", "csv"] {
                let _ = std::fs::remove_file(path(number, kind));
            }
            number += 1;
        }
    }
    Ok(())
}

fn pretty(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::facts;
    use crate::story::BOOT;

    #[test]
    fn every_run_is_kept_and_those_of_an_earlier_demo_go() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        prepare(out).unwrap();
        for number in 1..=5 {
            let trace = run_file(out, BOOT.prefix, "warm", number, "csv");
            std::fs::write(trace, format!("trace {number}")).unwrap();
            std::fs::write(run_file(out, BOOT.prefix, "warm", number, "json"), "old").unwrap();
            std::fs::write(run_file(out, BOOT.prefix, "warm", number, "console"), "old").unwrap();
        }
        std::fs::write(out.join("runs/notes.json"), "mine").unwrap();
        let (facts, told) = (facts(3), [crate::boot::tests::told()]);
        let outcome = Outcome::new(&facts, &told, 1.0, 2.0);
        keep(out, &outcome, &told).unwrap();
        let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
        let run: serde_json::Value = serde_json::from_str(&read("runs/boot-warm-3.json")).unwrap();
        assert!(run["ready_s"].is_number());
        assert!(
            !out.join("runs/boot-warm-4.json").exists() && !out.join("runs/boot-warm-5.console").exists()
        );
        assert!(out.join("runs/boot-warm-3.console").exists() && !out.join("runs/boot-warm-4.csv").exists());
        assert_eq!(read("runs/notes.json"), "mine");
        // The median run is the first.
        assert_eq!(read("boot-warm.csv"), "trace 1");
        assert!(read("demo.json").contains("\"cloop_like\""));
        assert!(read("table.txt").contains("cloop-like"));
        assert!(hs_trace::Profile::decode(&std::fs::read(out.join(BOOT.profile)).unwrap()).is_ok());
    }
}
