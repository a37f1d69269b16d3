//! What became of tests, counted.

use std::fmt;

/// Tests that ended, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// So many did what they should, without those that were skipped.
    pub(crate) passed: usize,
    /// Names.
    pub(crate) failed: Vec<String>,
    /// What failed tests printed, without stack traces.
    pub(crate) output: Vec<String>,
    /// Names and reasons.
    pub(crate) skipped: Vec<String>,
    /// The same of tests that passed without a part of what they test.
    pub(crate) partly: Vec<String>,
    /// Names and seconds.
    pub(crate) took: Vec<(String, f64)>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed.extend_from_slice(&other.failed);
        self.output.extend_from_slice(&other.output);
        self.skipped.extend_from_slice(&other.skipped);
        self.partly.extend_from_slice(&other.partly);
        self.took.extend_from_slice(&other.took);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped, .. } = self;
        write!(f, "{passed} passed, {} failed, {} skipped", failed.len(), skipped.len())
    }
}

/// Of what a failed test printed so much is repeated at the end.
const OUTPUT_LINES: usize = 40;
const OUTPUT_WIDTH: usize = 1000;

/// What a failed test printed, without stack traces and not too much of it.
pub(super) fn without_stack(stdout: &str, stderr: &str) -> Vec<String> {
    let lines = stdout.lines().chain(stderr.lines()).filter(|line| !line.is_empty() && !is_of_a_stack(line));
    lines.take(OUTPUT_LINES).map(|line| line.chars().take(OUTPUT_WIDTH).collect()).collect()
}

/// A line of a stack trace: `  12: a::b` or `   at a.rs:1`.
fn is_of_a_stack(line: &str) -> bool {
    let words = line.trim_start();
    let number = words.split_once(": ").map_or("", |(number, _)| number);
    let is_frame = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    words.len() < line.len() && (is_frame || words.starts_with("at ")) || line == "stack backtrace:"
}
