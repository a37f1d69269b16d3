//! `headstart-accelerate`: what the service of an accelerated boot runs.
//!
//! A program of its own, because it is read from the disk before everything else: `headstart` is many times
//! as large.

#![forbid(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use hs_early::{BootEnd, EarlyError};
use hs_linux::LinuxError;
use hs_linux::ends::Ends;
use hs_output::{log_output, note};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const HELP: &str = "\
Asks for the pages that the last boots used, and records this one. The service headstart-accelerate and scripts of
the initramfs call it; `headstart accelerate` is for people.

Usage: headstart-accelerate [boot|initramfs]";

/// A name that begins so keeps systemd from ending a process when the system of the initramfs ends
/// (systemd's "Root storage daemons").
const KEPT: char = '@';

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        None | Some("boot") => {}
        Some("initramfs") => stay_behind_the_initramfs(),
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

/// Takes a name by which it is kept. chroot(1) of an initramfs gives it none, and not every shell does.
fn stay_behind_the_initramfs() {
    let name = std::env::args().next().unwrap_or_default();
    if !name.starts_with(KEPT) {
        let error = Command::new(&name).arg0(format!("{KEPT}{name}")).arg("initramfs").exec();
        log::warn!("it may end with the initramfs: {name}: {error}");
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
