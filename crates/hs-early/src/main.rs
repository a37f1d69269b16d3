//! `headstart-accelerate`: what the service of an accelerated boot runs.
//!
//! A program of its own, because it is read from the disk before everything else: `headstart` is many times
//! as large.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use hs_early::{BootEnd, EarlyError};
use hs_linux::LinuxError;
use hs_linux::ends::Ends;
use hs_output::{log_output, note};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const HELP: &str = "\
Asks for the pages that the last boots used, and records this one. The service headstart-accelerate and scripts of
the initramfs call it; `headstart accelerate` is for people.

Usage: headstart-accelerate [boot]";

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        None | Some("boot") => {}
        Some("-h" | "--help") => {
            hs_output::show::line(HELP);
            return ExitCode::SUCCESS;
        }
        Some("--version") => {
            hs_output::show::line(format_args!("headstart-accelerate {}", env!("CARGO_PKG_VERSION")));
            return ExitCode::SUCCESS;
        }
        Some(_) => {
            note!("{HELP}");
            return ExitCode::from(2);
        }
    }
    log_output::start(false, 0);
    match run() {
        Ok(_) => ExitCode::SUCCESS,
        // Nothing is wrong with a system that cannot be helped.
        Err(error @ (EarlyError::FileSystem { .. } | EarlyError::NotMounted { .. })) => {
            log::warn!("nothing is read ahead: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            log_output::failure(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<BootEnd, EarlyError> {
    let ends = Ends::block().map_err(LinuxError::io("block", "signals"))?;
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    hs_early::boot(|| {
        let mut events = [PollFd::new(&ends, PollFlags::IN)];
        poll(&mut events, Some(&second)).is_ok_and(|ready| ready > 0)
    })
}
