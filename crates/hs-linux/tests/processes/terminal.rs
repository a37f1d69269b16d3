//! A command at a terminal: Ctrl-C belongs to it, and to it alone.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use hs_linux::rootenv::{RootEnv, RootOptions, SpawnOptions, enter_private_mounts};
use hs_testing::Test;

pub(crate) const TESTS: &[Test] = &[("ctrl_c_reaches_the_command_once", ctrl_c_reaches_the_command_once)];

/// The first argument that makes this program one that runs a command at its terminal.
pub(crate) const VICTIM: &str = "__terminal_victim";

const SCRIPT: &str = "trap 'count=x$count' INT; trap 'echo count $count; exit 3' TERM
    test -t 0 && test -t 1 && echo ready; while :; do sleep 0.01; test -z $count || kill $$; done";

/// Runs the command and ends with its exit code, as `headstart run` does.
pub(crate) fn victim(workdir: &OsStr) -> ! {
    enter_private_mounts().unwrap();
    let env = RootEnv::prepare(Path::new("/"), Path::new(workdir), RootOptions::default()).unwrap();
    let child = env.spawn(&["sh", "-c", SCRIPT].map(Into::into), SpawnOptions::default()).unwrap();
    let exit = child.wait().unwrap();
    drop(env);
    std::process::exit(exit.code())
}

/// A pseudo-terminal: our end, and the one that programs sit at.
fn open_terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: both numbers live until the call returns, the other arguments may be null; the new descriptors
    // have no other owner.
    unsafe {
        let null = std::ptr::null_mut();
        let opened = libc::openpty(&raw mut ours, &raw mut theirs, null, std::ptr::null(), std::ptr::null());
        assert_eq!(opened, 0, "{}", io::Error::last_os_error());
        (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}

/// Reads what the terminal shows until `text` is there, or no program has the terminal open any more.
fn read_until(terminal: &mut File, shown: &mut String, text: &str) {
    let mut bytes = [0; 256];
    while !shown.contains(text) {
        match terminal.read(&mut bytes) {
            // EIO is how a terminal says that the last program has gone.
            Ok(0) | Err(_) => return,
            Ok(len) => shown.push_str(&String::from_utf8_lossy(&bytes[..len])),
        }
    }
}

fn ctrl_c_reaches_the_command_once() {
    let workdir = tempfile::tempdir().unwrap();
    let (mut ours, theirs) = open_terminal();
    let number = theirs.as_raw_fd();
    let end = || Stdio::from(theirs.try_clone().unwrap());
    let mut command = Command::new("/proc/self/exe");
    command.arg(VICTIM).arg(workdir.path()).stdin(end()).stdout(end()).stderr(end());
    // SAFETY: two system calls, both allowed after fork: a new session, with this terminal as its own.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() < 0 || libc::ioctl(number, libc::TIOCSCTTY, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut victim = command.spawn().unwrap();
    drop((command, theirs));
    let mut shown = String::new();
    read_until(&mut ours, &mut shown, "ready");
    // The terminal turns this into SIGINT for all processes in the foreground: this program, init, the shell.
    ours.write_all(&[3]).unwrap();
    read_until(&mut ours, &mut shown, "no such text");
    assert!(shown.trim_end().ends_with("count x"), "{shown:?}");
    assert_eq!(victim.wait().unwrap().code(), Some(3), "{shown:?}");
}
