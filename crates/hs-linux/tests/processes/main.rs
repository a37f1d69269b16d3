//! Tests that start this program again: as init of a root, as a program at a terminal.
//!
//! They have a `main` of their own, because a program that becomes another must decide so before it has
//! threads.

mod own_mounts;
mod rootenv;
mod terminal;

use std::process::ExitCode;

use hs_linux::rootenv::{INIT_ARGUMENT, enter_private_mounts, init_main};
use hs_testing::{machine_has, run_in_order};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    if first == INIT_ARGUMENT {
        init_main(arguments);
    }
    if first == terminal::VICTIM {
        terminal::victim(&arguments.next().unwrap());
    }
    if std::env::args_os().any(|argument| argument == "--list") || !machine_has(&["sh", "sleep"]) {
        return ExitCode::SUCCESS;
    }
    enter_private_mounts().unwrap();
    // The tests compare tables of mounts: what the machine mounts meanwhile must not be in them.
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    run_in_order(rootenv::TESTS.iter().chain(own_mounts::TESTS).chain(terminal::TESTS), &first)
}
