//! The folder of `--out`: `demo.json`, the tables, the profiles, and every run.

use std::path::Path;

use anyhow::Context;
use hs_output::whole_file::write_whole;

use super::outcome::Outcome;
use super::run_file::run_file;
use super::story::StoryResult;
use super::turns::Tally;

/// Makes it, before anything slow begins.
pub(super) fn prepare(out: &Path) -> anyhow::Result<()> {
    let runs = out.join("runs");
    std::fs::create_dir_all(&runs).with_context(|| format!("create {}", runs.display()))
}

/// Keeps everything that was found out.
pub(super) fn keep(out: &Path, outcome: &Outcome<'_>, told: &[StoryResult]) -> anyhow::Result<()> {
    for StoryResult { story, tallies, profile, .. } in told {
        keep_runs(out, story.prefix, tallies)?;
        write_whole(&out.join(story.profile), &profile.encode()?)?;
    }
    let tables: Vec<&str> = told.iter().map(|result| result.text.as_str()).collect();
    write_whole(&out.join("table.txt"), tables.join("\n").as_bytes())?;
    write_whole(&out.join("demo.json"), pretty(outcome)?.as_bytes())
}

/// Keeps each run's summary; the consoles are there already.
fn keep_runs(out: &Path, prefix: &str, tallies: &[Tally]) -> anyhow::Result<()> {
    for tally in tallies {
        let path = |number, kind| run_file(out, prefix, tally.key, number, kind);
        for (index, run) in tally.runs.iter().enumerate() {
            write_whole(&path(index + 1, "json"), pretty(run)?.as_bytes())?;
        }
        // Of an earlier demo with more repeats.
        let mut number = tally.runs.len() + 1;
        while std::fs::remove_file(path(number, "json")).is_ok() {
            let _ = std::fs::remove_file(path(number, "console"));
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
        for number in [2, 3, 4, 5] {
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
        assert!(out.join("runs/boot-warm-3.console").exists());
        assert_eq!(read("runs/notes.json"), "mine");
        assert!(read("demo.json").contains("\"cloop_like\""));
        assert!(read("table.txt").contains("cloop-like"));
        assert!(hs_trace::Profile::decode(&std::fs::read(out.join(BOOT.profile)).unwrap()).is_ok());
    }
}
