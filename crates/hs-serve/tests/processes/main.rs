//! Tests that start this program again: as init of a root, as a server that is killed.
//!
//! They have a `main` of their own, because a program that becomes another must decide so before it has
//! threads.

#![allow(clippy::print_stdout, reason = "standard output is this program's report")]

#[path = "../support/mod.rs"]
mod support;

mod killed;
mod resume;
mod rootenv;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use hs_serve::rootenv::{INIT_ARGUMENT, enter_private_mounts, init_main};

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    if first == INIT_ARGUMENT {
        init_main(arguments);
    }
    if first == killed::VICTIM {
        killed::victim(&arguments.next().unwrap());
    }
    if first == resume::VICTIM {
        resume::victim(&arguments.next().unwrap());
    }
    if first == terminal::VICTIM {
        terminal::victim(&arguments.next().unwrap());
    }
    if std::env::args_os().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    if !support::machine_has(&["mkfs.ext4", "sh", "sleep"]) {
        return ExitCode::SUCCESS;
    }
    enter_private_mounts().unwrap();
    // The tests compare tables of mounts: what the machine mounts meanwhile must not be in them.
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    let tests = rootenv::TESTS.iter().chain(killed::TESTS).chain(resume::TESTS).chain(terminal::TESTS);
    run(tests, &first)
}

/// Runs the tests whose name holds `filter`, one after the other: they count the machine's mounts. What it
/// says is what the usual harness says, so that it can be counted.
fn run<'a>(tests: impl Iterator<Item = &'a Test>, filter: &OsString) -> ExitCode {
    let filter = filter.to_string_lossy();
    let filter = if filter.starts_with('-') { "" } else { &*filter };
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests.filter(|(name, _)| name.contains(filter)) {
        let ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        *if ok { &mut passed } else { &mut failed } += 1;
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed; 0 ignored");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
