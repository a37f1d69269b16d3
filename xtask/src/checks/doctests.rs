//! Examples in documentation: rustdoc runs them, and nextest does not.

use std::path::Path;
use std::process::Stdio;

use super::cargo;
use super::tally::Tally;

pub(super) fn run(root: &Path) -> Tally {
    let mut command = cargo::linting(root);
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]).args(cargo::locked());
    let output = match command.stderr(Stdio::inherit()).output() {
        Ok(output) => output,
        Err(error) => return Tally { failed: vec![format!("examples: {error}")], ..Tally::default() },
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let mut tally = count(&said);
    if !tally.failed.is_empty() || !output.status.success() {
        print!("{said}");
    }
    if !output.status.success() && tally.failed.is_empty() {
        tally.failed.push("examples: cargo test --doc did not end well".to_owned());
    }
    tally
}

/// Counts by the lines that rustdoc prints for each example.
fn count(said: &str) -> Tally {
    let mut tally = Tally::default();
    for test in said.lines().filter_map(|line| line.strip_prefix("test ")) {
        if test.ends_with(" ... ok") {
            tally.passed += 1;
        } else if let Some(name) = test.strip_suffix(" ... FAILED") {
            tally.failed.push(format!("example {name}"));
        } else if let Some(name) = test.strip_suffix(" ... ignored") {
            tally.skipped.push(format!("example {name}: marked as ignored"));
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_counted_one_by_one() {
        let said = "running 3 tests\ntest a.rs - a (line 3) ... ok\ntest a.rs - b (line 9) ... FAILED\n\
            test a.rs - c (line 12) - compile fail ... ok\n\ntest result: FAILED. 2 passed; 1 failed\n";
        let tally = count(said);
        assert_eq!(tally.to_string(), "2 passed, 1 failed, 0 skipped");
        assert_eq!(tally.failed, ["example a.rs - b (line 9)"]);
    }
}
