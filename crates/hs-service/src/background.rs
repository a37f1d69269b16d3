//! This program, started again: in the background, or as the server under a supervisor or a guard.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::Value;

use crate::own_arguments;
use crate::run_folder::RunFolder;
use crate::signals::{Ends, let_signals_through};
use hs_output::log_output;
use hs_output::show;

/// What is said of work that a signal has ended.
pub const ENDED: &str = "ended by a signal";

/// This program once more: `subcommand` with the same `arguments` (all but the program's name) and further
/// `flags`.
///
/// # Errors
/// When the arguments cannot be handed over.
pub fn again(arguments: &[OsString], subcommand: &str, flags: &[String]) -> anyhow::Result<Command> {
    // By this name it is found in any mount namespace; the other names of this program are not for the
    // server.
    let mut command = Command::new("/proc/self/exe");
    // The command comes first, or after flags for all commands; its own may stand before the rest.
    let (before, after) =
        arguments.split_at(arguments.iter().position(|word| word == subcommand).unwrap_or(0) + 1);
    let flags: Vec<OsString> = flags.iter().map(OsString::from).collect();
    own_arguments::give(command.arg0(name()), &[before, &flags, after].concat())
        .context("hand the arguments over")?;
    Ok(command)
}

/// The name of what this program starts. One that begins with `@` is not ended at shutdown, and hands that
/// on:
/// <https://systemd.io/ROOT_STORAGE_DAEMONS/>.
fn name() -> &'static str {
    let own = std::env::args_os().next().unwrap_or_default();
    if own.as_encoded_bytes().starts_with(b"@") { "@headstart" } else { "headstart" }
}

/// Lets the program that is started have these descriptors.
pub fn inherit(command: &mut Command, descriptors: &[BorrowedFd<'_>]) {
    let numbers: Vec<i32> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let clear = move || {
        for number in &numbers {
            // SAFETY: fcntl with these arguments changes a flag of the child's own copy of the descriptor.
            if unsafe { libc::fcntl(*number, libc::F_SETFD, 0) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: fcntl is safe between fork and exec, and nothing is allocated.
    unsafe {
        command.pre_exec(clear);
    }
}

/// Starts this program again in the foreground of a session of its own, changed by `with`. Gives the process,
/// and a pipe: a line comes when it serves, the end when it has failed. It ends when that pipe is closed
/// before.
///
/// # Errors
/// When it cannot be started.
pub fn begin(
    arguments: &[OsString],
    subcommand: &str,
    with: impl FnOnce(&mut Command),
) -> anyhow::Result<(Child, File)> {
    let (ready, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("make a pipe")?;
    let flags = ["--foreground".to_owned(), format!("--ready-fd={}", theirs.as_raw_fd())];
    let mut command = again(arguments, subcommand, &flags)?;
    inherit(&mut command, &[theirs.as_fd()]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    with(&mut command);
    // SAFETY: setsid is safe between fork and exec.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let child = command.spawn().context("start the server")?;
    Ok((child, File::from(ready)))
}

/// What a process that [`begin`] has started says of itself when it serves; nothing when it has failed.
///
/// # Errors
/// When the pipe cannot be read.
pub fn report_of(ready: &File) -> anyhow::Result<Option<String>> {
    let mut report = String::new();
    // Not to the end of the pipe, which other processes of the server may hold open.
    BufReader::new(ready).read_line(&mut report).context("wait for the server")?;
    Ok(report.ends_with('\n').then_some(report))
}

/// Starts this program again in the background, and waits until it serves or has failed. Prints the object
/// that it reports with `--json`, or its line for people. One of `signals` ends it before.
///
/// # Errors
/// When it cannot be started, or is not understood, or when a signal comes first.
pub fn start(arguments: &[OsString], subcommand: &str, signals: Option<&Ends>) -> anyhow::Result<i32> {
    let with = |command: &mut Command| {
        let_signals_through(command);
    };
    let (mut child, ready) = begin(arguments, subcommand, with)?;
    if signals.is_some_and(|signals| comes_before(signals, &ready)) {
        drop(ready);
        child.wait().context("wait for the server")?;
        bail!(ENDED);
    }
    if let Some(report) = report_of(&ready)? {
        let object: Value = serde_json::from_str(&report).context("understand the server's report")?;
        match object {
            Value::Null => {}
            Value::String(line) => hs_output::note!("{line}"),
            object => show::json(&object)?,
        }
        return Ok(0);
    }
    // It has said why on standard error, which it shares.
    let status = child.wait().context("wait for the server")?;
    Ok(status.code().unwrap_or(1))
}

/// Waits until a signal comes, or the process says something or ends.
fn comes_before(signals: &Ends, ready: &File) -> bool {
    loop {
        let mut events = [PollFd::new(ready, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        let polled = poll(&mut events, None);
        if !events[0].revents().is_empty() || polled.is_err_and(|errno| errno != Errno::INTR) {
            return false;
        }
        if signals.take().is_some() {
            return true;
        }
    }
}

/// A descriptor that the parent, this program too, has passed for this process alone. What this one starts
/// does not inherit it.
///
/// # Errors
/// When there is no such descriptor.
pub fn inherited(fd: i32) -> anyhow::Result<OwnedFd> {
    // SAFETY: the parent passed the descriptor for this alone, and it is taken once.
    let inherited = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::CLOEXEC)
        .with_context(|| format!("find descriptor {fd}"))?;
    Ok(inherited)
}

/// Who waits until a background server serves.
pub struct Parent(File);

impl Parent {
    /// The one who passed `--ready-fd`. What this process starts does not inherit it.
    ///
    /// # Errors
    /// When there is no such descriptor.
    pub fn at(fd: i32) -> anyhow::Result<Self> {
        Ok(Self(File::from(inherited(fd).context("find the parent")?)))
    }

    /// Becomes an error when the parent has stopped waiting.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Everything is served. The parent prints `report`, an object or a line for people, unless it is null.
    ///
    /// # Errors
    /// When the parent has stopped waiting.
    pub fn tell(mut self, report: &Value) -> anyhow::Result<()> {
        self.0.write_all(format!("{report}\n").as_bytes()).context("tell the parent")
    }
}

/// The file for messages where the system has no log. It stays behind when its process dies or fails: what it
/// fails of is said last.
pub struct LogFile(Option<PathBuf>);

impl LogFile {
    /// One of this process in `folder`.
    pub fn of(folder: Option<&RunFolder>) -> Self {
        if let Some(folder) = folder {
            folder.forget_the_dead();
        }
        Self(folder.map(|folder| folder.path().join(format!("{}.log", std::process::id()))))
    }

    /// From now on messages go to the system's log, or here.
    ///
    /// # Errors
    /// When standard error cannot be given back.
    pub fn go_to_background(&self) -> anyhow::Result<()> {
        log_output::go_to_background(|| self.create()).context("go to the background")
    }

    /// Removes it at a clean end.
    pub fn remove(self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }

    fn create(&self) -> Option<File> {
        let path = self.0.as_ref()?;
        log_output::create_log(path).inspect_err(|error| log::warn!("{}: {error}", path.display())).ok()
    }
}
