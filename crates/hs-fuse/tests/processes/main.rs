//! Tests that start this program again: as init of a root, as servers that are killed.
//!
//! They have a `main` of their own, because a program that becomes another must decide so before it has
//! threads.

#[path = "../support/mod.rs"]
mod support;

mod killed;
mod resume;

use std::process::ExitCode;

use hs_linux::rootenv::{INIT_ARGUMENT, enter_private_mounts, init_main};
use hs_testing::{keep_mounts_apart, machine_has, run_in_order};

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
    run_in_order(&[killed::TESTS, resume::TESTS], || {
        machine_has(&["/dev/fuse", "mkfs.ext4", "sh", "sleep"]) && has_own_mounts()
    })
}

/// The tests compare tables of mounts.
fn has_own_mounts() -> bool {
    enter_private_mounts().unwrap();
    keep_mounts_apart();
    true
}
