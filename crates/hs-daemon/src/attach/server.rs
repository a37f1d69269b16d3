//! The process that fills.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, bail};
use hs_fill::{Attachment, FillOptions, SelfFilling, limit_descriptors};
use hs_serve::Prefetching;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Attach;
use super::process::Descriptors;
use hs_output::log_output;
use hs_service::careful::{self, resolve};
use hs_service::ending::Deadline;
use hs_service::run_folder::{RunFolder, StatusSocket};
use hs_service::signals::Ends;
use hs_service::status::{FillStatus, PrefetchStatus, Status, Subject, unix_now};
use hs_start::medium;
use hs_start::on_medium::OnMedium;
use hs_start::start;

/// How often the server checks for programs that read the file without an event, such as a loop device.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Fills the file until it is complete, or a signal comes. The descriptors come from the guard.
pub(super) fn serve(args: &Attach, descriptors: Descriptors) -> anyhow::Result<()> {
    let signals = Ends::block()?;
    limit_descriptors().context("limit this process's descriptors")?;
    let attachment = Attachment::resume(&args.file, descriptors.take())?;
    let mode = if args.no_prefetch { Prefetching::Off } else { Prefetching::Hold };
    let config = start::config(&args.image, mode, Some(args.limits), &args.medium)?;
    let on_medium = medium::open(&args.image, &args.medium, &args.damage)?;
    let options = FillOptions { hydrate: args.hydrate };
    let config = on_medium.config(&config);
    let filling = SelfFilling::start(on_medium.store.clone(), &config, attachment, options)?;
    careful::take_care();
    let socket = StatusSocket::offer(RunFolder::offered().as_ref());
    if let Some(fd) = args.ready_fd {
        // SAFETY: the guard, this program too, passed the descriptor for this alone.
        let mut ready = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        if let Some(path) = &args.log_file {
            log_output::go_to_background(|| log_output::create_log(path).ok())
                .context("go to the background")?;
        }
        ready.write_all(b"1").context("tell the guard")?;
    }
    Serving {
        args,
        on_medium,
        filling,
        guard: Some(std::io::stdin()),
        since: unix_now(),
        is_uncovered: false,
    }
    .run(&signals, socket.as_ref())
}

struct Serving<'a> {
    args: &'a Attach,
    on_medium: OnMedium,
    filling: SelfFilling,
    /// Messages of the guard; end of file when the guard has died.
    guard: Option<std::io::Stdin>,
    since: f64,
    is_uncovered: bool,
}

impl Serving<'_> {
    fn run(mut self, signals: &Ends, socket: Option<&StatusSocket>) -> anyhow::Result<()> {
        loop {
            let ended = self.filling.ended();
            let mut events = vec![
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN),
            ];
            events.extend(socket.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)));
            events.extend(
                self.guard.as_ref().map(|guard| PollFd::from_borrowed_fd(guard.as_fd(), PollFlags::IN)),
            );
            match poll(&mut events, Some(&LOOK_EVERY)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => bail!("wait for a signal: {error}"),
            }
            let happened =
                |event: Option<&PollFd<'_>>| event.is_some_and(|event| !event.revents().is_empty());
            let (signal, finished) = (happened(events.first()), happened(events.get(1)));
            let told = self.guard.is_some() && happened(events.last());
            drop(events);
            drop(ended);
            if finished || signal {
                if !finished {
                    // From here on nothing may wait for the medium.
                    Deadline::begin(Vec::new(), || {}).lasts();
                }
                return Ok(());
            }
            if told {
                self.hear()?;
            }
            if let Some(socket) = socket {
                socket.answer(|| serde_json::to_vec(&self.status()).unwrap_or_default());
            }
            self.look();
        }
    }

    fn hear(&mut self) -> anyhow::Result<()> {
        let mut words = [0; 64];
        let length = self.guard.as_mut().map_or(Ok(0), |guard| guard.read(&mut words)).unwrap_or(0);
        if length == 0 {
            self.guard = None;
            log::error!(
                "{}: its guard is gone; when this process ends too, the one that stands by guards it",
                self.args.file.display()
            );
        } else if words[..length].starts_with(b"hydrate") {
            self.filling.hydrate()?;
        }
        Ok(())
    }

    /// Reports a program that reads the file without events, because such reads cannot be made to wait.
    fn look(&mut self) {
        if self.is_uncovered {
            return;
        }
        if let Some(user) = self.filling.uncovered_use() {
            self.is_uncovered = true;
            log::error!(
                "{}: {user} reads it without asking and sees zeros where blocks are missing: take it down",
                self.args.file.display()
            );
        }
    }

    fn status(&self) -> Status {
        let shown = |path: PathBuf| PathBuf::from(path.to_string_lossy().into_owned());
        let subject = Subject {
            fixed: Status {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                image: self.args.image.shown(),
                dir: shown(resolve(&self.args.file)),
                since: self.since,
                medium: self.args.medium.to_string(),
                log: log_output::place(),
                prefetch: PrefetchStatus {
                    mode: if self.args.no_prefetch { "off" } else { "fill" }.to_owned(),
                    ..PrefetchStatus::default()
                },
                ..Status::default()
            },
            served: self.filling.disk(),
            counters: self.on_medium.counters.clone(),
            filling: None,
            retries: self.on_medium.retries.clone(),
        };
        let (progress, stats) = (self.filling.progress(), self.filling.stats());
        let fill = FillStatus {
            guard: rustix::process::getppid().map_or(0, |guard| guard.as_raw_nonzero().get().cast_unsigned()),
            filled_bytes: progress.filled_bytes,
            disk_bytes: progress.disk_bytes,
            hydrating: self.filling.is_hydrating(),
            waited_readers: stats.waited,
            denied_readers: stats.denied,
            hot_chunks_used: stats.hot_chunks_used,
        };
        Status { fill: Some(fill), ..subject.now() }
    }
}
