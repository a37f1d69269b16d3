//! A start that is recorded while an image is converted: by `headstart profile`, a process of its own.

use std::ffi::OsString;
use std::io::stderr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use hs_linux::ends::let_signals_through;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

/// Which start is recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The command in place of the image's own arguments; these where it is empty.
    pub command: Vec<OsString>,
    /// By which line of its output it is ready; without one when it ends.
    pub ready: Option<String>,
}

/// The process that records, while there is one. It is locked while that is started, so none is missed.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Option<Pid>>);

impl Recorder {
    /// Records a start of the image in a file into the file `profile`. What the command writes goes to
    /// standard error.
    pub(crate) fn record(
        &self,
        image: &Path,
        profile: &Path,
        start: &Recorded,
        quiet: bool,
    ) -> anyhow::Result<()> {
        let mut recording = Command::new("/proc/self/exe");
        recording.arg0("headstart").args(quiet.then_some("--quiet")).arg("profile").arg(image);
        let ready = start.ready.iter().flat_map(|line| ["--ready", line]);
        recording.arg("-o").arg(profile).args(ready).arg("--").args(&start.command).stdin(Stdio::null());
        recording.stdout(stderr().as_fd().try_clone_to_owned().context("hand standard error on")?);
        let mut running = self.0.lock();
        let spawned = let_signals_through(&mut recording).spawn();
        let mut child = spawned.context("start `headstart profile`")?;
        *running = Some(Pid::from_child(&child));
        drop(running);
        let ended = child.wait();
        *self.0.lock() = None;
        let ended = ended.context("wait for `headstart profile`")?;
        if !ended.success() {
            bail!("the start was not recorded, so nothing is converted");
        }
        Ok(())
    }

    /// Ends the process. What waits for it goes on waiting: this process ends too, and says by which signal.
    pub(crate) fn end(&self) {
        let running = self.0.lock();
        if let Some(pid) = *running {
            let _ = kill_process(pid, Signal::TERM);
        }
        std::mem::forget(running);
    }
}
