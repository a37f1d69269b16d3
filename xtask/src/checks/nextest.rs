//! The tests, each in a process of its own, and several at once: [cargo-nextest](https://nexte.st) runs them
//! as `.config/nextest.toml` says, and writes a report that is counted here.

use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use serde::Deserialize;

use super::tally::Tally;
use super::{Outcome, cargo};

/// The seed of proptest's inputs.
const PROPTEST_SEED: &str = "PROPTEST_RNG_SEED";
/// Places that the tests of one core share. A test takes as many as `.config/nextest.toml` says.
const PLACES_PER_CORE: usize = 4;

/// Which tests run, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run<'a> {
    /// A profile of `.config/nextest.toml`.
    pub(super) profile: &'a str,
    /// More words for `cargo nextest run`.
    pub(super) arguments: &'a [&'a str],
    pub(super) variables: &'a [(&'a str, &'a str)],
    /// Compiled as people get it, by the compiler alone.
    pub(super) plain: bool,
}

/// Runs them. Without nextest, or without one test, nothing was checked.
pub(super) fn run(root: &Path, run: &Run<'_>) -> Outcome {
    if !cargo::has(root, "nextest") {
        return Outcome::Skipped("cargo-nextest is missing; scripts/setup.sh installs it".into());
    }
    Outcome::Tests(Box::new(run.tally(root)))
}

impl Run<'_> {
    fn tally(&self, root: &Path) -> Tally {
        let report = cargo::target(root).join("nextest").join(self.profile).join("junit.xml");
        let _ = std::fs::remove_file(&report);
        let ended_well = self.command(root).status().is_ok_and(|status| status.success());
        let report = std::fs::read_to_string(&report);
        let mut tally = match report.map_err(anyhow::Error::from).and_then(|text| read(&text)) {
            Ok(tally) => tally,
            Err(error) => {
                failed(format!("tests: not all of them could be built, or nextest has no report: {error}"))
            }
        };
        if !ended_well && tally.failed.is_empty() {
            tally.failed.push("tests: nextest did not end well".to_owned());
        }
        tally
    }

    fn command(&self, root: &Path) -> Command {
        let cores = available_parallelism().map_or(1, usize::from);
        let places = (cores * PLACES_PER_CORE).to_string();
        let mut command = if self.plain { cargo::command(root) } else { cargo::linting(root) };
        command.args(["nextest", "run", "--profile", self.profile, "--test-threads", &places]);
        command.args(cargo::locked()).args(self.arguments).envs(self.variables.iter().copied());
        // The same random inputs each time, so that what fails is a change; `test-long` tries new ones.
        if std::env::var_os(PROPTEST_SEED).is_none() {
            command.env(PROPTEST_SEED, "1");
        }
        command
    }
}

fn failed(why: String) -> Tally {
    Tally { failed: vec![why], ..Tally::default() }
}

#[derive(Deserialize)]
struct Report {
    #[serde(rename = "testsuite", default)]
    programs: Vec<Program>,
}

#[derive(Deserialize)]
struct Program {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "testcase", default)]
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    #[serde(rename = "@name")]
    name: String,
    /// Seconds.
    #[serde(rename = "@time")]
    time: f64,
    failure: Option<Why>,
    error: Option<Why>,
    #[serde(rename = "system-err", default)]
    stderr: String,
    #[serde(rename = "system-out", default)]
    stdout: String,
}

/// A failed test's last words.
#[derive(Deserialize)]
struct Why {}

/// Counts what a report has. A test that was skipped has said so, and passed.
fn read(report: &str) -> anyhow::Result<Tally> {
    let report: Report = quick_xml::de::from_str(report)?;
    let mut all = Tally::default();
    for program in report.programs {
        for test in program.tests {
            all.add_test(&format!("{} {}", program.name, test.name), &test);
        }
    }
    Ok(all)
}

impl Tally {
    fn add_test(&mut self, name: &str, test: &Test) {
        self.took.push((name.to_owned(), test.time));
        let said = |word: &str| {
            let lines = test.stderr.lines().filter_map(move |line| line.strip_prefix(word));
            lines
                .map(|lack| format!("{name}: {}", lack.split_once(": ").map_or(lack, |(_, lack)| lack)))
                .next()
        };
        self.partly.extend(said(hs_testing::PARTLY_SKIPPED));
        if test.failure.is_some() || test.error.is_some() {
            self.failed.push(name.to_owned());
            self.output.push(format!("---- {name}"));
            self.output.extend(super::tally::without_stack(&test.stdout, &test.stderr));
        } else if let Some(skipped) = said(hs_testing::SKIPPED) {
            self.skipped.push(skipped);
        } else {
            self.passed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_counted_and_skipped_tests_have_not_passed() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="4" failures="1" errors="0" time="3.1">
    <testsuite name="headstart::cli" tests="4" disabled="0" errors="0" failures="1">
        <testcase name="a::b" classname="headstart::cli" timestamp="2026" time="1.5">
            <system-out>x &lt; y</system-out>
            <system-err>PARTLY SKIPPED a::b: no xfs</system-err>
        </testcase>
        <testcase name="a::c" classname="headstart::cli" timestamp="2026" time="0.5">
            <system-err>
SKIPPED a::c: mounting needs root
</system-err>
        </testcase>
        <testcase name="a::d" classname="headstart::cli" timestamp="2026" time="1.1">
            <failure message="thread panicked" type="test failure with exit code 101">thread panicked</failure>
            <system-out>made a file</system-out>
            <system-err>thread 'a::d' panicked at a.rs:3:9:
not so
stack backtrace:
   0: std::panicking
             at /library/a.rs:1:2
</system-err>
        </testcase>
    </testsuite>
</testsuites>"#;
        let tally = read(report).unwrap();
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.skipped, ["headstart::cli a::c: mounting needs root"]);
        assert_eq!(tally.partly, ["headstart::cli a::b: no xfs"]);
        let output =
            ["---- headstart::cli a::d", "made a file", "thread 'a::d' panicked at a.rs:3:9:", "not so"];
        assert_eq!(tally.output, output);
        assert_eq!(tally.took[0], ("headstart::cli a::b".to_owned(), 1.5));
        assert!(read("no report").is_err());
    }
}
