//! A process that ends FUSE connections when this one is killed.
//!
//! The guard runs this program again. It holds the control files of the connections that this process reports
//! to it, and is notified of the death of the thread that started it. The notification comes at once, also
//! where another thread of the process waits for its own disk and cannot end.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use hs_fuse::Abort;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use crate::signals::Ends;

/// The hidden first argument with which the program is started as a guard.
pub const ARGUMENT: &str = "__guard";

/// How long the guard may take to begin.
const PATIENCE: Duration = Duration::from_secs(5);

/// The guard of this process. Dropped when the connections are taken down; it does nothing then.
pub struct Guard {
    stdin: Option<ChildStdin>,
    /// Until it has.
    begun: Option<Receiver<()>>,
}

impl Guard {
    /// Starts one. Without a guard everything works except the end of a killed process.
    pub fn start() -> Self {
        let (started, stdin) = bounded(1);
        let (begins, begun) = bounded(1);
        // The guard is notified of the death of this thread, which therefore lives as long as the process.
        let keep = move || {
            let child = Command::new("/proc/self/exe")
                .arg0_guard()
                .args([ARGUMENT, &std::process::id().to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .current_dir("/")
                .spawn();
            let mut child = match child {
                Ok(child) => child,
                Err(error) => return log::warn!("no process watches over the end of this one: {error}"),
            };
            let _ = started.send(child.stdin.take());
            if let Some(mut stdout) = child.stdout.take()
                && matches!(stdout.read(&mut [0]), Ok(1))
            {
                let _ = begins.send(());
            }
            let _ = child.wait();
        };
        let spawned = std::thread::Builder::new().name("hs-guard".to_owned()).spawn(keep);
        if let Err(error) = spawned {
            log::warn!("no process watches over the end of this one: {error}");
        }
        Self { stdin: stdin.recv().ok().flatten(), begun: Some(begun) }
    }

    /// From now on it ends this connection when this process is killed. Call it before anything waits for the
    /// disk.
    pub fn watch(&mut self, abort: &Abort) {
        let Some(stdin) = &mut self.stdin else { return };
        let (connection, target) = abort.place();
        let told = [format!("{connection} ").as_bytes(), target.as_os_str().as_bytes(), b"\n"].concat();
        let begun = self.begun.take();
        let begins =
            |()| begun.map_or(Ok(()), |begun| begun.recv_timeout(PATIENCE)).map_err(std::io::Error::other);
        if let Err(error) = stdin.write_all(&told).and_then(begins) {
            log::debug!("the guard does not work: {error}");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(b"end\n");
        }
    }
}

/// Only the name that lists of processes show.
trait NamedGuard {
    fn arg0_guard(&mut self) -> &mut Self;
}

impl NamedGuard for Command {
    fn arg0_guard(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::arg0(self, "headstart-guard")
    }
}

/// The guard itself; `arguments` follow [`ARGUMENT`].
pub fn guard_main(mut arguments: impl Iterator<Item = OsString>) -> ! {
    let parent = arguments.next().and_then(|text| text.to_str()?.parse().ok());
    std::process::exit(i32::from(parent.and_then(guard).is_none()))
}

fn guard(parent: i32) -> Option<()> {
    // A terminal's Ctrl-C, and a signal to the process group, are meant for the guarded process.
    let _ = rustix::process::setsid();
    let meant_for_it = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
    let signals = Ends::block_these(&[&meant_for_it[..], &[libc::SIGUSR1]].concat()).ok()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1)).ok()?;
    let is_alive = || rustix::process::getppid().is_some_and(|now| now.as_raw_nonzero().get() == parent);
    let mut stdin = BufReader::new(std::io::stdin());
    let mut aborts = Vec::new();
    let mut said_so = false;
    while is_alive() {
        if !std::mem::replace(&mut said_so, true) {
            let _ = std::io::stdout().write_all(b"r").and_then(|()| std::io::stdout().flush());
        }
        let input = std::io::stdin();
        let mut events =
            [PollFd::new(&signals, PollFlags::IN), PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
        let [signalled, told] = events.map(|event| !event.revents().is_empty());
        if told {
            let mut line = Vec::new();
            if stdin.read_until(b'\n', &mut line).is_err() || line.is_empty() {
                break;
            }
            if line == b"end\n" {
                return Some(());
            }
            aborts.extend(abort_of(&line));
        } else if signalled && signals.take() == Some(Signal::USR1) {
            break;
        }
    }
    aborts.iter().for_each(Abort::now);
    Some(())
}

/// `NUMBER PATH`.
fn abort_of(line: &[u8]) -> Option<Abort> {
    let line = line.strip_suffix(b"\n")?;
    let space = line.iter().position(|&byte| byte == b' ')?;
    let connection = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    Abort::of_mounted(connection, &PathBuf::from(OsString::from_vec(line[space + 1..].to_vec())))
}
