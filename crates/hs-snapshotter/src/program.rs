//! This program, started for one call: `headstart mount` and `headstart build`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use hs_service::keeper::Offer;
use hs_service::own_arguments;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::waiting::Call;

/// The most bytes of what a program says of its failure.
const MOST_SAID_BYTES: u64 = 16 << 10;

/// Runs a command of this program to its end. It is killed when it is too late.
pub(crate) fn run(
    arguments: &[OsString],
    offer: Option<&Offer>,
    call: &Call,
    patience: Duration,
) -> anyhow::Result<()> {
    let name = arguments.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let mut command = Command::new("/proc/self/exe");
    own_arguments::give(command.arg0("headstart"), arguments).context("hand the arguments over")?;
    if let Some(offer) = offer {
        offer.go_with(&mut command);
    }
    // No pipe: a server that stays may have it for longer than this waits.
    let mut said = File::from(memfd_create("headstart-said", MemfdFlags::CLOEXEC)?);
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
        let mut text = Vec::new();
        said.rewind().and_then(|()| said.take(MOST_SAID_BYTES).read_to_end(&mut text).map(drop))?;
        let text = String::from_utf8_lossy(&text);
        bail!("{}", text.trim().trim_start_matches("headstart: ").replace('\n', "; "));
    }
    Ok(())
}
