//! This program, started for one call: `headstart mount` and `headstart build`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use hs_service::background::{self, inherit};
use hs_service::keeper::Offer;
use hs_service::own_arguments;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::waiting::Call;

/// How long a supervisor that has closed its sockets may take to be gone.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of what a program says of its failure.
const MOST_SAID_BYTES: u64 = 16 << 10;

/// Descriptors that a mount is given.
pub(crate) struct Given<'a> {
    /// The keeper's.
    pub(crate) offer: &'a Offer,
    /// The pipe with what opens the image.
    pub(crate) opening: Option<OwnedFd>,
}

/// `headstart mount` in the background, which may not serve yet.
pub(crate) struct Mounting {
    supervisor: Child,
    /// Brings a line when it serves.
    ready: File,
    /// What it says of a failure.
    said: File,
}

/// How one went.
pub(crate) enum Went {
    /// It had begun to serve.
    Served,
    /// Another process, or the kernel for want of memory, has killed it before.
    Killed,
    /// It gave up.
    Failed(anyhow::Error),
}

/// Starts `headstart mount` in the background.
pub(crate) fn mount(arguments: &[OsString], given: &Given<'_>) -> anyhow::Result<Mounting> {
    let said = File::from(memfd_create("headstart-said", MemfdFlags::CLOEXEC)?);
    let stderr = said.try_clone()?;
    let (supervisor, ready) = background::begin(arguments, "mount", |command| {
        given.offer.go_with(command);
        if let Some(opening) = &given.opening {
            inherit(command, &[opening.as_fd()]);
        }
        command.stderr(stderr);
    })?;
    Ok(Mounting { supervisor, ready, said })
}

impl Mounting {
    /// Waits until it serves; gives its supervisor. When it is too late it ends by itself.
    pub(crate) fn wait(self, call: &Call, patience: Duration) -> anyhow::Result<Child> {
        if let Err(over) = call.wait("`headstart mount`", self.ready.as_fd(), patience) {
            drop(self.ready);
            reap(self.supervisor);
            return Err(over.into());
        }
        if background::report_of(&self.ready)?.is_some() {
            return Ok(self.supervisor);
        }
        match self.went()? {
            Went::Failed(error) => Err(error),
            Went::Served | Went::Killed => bail!("it was killed before it served"),
        }
    }

    /// How one went that is gone, or does not listen any more.
    pub(crate) fn went(mut self) -> anyhow::Result<Went> {
        let process = pidfd_open(Pid::from_child(&self.supervisor), PidfdFlags::empty())?;
        if Call::default().wait("the end", process.as_fd(), END_PATIENCE).is_err() {
            self.supervisor.kill()?;
        }
        let status = self.supervisor.wait().context("wait for `headstart mount`")?;
        if background::report_of(&self.ready)?.is_some() {
            return Ok(Went::Served);
        }
        Ok(if status.code().is_some() { Went::Failed(failure(self.said)?) } else { Went::Killed })
    }
}

/// Waits for the end of a process on a thread of its own: it may have something to take down before.
pub(crate) fn reap(mut child: Child) {
    let reaping = std::thread::Builder::new().name("reap".to_owned()).spawn(move || child.wait());
    if let Err(error) = reaping {
        log::debug!("a process stays a zombie: {error}");
    }
}

/// What a program has said of its failure.
fn failure(mut said: File) -> anyhow::Result<anyhow::Error> {
    let mut text = Vec::new();
    said.rewind().and_then(|()| said.take(MOST_SAID_BYTES).read_to_end(&mut text).map(drop))?;
    let text = String::from_utf8_lossy(&text);
    Ok(anyhow::anyhow!("{}", text.trim().trim_start_matches("headstart: ").replace('\n', "; ")))
}

/// Runs a command of this program to its end. It is killed when it is too late.
pub(crate) fn run(arguments: &[OsString], call: &Call, patience: Duration) -> anyhow::Result<()> {
    let name = arguments.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let mut command = Command::new("/proc/self/exe");
    own_arguments::give(command.arg0("headstart"), arguments).context("hand the arguments over")?;
    let said = File::from(memfd_create("headstart-said", MemfdFlags::CLOEXEC)?);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("start `headstart {name}`"))?;
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let waited = ended
        .map_err(anyhow::Error::from)
        .and_then(|ended| Ok(call.wait(&format!("`headstart {name}`"), ended.as_fd(), patience)?));
    if waited.is_err() {
        // What it has begun ends with it.
        let _ = child.kill();
    }
    let status = child.wait().with_context(|| format!("wait for `headstart {name}`"))?;
    waited?;
    if !status.success() {
        return Err(failure(said)?);
    }
    Ok(())
}

/// The folder in flags of `headstart mount`.
pub(crate) fn disk_cache_of(flags: &[OsString]) -> Option<&Path> {
    let at = flags.iter().position(|flag| flag.as_bytes().starts_with(b"--disk-cache"))?;
    match flags[at].as_bytes().strip_prefix(b"--disk-cache=") {
        Some(place) => Some(Path::new(OsStr::from_bytes(place))),
        None => flags.get(at + 1).map(Path::new),
    }
}
