//! What tests of several crates share: skips that are never silent, a harness, noise, and the units that no
//! program prints.
//!
//! A test whose machine lacks something calls [`skip`] and returns. A user sees one line. In continuous
//! integration the test fails, because a test that is skipped there would never run. `xtask test` counts the
//! lines.

#![forbid(unsafe_code)]

mod harness;
mod machine;
mod mounts;
mod noise;
mod once;
mod typescript;
mod units;

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write;
use std::thread;

pub use harness::{Test, run_in_order};
pub use machine::machine_has;
pub use mounts::keep_mounts_apart;
pub use noise::noise;
pub use once::made_once;
pub use ts_rs;
pub use typescript::check_typescript;
pub use units::decimal_units;

/// Where these bytes lie in others, of which there may be hundreds of megabytes.
#[must_use]
pub fn place(all: &[u8], bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(all, bytes)
}

/// How a line begins that names a skipped test.
pub const SKIPPED: &str = "SKIPPED ";
/// How a line begins that names a test of which a part was skipped.
pub const PARTLY_SKIPPED: &str = "PARTLY SKIPPED ";

/// Whether continuous integration runs the tests: the variable `CI` is set, but not to `false` and not empty.
/// The Makefile and scripts/setup.sh use the same rule.
#[must_use]
pub fn in_ci() -> bool {
    means_ci(std::env::var_os("CI").as_deref())
}

fn means_ci(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "false")
}

/// Says that this test is skipped for want of `lack`. The test returns afterwards.
///
/// # Panics
/// In continuous integration.
#[track_caller]
pub fn skip(lack: impl Display) {
    say(SKIPPED, &lack, in_ci());
}

/// Says that a part of this test is skipped for want of `lack`. The test goes on with the rest.
///
/// # Panics
/// In continuous integration.
#[track_caller]
pub fn skip_part(lack: impl Display) {
    say(PARTLY_SKIPPED, &lack, in_ci());
}

#[track_caller]
fn say(word: &str, lack: &dyn Display, in_ci: bool) {
    assert!(!in_ci, "cannot run this test in CI: {lack}");
    let test = thread::current().name().unwrap_or("a test").to_owned();
    // Not eprintln!, which the harness swallows when a test passes. One write, so that lines stay whole.
    let _ = std::io::stderr().write_all(format!("\n{word}{test}: {lack}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_is_what_the_makefile_takes_for_it() {
        let means = |value: Option<&str>| means_ci(value.map(OsStr::new));
        assert!(means(Some("true")) && means(Some("1")));
        assert!(!means(None) && !means(Some("")) && !means(Some("false")));
    }

    #[test]
    #[should_panic(expected = "cannot run this test in CI: the moon is missing")]
    fn nothing_is_skipped_in_ci() {
        say(SKIPPED, &"the moon is missing", true);
    }
}
