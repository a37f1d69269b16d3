//! What every change must pass, and `make test` runs.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::tally::Tally;
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

/// What uses no cargo begins at once and goes on beside the others, since it mostly keeps one processor busy.
pub(crate) const BESIDE: &[&str] = &["ui"];

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
    let targets = match documented(root) {
        Ok(targets) => targets,
        Err(error) => return Outcome::Failed(format!("{error:#}")),
    };
    let mut command = cargo::command(root);
    command.args(["doc", "--workspace", "--no-deps", "--document-private-items"]).args(cargo::locked());
    command.args(targets);
    let denies = cargo::denies_warnings();
    if denies {
        command.env("RUSTDOCFLAGS", "-D warnings");
    }
    // What `lints` has checked is not checked again, since this is how cargo clippy calls cargo.
    if let Some(driver) = cargo::beside("clippy-driver") {
        let lints = if denies { "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__" } else { "" };
        command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", lints);
    }
    Outcome::of(&mut command)
}

/// The targets that cargo documents, named: with an example among them it builds dependencies with the
/// features that tests need, which are built already.
fn documented(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = cargo::command(root).args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let targets: Vec<Target> = metadata.packages.into_iter().flat_map(|package| package.targets).collect();
    let of =
        |kind: &'static str| targets.iter().filter(move |target| target.kind.iter().any(|it| it == kind));
    let programs = of("bin").filter(|target| target.doc).map(|target| ["--bin".into(), target.name.clone()]);
    let example = of("example").take(1).map(|target| ["--example".into(), target.name.clone()]);
    Ok(std::iter::once("--lib".into()).chain(programs.chain(example).flatten()).collect())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
    doc: bool,
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
