//! What every change must pass, and `make test` runs.

use std::path::Path;
use std::process::Command;

use super::tally::Tally;
use super::{Outcome, Step, book, cargo, doc, doctests, lints, nextest};
use crate::tidy;

pub(crate) const USUAL: &[Step] = &[
    ("format", format),
    ("tidy", check_rules),
    ("lints", lints::check),
    ("ui", page),
    ("tests", |root| nextest::run(root, &WHOLE)),
    ("examples", |root| Outcome::Tests(Box::new(doctests::run(root)))),
    ("doc", doc::check),
    ("book", book::check),
    ("deny", deny),
];

/// What goes on beside the steps behind it, since it uses no cargo and mostly keeps one processor busy. The
/// page's tests in a browser need the program, which `lints` compiles.
pub(crate) const BESIDE: &[&str] = &["ui"];

/// What can be run again and again while one edits: no machine boots but one small guest, and no lint waits
/// for a second build.
pub(crate) const QUICK: &[Step] = &[
    ("format", format),
    ("tidy", check_rules),
    ("tests", |root| nextest::run(root, &nextest::Run { profile: "quick", ..WHOLE })),
];

const WHOLE: nextest::Run<'_> =
    nextest::Run { profile: "default", arguments: &["--workspace"], variables: &[], plain: false };

fn format(root: &Path) -> Outcome {
    if !cargo::has(root, "fmt") {
        return Outcome::Skipped("cargo fmt is missing; scripts/setup.sh says how to get it".into());
    }
    Outcome::of(cargo::command(root).args(["fmt", "--all", "--check"]))
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

/// `tidy` checks licences and sources from the same deny.toml, so cargo-deny is a second opinion that is
/// asked only where it is installed: compiling it takes longer than all other checks.
fn deny(root: &Path) -> Outcome {
    if !cargo::has(root, "deny") {
        println!("cargo-deny is not installed: licences and sources were checked by tidy");
        return Outcome::Passed;
    }
    Outcome::of(cargo::command(root).args(["deny", "check", "bans", "licenses", "sources"]))
}

/// The report page: types, style and unit tests, then the built page in a browser. It runs beside other
/// checks, so what it says is shown when it has failed.
fn page(root: &Path) -> Outcome {
    let has =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success());
    for program in ["node", "npm", "chromium"] {
        if !has(program) {
            return Outcome::Skipped(format!("{program} is missing; scripts/setup.sh installs it"));
        }
    }
    // The last builds it, too.
    let steps: [&[&str]; 4] = [
        &["ci", "--no-audit", "--no-fund", "--prefer-offline"],
        &["run", "check"],
        &["test"],
        &["run", "test:browser"],
    ];
    for step in steps {
        let ended = Command::new("npm").args(step).current_dir(root.join("report-ui")).output();
        let (why, output) = match ended {
            Ok(output) if output.status.success() => continue,
            Ok(output) => (output.status.to_string(), [output.stdout, output.stderr].concat()),
            Err(error) => (error.to_string(), Vec::new()),
        };
        let output = String::from_utf8_lossy(&output).lines().map(str::to_owned).collect();
        let failed = vec![format!("ui: npm {}: {why}", step.join(" "))];
        return Outcome::Tests(Box::new(Tally { failed, output, ..Tally::default() }));
    }
    Outcome::Passed
}
