//! Counting what test programs say.

use std::fmt;

/// Tests that ended, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed.extend_from_slice(&other.failed);
        self.output.extend_from_slice(&other.output);
        self.skipped.extend_from_slice(&other.skipped);
        self.partly.extend_from_slice(&other.partly);
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

/// What one program says while it runs, line by line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// By the lines with which a program sums up: it may have several.
    passed: usize,
    failed: usize,
    ignored: usize,
    names_failed: Vec<String>,
    output: Vec<String>,
    /// The output of a failed test is being read; so many of its lines are kept.
    in_output: Option<usize>,
    skipped: Vec<String>,
    partly: Vec<String>,
}

impl Lines {
    /// Takes in a line. False when it sums up, which is left to the summary of all.
    pub(super) fn take(&mut self, line: &str) -> bool {
        self.keep_output(line);
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += counted(result, "passed");
            self.failed += counted(result, "failed");
            self.ignored += counted(result, "ignored");
            return false;
        }
        if let Some(skipped) = line.strip_prefix(hs_testing::SKIPPED) {
            self.skipped.push(skipped.to_owned());
        } else if let Some(partly) = line.strip_prefix(hs_testing::PARTLY_SKIPPED) {
            self.partly.push(partly.to_owned());
        } else if let Some(test) =
            line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"))
        {
            self.names_failed.push(test.to_owned());
        }
        true
    }

    /// Keeps what a failed test printed, which comes under a head of its own when all tests have ended.
    fn keep_output(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.in_output = Some(0);
        } else if line == "failures:" {
            self.in_output = None;
        }
        let Some(kept) = &mut self.in_output else { return };
        if *kept < OUTPUT_LINES && !line.is_empty() && !is_of_a_stack(line) {
            *kept += 1;
            self.output.push(line.chars().take(OUTPUT_WIDTH).collect());
        }
    }

    /// What it all was, of a program of this name that ended well or not.
    pub(super) fn tally(mut self, program: &str, ended_well: bool) -> Tally {
        // A test may say of several things that they are missing. Without threads of their own all tests are
        // "main".
        let name = |said: &String| said.split_once(": ").map_or(said.clone(), |(name, _)| name.to_owned());
        self.skipped.dedup_by(|one, two| name(one) == name(two) && name(one) != "main");
        self.skipped.extend((0..self.ignored).map(|_| "marked as ignored".to_owned()));
        let of_program = |names: Vec<String>| names.iter().map(|name| format!("{program}: {name}")).collect();
        let mut failed: Vec<String> = of_program(self.names_failed);
        while failed.len() < self.failed {
            failed.push(format!("{program}: a test"));
        }
        if !ended_well && failed.is_empty() {
            failed.push(format!("{program}: it did not end well"));
        }
        let passed = (self.passed + self.ignored).saturating_sub(self.skipped.len());
        let output = self.output;
        Tally { passed, failed, output, skipped: of_program(self.skipped), partly: of_program(self.partly) }
    }
}

/// A line of a stack trace: `  12: a::b` or `   at a.rs:1`.
fn is_of_a_stack(line: &str) -> bool {
    let words = line.trim_start();
    let number = words.split_once(": ").map_or("", |(number, _)| number);
    let is_frame = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    words.len() < line.len() && (is_frame || words.starts_with("at ")) || line == "stack backtrace:"
}

/// The number before a word, as in `ok. 3 passed; 0 failed`.
fn counted(result: &str, word: &str) -> usize {
    let mut words = result.split([' ', ';', '.']).filter(|word| !word.is_empty()).peekable();
    let mut last = 0;
    for next in &mut words {
        if next == word {
            return last;
        }
        last = next.parse().unwrap_or(0);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(said: &str, ended_well: bool) -> Tally {
        let mut lines = Lines::default();
        for line in said.lines() {
            let _ = lines.take(line);
        }
        lines.tally("cli", ended_well)
    }

    #[test]
    fn tests_are_counted_and_skipped_ones_have_not_passed() {
        let said = "test a::b ... ok\nSKIPPED a::c: mounting needs root\ntest a::c ... ok\n\
            PARTLY SKIPPED a::b: no xfs\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        let tally = tally(said, true);
        assert_eq!((tally.passed, tally.failed.len()), (11, 0));
        assert_eq!(tally.skipped, ["cli: a::c: mounting needs root", "cli: marked as ignored"]);
        assert_eq!(tally.partly, ["cli: a::b: no xfs"]);
        assert_eq!(tally.to_string(), "11 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn what_a_failed_test_printed_is_kept_without_its_stack() {
        let said = "test a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\nmade a file\n\n\
            thread 'a::b' panicked at a.rs:3:9:\nnot so\nstack backtrace:\n   0: std::panicking\n\
            \u{20}            at /library/a.rs:1:2\nnote: more\n\n\nfailures:\n    a::b\n";
        let said = tally(said, false);
        let kept = [
            "---- a::b stdout ----",
            "made a file",
            "thread 'a::b' panicked at a.rs:3:9:",
            "not so",
            "note: more",
        ];
        assert_eq!(said.output, kept);
    }

    #[test]
    fn failures_have_their_names_and_a_program_that_dies_is_one() {
        let said = "test a::b ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored";
        assert_eq!(tally(said, false).failed, ["cli: a::b"]);
        assert_eq!(tally("test a::b ... ok\n", false).failed, ["cli: it did not end well"]);
    }
}
