//! Ctrl-C, at any moment.
//!
//! Mounts, loop devices and started commands go with this process, however it ends (see
//! `hs_serve::rootenv` and `loopdev`). What does not go by itself are the tools that it runs and the
//! files that are not finished: these are ended and removed here.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use hs_service::signals::Ends;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::cache;

/// The exit code that a shell gives to what Ctrl-C ended.
const EXIT_CODE: i32 = 128 + libc::SIGINT;
/// A killed tool may still be writing: how often, and how long in all, the unfinished files are tried.
const REMOVE_TRIES: u32 = 100;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);

/// Watches for signals until it is finished.
pub(super) struct Interrupt {
    thread: JoinHandle<()>,
    stop: OwnedFd,
}

impl Interrupt {
    /// Starts to watch for the signals in `ends`; when one comes, this process ends and `unfinished`
    /// is removed.
    pub(super) fn watch(ends: Ends, unfinished: PathBuf) -> anyhow::Result<Self> {
        let (stopped, stop) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("make a pipe")?;
        let watch = move || {
            if comes_first(&ends, &stopped) {
                give_up(&unfinished);
            }
        };
        let thread = std::thread::Builder::new().name("hs-interrupt".to_owned()).spawn(watch)?;
        Ok(Self { thread, stop })
    }

    /// Stops watching. Does not return when a signal has come, so that no error of a tool that was
    /// ended because of it is reported.
    pub(super) fn finish(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

/// Whether a signal comes before the pipe ends.
fn comes_first(ends: &Ends, stopped: &OwnedFd) -> bool {
    loop {
        let mut events =
            [PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) if events[0].revents().contains(PollFlags::IN) => return true,
            Ok(_) if !events[1].revents().is_empty() => return false,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn give_up(unfinished: &Path) -> ! {
    hs_output::note!("\nheadstart: interrupted, cleaning up");
    // Twice, for one that was being started.
    for _ in 0..2 {
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
    }
    let mut removed = cache::remove(unfinished);
    for _ in 0..REMOVE_TRIES {
        if removed.is_ok() {
            break;
        }
        std::thread::sleep(REMOVE_PAUSE);
        removed = cache::remove(unfinished);
    }
    if let Err(error) = removed {
        hs_output::note!("headstart: cannot remove {}: {error}; the next demo does", unfinished.display());
    }
    std::process::exit(EXIT_CODE)
}

/// The processes that any thread of this one has started.
fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .filter_map(Pid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_any_thread_are_found() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let found = std::thread::spawn(children).join().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&pid), "{found:?}");
    }
}
