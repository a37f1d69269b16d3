//! Clippy on every target. Its driver compiles what the tests run, so the workspace is compiled once for
//! both.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{Outcome, cargo};

pub(super) fn check(root: &Path) -> Outcome {
    if cargo::beside("clippy-driver").is_none() {
        return Outcome::Skipped("cargo clippy is missing; scripts/setup.sh says how to get it".into());
    }
    let denies = cargo::denies_warnings();
    match compile(root) {
        Ok((_, false)) => Outcome::Failed("not all of it compiles".into()),
        Ok((warnings, true)) if denies && warnings > 0 => Outcome::Failed(format!("{warnings} warnings")),
        Ok(_) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

/// Compiles all targets and shows what the compiler says; how many warnings there are, and whether all is
/// compiled. A warning does not keep tests from being compiled.
fn compile(root: &Path) -> Result<(usize, bool)> {
    let mut command = cargo::linting(root);
    command.args(["test", "--workspace", "--no-run", "--message-format", "json"]).args(cargo::locked());
    let mut cargo = command.stdout(Stdio::piped()).spawn().context("cargo")?;
    let mut warnings = 0;
    for line in BufReader::new(cargo.stdout.take().expect("a pipe")).lines() {
        if let Some(diagnostic) = diagnostic(&line?) {
            print!("{}", diagnostic.rendered);
            warnings += usize::from(diagnostic.level == "warning" && !diagnostic.spans.is_empty());
        }
    }
    Ok((warnings, cargo.wait()?.success()))
}

#[derive(Deserialize)]
struct Line {
    message: Option<Diagnostic>,
}

/// What the compiler says of a place.
#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: String,
    /// Empty for counts of warnings.
    spans: Vec<serde_json::Value>,
}

fn diagnostic(line: &str) -> Option<Diagnostic> {
    serde_json::from_str::<Line>(line).ok()?.message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_cargo_may_have_a_warning() {
        let line = r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"unused\n","spans":[{}]}}"#;
        let said = diagnostic(line).unwrap();
        assert_eq!(
            (said.level.as_str(), said.rendered.as_str(), said.spans.len()),
            ("warning", "unused\n", 1)
        );
        assert!(diagnostic(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(diagnostic("   Compiling a").is_none());
    }
}
