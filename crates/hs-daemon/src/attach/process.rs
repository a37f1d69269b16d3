//! This program, started again as the server of a guard.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Context;
use hs_serve::self_filling::Handover;
use hs_service::background::{again, inherit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Numbers of descriptors that a guard has left open for its server: group, file, sidecar, ledger.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors([i32; 4]);

impl FromStr for Descriptors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<i32>> = text.split(',').map(|word| word.parse().ok()).collect();
        let numbers = numbers.and_then(|numbers| numbers.try_into().ok()).map(Self);
        numbers.ok_or_else(|| format!("'{text}' is not four descriptors"))
    }
}

impl Descriptors {
    /// Takes them; only once.
    pub fn take(self) -> Handover {
        // SAFETY: the parent, this program too, passed these descriptors for this alone.
        let [group, writer, sidecar, ledger] = self.0.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Handover { group, writer, sidecar, ledger }
    }
}

/// How long a server that is told to end may take; it gives itself less.
const PATIENCE: Duration = Duration::from_secs(4);

/// Flags that only this process gets, each with a value.
const OWN_FLAGS: [&str; 4] = ["--ready-fd=", "--descriptors=", "--standby=", "--log-file="];

/// The arguments of a process of the guard: the guard's own `arguments` without [`OWN_FLAGS`], and `more`.
pub(super) fn of_guard(arguments: &[OsString], more: &[String]) -> anyhow::Result<Command> {
    let for_all = |word: &&OsString| {
        let word = word.to_string_lossy();
        !OWN_FLAGS.iter().any(|flag| word.starts_with(flag))
    };
    let arguments: Vec<OsString> = arguments.iter().filter(for_all).cloned().collect();
    let mut command = again(&arguments, "attach", more)?;
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    Ok(command)
}

/// A server that a guard has started.
pub(super) struct Server {
    child: Child,
    ended: OwnedFd,
    ready: Option<File>,
    began: Instant,
}

impl Server {
    /// Starts it; it holds `alive` open as long as it lives.
    pub(super) fn start(
        arguments: &[OsString],
        descriptors: [BorrowedFd<'_>; 4],
        alive: BorrowedFd<'_>,
        log_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let (ready, theirs) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("make a pipe")?;
        let [group, writer, sidecar, ledger] = descriptors.map(|fd| fd.as_raw_fd());
        let mut more = vec![
            format!("--descriptors={group},{writer},{sidecar},{ledger}"),
            format!("--ready-fd={}", theirs.as_raw_fd()),
        ];
        more.extend(log_file.map(|path| format!("--log-file={}", path.display())));
        let mut command = of_guard(arguments, &more)?;
        let [group, writer, sidecar, ledger] = descriptors;
        inherit(&mut command, &[group, writer, sidecar, ledger, theirs.as_fd(), alive]);
        let child = command.spawn().context("start the server")?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context("watch the server")?;
        Ok(Self { child, ended, ready: Some(ready.into()), began: Instant::now() })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How long ago it was started.
    pub(super) fn lived(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether it has reported that it fills.
    pub(super) const fn is_ready(&self) -> bool {
        self.ready.is_none()
    }

    /// Becomes readable when the server reports that it fills, or ends before.
    pub(super) fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.ready.as_ref().map(AsFd::as_fd)
    }

    /// Becomes readable when it ends.
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Reads the server's report that it fills; true when it does.
    pub(super) fn hear(&mut self) -> bool {
        if let Some(ready) = &mut self.ready
            && matches!(ready.read(&mut [0]), Ok(1))
        {
            self.ready = None;
        }
        self.is_ready()
    }

    /// Sends it a word, one a line.
    pub(super) fn tell(&mut self, word: &str) {
        use std::io::Write;
        if let Some(pipe) = &mut self.child.stdin {
            let _ = writeln!(pipe, "{word}");
        }
    }

    /// Asks it to end, and kills it when it takes too long.
    pub(super) fn terminate(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let end = Instant::now() + PATIENCE;
        let mut events = [PollFd::from_borrowed_fd(self.ended(), PollFlags::IN)];
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            match poll(&mut events, left.as_ref()) {
                Ok(1..) => return,
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        log::warn!("process {} does not end: it is killed", self.id());
        self.kill();
    }

    /// Ends it, whatever it waits for.
    pub(super) fn kill(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
    }

    /// Waits until it has ended.
    pub(super) fn wait(mut self) -> anyhow::Result<ExitStatus> {
        self.child.wait().context("wait for the server")
    }
}

/// How a process ended, for people.
pub(super) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("with code {code}"),
        (_, Some(signal)) => format!("by signal {signal}"),
        _ => "somehow".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_four_numbers() {
        assert_eq!("3,4,15,6".parse::<Descriptors>().expect("four").0, [3, 4, 15, 6]);
        for wrong in ["", "3,4,5", "3,4,5,6,7", "3,4,5,x"] {
            assert!(wrong.parse::<Descriptors>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_for_the_guard_alone_are_left_out() {
        let arguments =
            ["-v", "attach", "--foreground", "--ready-fd=7", "--standby=8", "a.hsi", "b"].map(OsString::from);
        let command = of_guard(&arguments, &["--descriptors=1,2,3".to_owned()]).expect("made");
        let words: Vec<_> = command.get_args().collect();
        assert_eq!(words, ["-v", "attach", "--descriptors=1,2,3", "--foreground", "a.hsi", "b"]);
    }
}
