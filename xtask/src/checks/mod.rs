//! All checks, whatever became of those before, most of them one after another; and a summary that counts.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

mod book;
mod cargo;
pub(crate) mod doc;
mod doctests;
mod lints;
mod long;
mod nextest;
mod slowest;
mod space;
mod tally;
mod usual;

pub(crate) use long::LONG;
pub(crate) use tally::Tally;
use usual::BESIDE;
pub(crate) use usual::{QUICK, USUAL};

/// One check: its name, and what it does.
pub(crate) type Step = (&'static str, fn(&Path) -> Outcome);

/// What became of a check.
pub(crate) enum Outcome {
    Passed,
    /// With what to look for, in a few words.
    Failed(String),
    /// With what is missing: a failure in continuous integration.
    Skipped(String),
    /// The check consists of tests, which count one by one.
    Tests(Box<Tally>),
}

impl Outcome {
    /// What a program's end means, which has said itself what is wrong.
    fn of(command: &mut Command) -> Self {
        match command.status() {
            Ok(status) if status.success() => Self::Passed,
            Ok(status) => Self::Failed(status.to_string()),
            Err(error) => Self::Failed(format!("{}: {error}", command.get_program().display())),
        }
    }

    fn tally(self, step: &str) -> Tally {
        match self {
            Self::Passed => Tally { passed: 1, ..Tally::default() },
            Self::Failed(why) => Tally { failed: vec![format!("{step}: {why}")], ..Tally::default() },
            Self::Skipped(lack) if hs_testing::in_ci() => {
                let why = format!("{step}: {lack}, and CI must not skip it");
                Tally { failed: vec![why], ..Tally::default() }
            }
            Self::Skipped(lack) => Tally { skipped: vec![format!("{step}: {lack}")], ..Tally::default() },
            Self::Tests(tally) => *tally,
        }
    }
}

/// In place of a step: the seconds of tests and steps are kept in bench/results.
const KEEP: &str = "--keep";

/// Runs the steps, or those of them that are `wanted`, and prints the summary.
pub(crate) fn run(root: &Path, steps: &[Step], wanted: &[&str]) -> ExitCode {
    let keeps = wanted.contains(&KEEP);
    let wanted: Vec<&str> = wanted.iter().copied().filter(|word| *word != KEEP).collect();
    if let Some(unknown) = wanted.iter().find(|wanted| !steps.iter().any(|(name, _)| name == *wanted)) {
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no step {unknown}; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let began = Instant::now();
    let chosen = steps.iter().filter(|(name, _)| wanted.is_empty() || wanted.contains(name));
    let results: Vec<Ended> = thread::scope(|threads| {
        let (mut results, mut beside) = (Vec::new(), Vec::new());
        for step in chosen {
            if BESIDE.contains(&step.0) {
                beside.push(threads.spawn(|| take(root, step)));
            } else {
                results.push(take(root, step));
            }
        }
        results.extend(beside.into_iter().map(|step| step.join().expect("no panic")));
        results
    });
    let steps = results.iter().map(|ended| (format!("step {}", ended.name), ended.took.as_secs_f64()));
    let tests = results.iter().flat_map(|ended| ended.tally.took.iter().cloned());
    let mut took: Vec<_> = steps.chain(tests).collect();
    slowest::sort(&mut took);
    print!("{}", slowest::list(&took));
    if keeps && let Err(error) = slowest::keep(root, &took, began.elapsed().as_secs_f64()) {
        println!("The seconds are not kept: {error:#}");
    }
    let (summary, all_passed) = summary(&results);
    if !all_passed {
        space::full_disks(root).iter().for_each(|line| println!("{line}"));
    }
    print!("{summary}");
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn take(root: &Path, (name, step): &Step) -> Ended {
    println!("== {name}");
    let began = Instant::now();
    let tally = step(root).tally(name);
    Ended { name, took: began.elapsed(), tally }
}

/// A step that has been taken.
struct Ended {
    name: &'static str,
    took: Duration,
    tally: Tally,
}

/// What is said at the end; its last line is the sum. Whether nothing has failed.
fn summary(results: &[Ended]) -> (String, bool) {
    let mut all = Tally::default();
    let outputs = results.iter().flat_map(|ended| &ended.tally.output);
    // Here as well, since the log of a whole run is long and may be cut.
    let mut said: String = outputs.map(|line| format!("{line}\n")).collect();
    said += "== summary\n";
    for Ended { name, took, tally } in results {
        let word = if tally.failed.is_empty() { "passed" } else { "FAILED" };
        said += &format!("{word}  {name:<10} {tally} in {} s\n", took.as_secs());
        all.add(tally);
    }
    for (word, what) in [("skipped", &all.skipped), ("partly skipped", &all.partly), ("FAILED", &all.failed)]
    {
        for one in what {
            said += &format!("{word}: {one}\n");
        }
    }
    said += &format!("{all}\n");
    (said, all.failed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_sums_up_and_a_step_that_failed_hides_no_other() {
        let ended = |name, tally| Ended { name, took: Duration::from_secs(3), tally };
        let (failed, output) = (vec!["engine::a".into()], vec!["it is 3".into()]);
        let tests = Tally { passed: 7, failed, output, ..Tally::default() };
        let results = [
            ended("format", Outcome::Failed("exit status: 1".into()).tally("format")),
            ended("tests", tests),
            ended("tidy", Outcome::Passed.tally("tidy")),
        ];
        let (said, all_passed) = summary(&results);
        assert!(!all_passed && said.starts_with("it is 3\n== summary\n"), "{said}");
        assert_eq!(said.lines().last(), Some("8 passed, 2 failed, 0 skipped"), "{said}");
        assert!(said.contains("FAILED: format: exit status: 1\nFAILED: engine::a\n"), "{said}");
        let (said, all_passed) = summary(&results[2..]);
        assert!(all_passed && said.ends_with("1 passed, 0 failed, 0 skipped\n"), "{said}");
    }
}
