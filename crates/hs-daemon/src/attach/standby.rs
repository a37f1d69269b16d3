//! The third process behind a file that fills itself. It holds the same fanotify group, and is the next guard
//! when guard and server have died together. Without it the kernel would then allow every read.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::Context;
use hs_output::log_output;
use hs_serve::self_filling::Attachment;
use hs_service::background::inherit;
use hs_service::careful;
use hs_service::signals::Ends;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Attach;
use super::guard;
use super::guarded::Guarded;
use super::process::{Descriptors, of_guard};

/// What a guard sends when a client was told that the file can be read.
const READY: &[u8] = b"ready ";
/// What a guard sends when it ends in order.
const END: &[u8] = b"end";
/// Another name than the program's, so that a command which kills all processes of that name leaves this one.
const NAME: &std::ffi::CStr = c"hs-standby";
/// So many may be started: where they are always killed, more do not help.
const MOST_PROCESSES: u32 = 100;

/// The process that replaces a guard, and the pipe by which it learns whether the guard lives.
pub(super) struct Standby {
    /// The end of the pipe that it reads.
    line: OwnedFd,
    /// Open in the guard and in every server: end of file means that they have all died.
    alive: File,
    process: Option<(Child, OwnedFd)>,
    started: u32,
    is_ready: bool,
}

impl Standby {
    /// Makes the pipe; there is no process yet.
    pub(super) fn new() -> anyhow::Result<Self> {
        let (line, alive) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("make a pipe")?;
        Ok(Self { line, alive: alive.into(), process: None, started: 0, is_ready: false })
    }

    /// Starts the process, if there is none.
    pub(super) fn start(
        &mut self,
        arguments: &[OsString],
        descriptors: [BorrowedFd<'_>; 4],
        log_file: Option<&Path>,
    ) -> anyhow::Result<()> {
        if self.process.is_some() || self.started == MOST_PROCESSES {
            return Ok(());
        }
        self.started += 1;
        if self.is_ready {
            // A new standby has not received the message that its predecessor got.
            self.tell_ready();
        }
        let [group, writer, sidecar, ledger] = descriptors.map(|fd| fd.as_raw_fd());
        let mut more = vec![
            format!("--descriptors={group},{writer},{sidecar},{ledger}"),
            format!("--standby={}", self.line.as_raw_fd()),
        ];
        more.extend(log_file.map(|path| format!("--log-file={}", path.display())));
        let mut command = of_guard(arguments, &more)?;
        command.stdin(Stdio::null());
        let [group, writer, sidecar, ledger] = descriptors;
        inherit(&mut command, &[group, writer, sidecar, ledger, self.line.as_fd()]);
        let child = command.spawn().context("start the process that stands by")?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
            .context("watch the process that stands by")?;
        self.process = Some((child, ended));
        Ok(())
    }

    /// Becomes readable when the process has died.
    pub(super) fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(|(_, ended)| ended.as_fd())
    }

    /// The process has died.
    pub(super) fn lost(&mut self) {
        if let Some((mut child, _)) = self.process.take() {
            let _ = child.wait();
        }
    }

    /// The descriptor that a server holds as long as it lives.
    pub(super) fn alive(&self) -> BorrowedFd<'_> {
        self.alive.as_fd()
    }

    /// A client was told that the file can be read: from now on the file must stay guarded.
    pub(super) fn tell_ready(&mut self) {
        self.is_ready = true;
        let _ = self.alive.write_all(READY);
    }

    /// The guard ends in order, and needs no replacement. A guard that fails does not call this, and the
    /// standby replaces it when the server has ended too.
    pub(super) fn dismiss(&mut self) {
        let _ = self.alive.write_all(END);
        self.lost();
    }
}

/// Waits until guard and server have died, and guards the file then; ends at once when the guard sends that
/// it ends.
pub(super) fn stand_by(
    args: &Attach,
    arguments: &[OsString],
    descriptors: Descriptors,
    alive: i32,
) -> anyhow::Result<i32> {
    let signals = Ends::block()?;
    // In a session of its own, the end of a terminal does not end this process.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(NAME);
    let attachment = Attachment::resume(&args.file, descriptors.take())?;
    if let Some(path) = &args.log_file {
        log_output::go_to_background(|| File::options().create(true).append(true).open(path).ok())
            .context("go to the background")?;
    }
    careful::take_care();
    // SAFETY: the guard, this program too, passed the descriptor for this alone.
    let mut alive = File::from(unsafe { OwnedFd::from_raw_fd(alive) });
    let (mut said, mut piece) = (Vec::new(), [0; 16]);
    while !said.ends_with(END) {
        match alive.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => said.extend(&piece[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("wait for the guard"),
        }
    }
    // If no client was told of the file, it needs no guard.
    if said.ends_with(END) || !said.starts_with(READY) {
        return Ok(0);
    }
    log::error!(
        "{}: its guard and its server have died: process {} guards it from now on",
        args.file.display(),
        std::process::id()
    );
    let _ = rustix::thread::set_name(c"headstart");
    guard::take_over(Guarded::new(attachment), arguments, args.log_file.is_some(), &signals)
}
