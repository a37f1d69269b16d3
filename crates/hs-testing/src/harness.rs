//! A test harness for programs that start themselves again, and so have a `main` of their own.

#![allow(clippy::print_stdout, reason = "standard output is the report of the tests")]

use std::ffi::OsStr;
use std::process::ExitCode;

/// A test: its name and what it does.
pub type Test = (&'static str, fn());

/// Runs the tests whose name holds `filter`, one after the other. It prints what the usual harness prints, so
/// that the results can be counted.
pub fn run_in_order<'a>(tests: impl IntoIterator<Item = &'a Test>, filter: &OsStr) -> ExitCode {
    let filter = filter.to_string_lossy();
    let filter = if filter.starts_with('-') { "" } else { &*filter };
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(filter)) {
        let ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        *if ok { &mut passed } else { &mut failed } += 1;
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed; 0 ignored");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
