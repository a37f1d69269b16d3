//! `headstart doctor`: what this kernel and machine can do, what is missing, and what to do about it.
//!
//! Wherever the kernel can be asked, it is asked, by doing the thing once in a child process; its
//! version is consulted only for what leaves no trace.

use std::io::Write;

use anyhow::Context;
use hs_output::installed::with_pages;
use serde::Serialize;

use crate::uses::Use;

mod filesystems;
mod filling;
mod fuse;
mod guests;
mod kernel;
mod loopdev;
mod machine;
mod namespaces;
mod page_cache;
mod table;
mod tools;
mod trial;
mod uses;

/// How well one thing that headstart uses works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    /// It works.
    Ok,
    /// It is not there, and what it is needed for does not work.
    Missing,
    /// What it is needed for works less well, or in another way.
    Degraded,
}

/// One thing that headstart uses.
#[derive(Clone, Debug, Serialize)]
struct Check {
    /// What was looked at.
    name: String,
    /// How well it works.
    state: CheckState,
    /// What was found: a version, a path, an amount, or the error.
    found: String,
    /// Which command or figure depends on it.
    needed_for: &'static str,
    /// What to do about it; empty when there is nothing to do.
    advice: String,
    /// True if `build`, `run`, `profile` or `optimize` do not work without it.
    main_path: bool,
}

impl Check {
    fn ok(name: impl Into<String>, found: impl Into<String>, needed_for: &'static str) -> Self {
        Self {
            name: name.into(),
            state: CheckState::Ok,
            found: found.into(),
            needed_for,
            advice: String::new(),
            main_path: false,
        }
    }

    /// The same check with another outcome and what to do about it.
    fn but(mut self, state: CheckState, advice: impl Into<String>) -> Self {
        self.state = state;
        self.advice = advice.into();
        self
    }

    /// The same check, as one that the main path stands on.
    fn on_main_path(mut self, needed: bool) -> Self {
        self.main_path = needed;
        self
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    main_path_works: bool,
    checks: &'a [Check],
    uses: &'a [Use],
}

/// Examines this machine and prints what was found, as a table or as one JSON object.
///
/// With `quiet` the table is printed only if something is missing on the main path.
///
/// Returns whether the main path (build, run, profile, optimize) works, which decides the exit code.
///
/// # Errors
///
/// Only if the result cannot be written; a reader that has gone away is no error.
pub fn run(json: bool, quiet: bool) -> anyhow::Result<bool> {
    let checks = examine();
    let works = main_path_works(&checks);
    if quiet && works && !json {
        return Ok(true);
    }
    let uses = uses::of(&checks);
    let text = if json {
        serde_json::to_string_pretty(&Report { main_path_works: works, checks: &checks, uses: &uses })? + "\n"
    } else {
        table::render(&checks, &uses)
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("could not write the result of doctor")
        }
        _ => Ok(works),
    }
}

fn examine() -> Vec<Check> {
    let user = namespaces::User::current();
    let mut checks = kernel::checks();
    checks.extend(namespaces::checks(user));
    checks.extend(fuse::checks(user));
    checks.extend(filesystems::checks(user));
    checks.extend(filling::checks());
    checks.extend(loopdev::checks(user));
    checks.extend(page_cache::checks(user));
    checks.extend(machine::checks());
    checks.extend(tools::checks(user));
    checks.extend(guests::checks(user));
    for check in &mut checks {
        check.advice = with_pages(&check.advice);
    }
    checks
}

fn main_path_works(checks: &[Check]) -> bool {
    checks.iter().all(|check| !(check.main_path && check.state == CheckState::Missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_something_missing_on_the_main_path_stops_it() {
        let check = |state, main_path| Check::ok("x", "", "").but(state, "").on_main_path(main_path);
        assert!(main_path_works(&[check(CheckState::Missing, false), check(CheckState::Degraded, true)]));
        assert!(!main_path_works(&[check(CheckState::Ok, true), check(CheckState::Missing, true)]));
    }

    #[test]
    fn every_check_of_this_machine_that_is_not_ok_says_what_to_do() {
        let checks = examine();
        for check in &checks {
            assert!(!check.name.is_empty() && !check.found.is_empty(), "{check:?}");
            assert!(!check.needed_for.is_empty(), "{check:?}");
            assert_eq!(check.state == CheckState::Ok, check.advice.is_empty(), "{check:?}");
        }
        let mut names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), checks.len(), "two checks have one name");
        for name in uses::names() {
            assert!(names.contains(&name), "no check is called {name}");
        }
    }

    #[test]
    fn the_report_has_the_documented_keys() {
        let checks = [Check::ok("cores", "2", "all").but(CheckState::Degraded, "more cores")];
        let report =
            serde_json::to_value(Report { main_path_works: true, checks: &checks, uses: &uses::of(&checks) })
                .unwrap();
        assert_eq!(report["main_path_works"], true);
        assert_eq!(
            report["uses"][0],
            serde_json::json!({
                "name": "start a program", "command": "run", "state": "degraded",
                "says": "works slower: cores: more cores",
            })
        );
        assert_eq!(
            report["checks"][0],
            serde_json::json!({
                "name": "cores", "state": "degraded", "found": "2", "needed_for": "all",
                "advice": "more cores", "main_path": false,
            })
        );
    }
}
