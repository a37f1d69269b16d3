//! What every change must pass, and `make test` runs.

use std::path::Path;

use super::{Outcome, Step, cargo, programs};
use crate::tidy;

pub(crate) const USUAL: &[Step] = &[
    ("format", format),
    ("lints", lints),
    ("tidy", check_rules),
    ("tests", |root| Outcome::Tests(programs::run(root))),
    ("doc", documentation),
    ("deny", deny),
];

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
