//! What every change must pass, and `make test` runs.

use std::path::Path;
use std::process::Command;

use super::{Outcome, Step, book, cargo, doctests, nextest};
use crate::tidy;

pub(crate) const USUAL: &[Step] = &[
    ("format", format),
    ("lints", lints),
    ("tidy", check_rules),
    ("tests", |root| nextest::run(root, &WHOLE)),
    ("examples", |root| Outcome::Tests(Box::new(doctests::run(root)))),
    ("doc", documentation),
    ("book", book::check),
    ("deny", deny),
    ("ui", page),
];

/// What can be run again and again while one edits: no machine boots but one small guest, and no lint waits
/// for a second build.
pub(crate) const QUICK: &[Step] = &[
    ("format", format),
    ("tidy", check_rules),
    ("tests", |root| nextest::run(root, &nextest::Run { profile: "quick", ..WHOLE })),
];

const WHOLE: nextest::Run<'_> =
    nextest::Run { profile: "default", arguments: &["--workspace"], variables: &[] };

fn format(root: &Path) -> Outcome {
    if !cargo::has(root, "fmt") {
        return Outcome::Skipped("cargo fmt is missing; scripts/setup.sh says how to get it".into());
    }
    Outcome::of(cargo::command(root).args(["fmt", "--all", "--check"]))
}

fn lints(root: &Path) -> Outcome {
    if !cargo::has(root, "clippy") {
        return Outcome::Skipped("cargo clippy is missing; scripts/setup.sh says how to get it".into());
    }
    let mut command = cargo::command(root);
    command.args(["clippy", "--workspace", "--all-targets"]).args(cargo::locked());
    if cargo::denies_warnings() {
        command.args(["--", "-D", "warnings"]);
    }
    Outcome::of(&mut command)
}

fn check_rules(root: &Path) -> Outcome {
    match tidy::run(root) {
        Ok(violations) if violations.is_empty() => Outcome::Passed,
        Ok(violations) => {
            violations.iter().for_each(|violation| println!("{violation}"));
            Outcome::Failed(format!("{} violations", violations.len()))
        }
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn documentation(root: &Path) -> Outcome {
    let mut command = cargo::command(root);
    command.args(["doc", "--workspace", "--no-deps", "--document-private-items"]).args(cargo::locked());
    if cargo::denies_warnings() {
        command.env("RUSTDOCFLAGS", "-D warnings");
    }
    Outcome::of(&mut command)
}

/// `tidy` checks licences and sources from the same deny.toml, so cargo-deny is a second opinion that is
/// asked only where it is installed: compiling it takes longer than all other checks.
fn deny(root: &Path) -> Outcome {
    if !cargo::has(root, "deny") {
        println!("cargo-deny is not installed: licences and sources were checked by tidy");
        return Outcome::Passed;
    }
    Outcome::of(cargo::command(root).args(["deny", "check", "bans", "licenses", "sources"]))
}

/// The report page: types, style and unit tests, then the built page in a browser.
fn page(root: &Path) -> Outcome {
    let has =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success());
    for program in ["node", "npm", "chromium"] {
        if !has(program) {
            return Outcome::Skipped(format!("{program} is missing; scripts/setup.sh installs it"));
        }
    }
    let steps: [&[&str]; 5] = [
        &["ci", "--no-audit", "--no-fund"],
        &["run", "check"],
        &["test"],
        &["run", "build"],
        &["run", "test:browser"],
    ];
    for step in steps {
        match Outcome::of(Command::new("npm").args(step).current_dir(root.join("report-ui"))) {
            Outcome::Passed => {}
            Outcome::Failed(why) => return Outcome::Failed(format!("npm {}: {why}", step.join(" "))),
            other => return other,
        }
    }
    Outcome::Passed
}
