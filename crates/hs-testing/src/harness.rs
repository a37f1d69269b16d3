//! A test harness for programs that start themselves again, and so have a `main` of their own. It takes the
//! arguments that [cargo-nextest asks of one](https://nexte.st/docs/design/custom-test-harnesses/).

#![allow(clippy::print_stdout, reason = "standard output is the report of the tests")]

use std::process::ExitCode;

/// A test: its name and what it does.
pub type Test = (&'static str, fn());

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// The names of all tests.
    List,
    /// The names of those that are ignored: none.
    ListIgnored,
    /// The tests with this name, or with it in theirs.
    Run { name: String, exact: bool },
}

impl Asked {
    fn of(arguments: impl Iterator<Item = String>) -> Self {
        let (mut lists, mut ignored, mut exact, mut name) = (false, false, false, String::new());
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => lists = true,
                "--ignored" => ignored = true,
                "--exact" => exact = true,
                "--format" | "--test-threads" => drop(arguments.next()),
                flag if flag.starts_with('-') => {}
                _ => name = argument,
            }
        }
        match (lists, ignored) {
            (true, false) => Self::List,
            (true, true) => Self::ListIgnored,
            (false, _) => Self::Run { name, exact },
        }
    }

    fn wants(&self, test: &str) -> bool {
        matches!(self, Self::Run { name, exact } if if *exact { test == name } else { test.contains(name) })
    }
}

/// Lists the tests, or runs those that the arguments of this program name, one after the other. Before the
/// first it asks whether the machine is `ready` for them, which says itself what it lacks. It prints what the
/// usual harness prints.
pub fn run_in_order(tests: &[&[Test]], ready: impl FnOnce() -> bool) -> ExitCode {
    let asked = Asked::of(std::env::args().skip(1));
    let tests = tests.iter().copied().flatten();
    match asked {
        Asked::List => tests.for_each(|(name, _)| println!("{name}: test")),
        Asked::ListIgnored => {}
        Asked::Run { .. } if ready() => return run(tests.filter(|(name, _)| asked.wants(name))),
        Asked::Run { .. } => {}
    }
    ExitCode::SUCCESS
}

fn run<'a>(tests: impl Iterator<Item = &'a Test>) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests {
        let ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        *if ok { &mut passed } else { &mut failed } += 1;
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed; 0 ignored");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_nextest_and_of_people_are_understood() {
        let asked = |line: &str| Asked::of(line.split_whitespace().map(str::to_owned));
        assert_eq!(asked("--list --format terse"), Asked::List);
        assert_eq!(asked("--list --format terse --ignored"), Asked::ListIgnored);
        let one = asked("--exact a::kill --nocapture");
        assert!(one.wants("a::kill") && !one.wants("a::kills"));
        let some = asked("kill");
        assert!(some.wants("a::kills") && !some.wants("a::end"));
        assert!(asked("").wants("a::end"));
    }
}
