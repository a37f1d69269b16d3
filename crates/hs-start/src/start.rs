//! One timed start: a command runs in the root of an image, or of another disk, on some medium.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_disk::Watch;
use hs_engine::queue::QueueConfig;
use hs_engine::{LateRule, PrefetchRate};
use hs_fuse::Session;
use hs_fuse::{ServedFile, ServedImage};
use hs_keep::{KeepFile, OpenedAs};
use hs_linux::rootenv::{Child, Confinement, Exit, RootEnv, RootOptions, SpawnOptions, Stream};
use hs_observe::{Observation, ObservedUsage};
use hs_serve::FileAccess;
use hs_serve::{MountFsOptions, MountedFs, Prefetching, ServeConfig, ServedDisk};
use hs_units::ByteSize;

use hs_store::{RetrySnapshot, Snapshot};

use crate::environment;
use crate::environment::Containment;
use crate::image::ImageSource;
use crate::learned::LearnedFolder;
use crate::limit;
use crate::medium::{self, Damage};
use crate::on_medium::OnMedium;
use crate::own_command::OwnCommand;
use crate::process_log::ProcessLog;
use crate::ready_line;
use crate::remote::places_here;
use crate::summary::{Summary, seconds};
use hs_output::log_output;
use hs_service::ending::{Deadline, EndRequest, Guard, was_told};
use hs_service::memory::peak_rss_bytes;
use hs_service::run_folder::StatusSocket;
use hs_service::status::{PrefetchStatus, Status, Subject, unix_now};
use hs_service::workdir::Workdir;

/// How long a command that was killed may take to end before its disk is closed.
const KILL_PATIENCE: Duration = Duration::from_secs(1);
/// How often the state of a command is checked.
const LOOK: Duration = Duration::from_millis(10);

/// Where the root lies.
#[derive(Clone, Debug)]
pub enum Disk {
    /// A headstart image.
    Image {
        /// Where it lies.
        image: Box<ImageSource>,
        /// How it is served.
        config: Box<ServeConfig>,
    },
    /// A plain disk of another system.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A directory of this machine: nothing is emulated, nothing is cold.
    Directory {
        /// The root.
        path: PathBuf,
    },
}

/// Where the standard output of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutput {
    /// To this program's.
    Stdout,
    /// To standard error, because this program prints a result.
    Stderr,
    /// Nowhere.
    Nowhere,
}

/// A start to be made.
#[derive(Clone)]
pub struct Start {
    /// Where the root lies.
    pub disk: Disk,
    /// The medium of the disk.
    pub medium: Medium,
    /// The faults of that medium.
    pub damage: Damage,
    /// How the file system is mounted.
    pub mount: MountFsOptions,
    /// The command; in an image with an entrypoint, the arguments of that. Without any, what the image has
    /// of its own.
    pub command: Vec<OsString>,
    /// In place of the image's own entrypoint; none at all where it is empty.
    pub entrypoint: Option<OsString>,
    /// The access of the command to this machine.
    pub contain: Containment,
    /// Memory for what it writes.
    pub scratch: ByteSize,
    /// The file that keeps what it writes, but to /tmp and /dev/shm.
    pub keep: Option<PathBuf>,
    /// Where `headstart status` asks how it is.
    pub status: Option<Arc<StatusSocket>>,
    /// A line of its output that shows that it is ready; without one it is ready when it ends.
    pub ready: Option<regex::Regex>,
    /// How long to wait for that.
    pub ready_timeout: Duration,
    /// How long the command may go on after it is ready; then it is ended. No limit when `None`.
    pub grace: Option<Duration>,
    /// Print one line with the time of the start, as soon as it is ready.
    pub tell: bool,
    /// Where the command's standard output goes.
    pub output: CommandOutput,
    /// Sees every read that the server answers.
    pub watch: Option<Arc<dyn Watch>>,
    /// Observe, by kernel tracing, the use of prefetched bytes.
    pub observe: bool,
    /// Sees which processes run.
    pub processes: Option<Arc<ProcessLog>>,
    /// Where the last start has kept what it read.
    pub learned: Option<LearnedFolder>,
}

/// The result of a start.
pub struct Started {
    /// The figures.
    pub summary: Summary,
    /// How the command ended; `None` when it was ended after its grace time.
    pub exit: Option<Exit>,
    /// Start → ready; `None` when the command ended without being ready.
    pub ready: Option<Duration>,
    /// The message about reads that could not be answered.
    pub lost: Option<String>,
}

/// Everything that a start needs mounted, in the order in which it is taken down.
struct Mounted {
    /// None when it has been taken down.
    root: Option<RootEnv>,
    fs: Option<MountedFs>,
    served: ShownDisk,
    learned_windows: Option<u64>,
    scratch: ByteSize,
    _work: Workdir,
    _guard: Guard,
    deadline: OnceCell<Deadline>,
}

impl Mounted {
    /// Where what is written lasts, makes sure of it: everything is unmounted, and all of it on the medium.
    fn finish(&mut self) -> anyhow::Result<()> {
        let ShownDisk::Image(served) = &self.served else { return Ok(()) };
        let Some(kept) = served.kept() else { return Ok(()) };
        if self.root.take().is_none() {
            return Ok(());
        }
        self.fs = None;
        served.session().unmount()?;
        crate::keep::lasts(kept, kept.close())?;
        crate::keep::has_room(kept)
    }

    /// From here on reads of the medium fail, so that everything else can end.
    fn close(&self) {
        let session = match &self.served {
            ShownDisk::Image(served) => {
                served.disk().close();
                Some(served.session())
            }
            ShownDisk::File(served) => {
                served.close();
                Some(served.session())
            }
            ShownDisk::Nothing => None,
        };
        self.deadline.get_or_init(|| {
            let aborts = session.and_then(Session::abort).into_iter().collect();
            if was_told() { Deadline::begin(aborts, || {}) } else { Deadline::unhurried(aborts) }
        });
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.root.as_ref().is_some_and(RootEnv::is_full) {
            log::error!(
                "the command has filled its {} of scratch: its writes fail with \"No space left on device\"; \
                 give a larger --scratch",
                self.scratch
            );
        }
        if let Err(error) = self.finish() {
            log::error!("{error:#}");
        }
        self.close();
    }
}

/// The command. When this is dropped before the command has ended, the command is killed, and its reads of
/// the disk fail.
struct Running<'a> {
    child: Option<Child>,
    mounted: &'a Mounted,
}

impl Running<'_> {
    fn wait(mut self) -> Result<Exit, hs_linux::LinuxError> {
        self.child.take().map_or(Ok(Exit::Code(0)), Child::wait)
    }

    /// Lets it go on for so long, unless a signal has ended it.
    fn go_on(&self, grace: Duration) {
        let began = Instant::now();
        let has_ended = || was_told() && self.child.as_ref().is_none_or(Child::has_ended);
        while began.elapsed() < grace && !has_ended() {
            std::thread::sleep(LOOK.min(grace.saturating_sub(began.elapsed())));
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        child.killer()();
        let killed = Instant::now();
        while !child.has_ended() && killed.elapsed() < KILL_PATIENCE {
            std::thread::sleep(LOOK);
        }
        if !child.has_ended() {
            self.mounted.close();
        }
    }
}

enum ShownDisk {
    Image(Box<ServedImage>),
    File(ServedFile),
    Nothing,
}

/// Makes a start, from opening the disk to the end of the command. Call
/// `hs_linux::rootenv::enter_private_mounts` once before.
pub fn start(spec: &Start) -> anyhow::Result<Started> {
    let opened = |on_medium: OnMedium| {
        let bytes = on_medium.store.len();
        (Some(on_medium), bytes)
    };
    let (on_medium, disk_bytes) = match &spec.disk {
        Disk::Image { image, .. } => opened(medium::open(&**image, &spec.medium, &spec.damage)?),
        Disk::Foreign { path } => opened(medium::open(path, &spec.medium, &spec.damage)?),
        Disk::Directory { .. } => (None, 0),
    };
    let started = start_from(spec, on_medium.as_ref(), disk_bytes);
    // A mount or a command that failed reports only an error number; the medium's errors explain it.
    started.map_err(|error| match &on_medium {
        Some(on_medium) => on_medium.explain(error),
        None => error,
    })
}

fn start_from(spec: &Start, on_medium: Option<&OnMedium>, disk_bytes: u64) -> anyhow::Result<Started> {
    let began = Instant::now();
    let told = EndRequest::hear();
    let mut mounted = mount(spec, on_medium)?;
    hear_of(&told, &mounted, on_medium);
    let go_on = || start_in(&mounted, spec, on_medium, disk_bytes, (began, &told));
    let started = match (&spec.status, &mounted.served, on_medium) {
        (Some(socket), ShownDisk::Image(served), Some(on_medium)) => {
            let subject = subject(spec, served.disk(), on_medium);
            socket.answered_meanwhile(|| subject.json(), go_on)
        }
        _ => go_on(),
    };
    let finished = mounted.finish();
    started.and_then(|started| finished.map(|()| started))
}

/// What `headstart status` tells of it.
fn subject<'a>(spec: &Start, served: &'a ServedDisk, on_medium: &OnMedium) -> Subject<'a> {
    let (image, prefetching) = match &spec.disk {
        Disk::Image { image, config } => (image.shown(), config.prefetching),
        Disk::Foreign { path } | Disk::Directory { path } => (path.clone(), Prefetching::Off),
    };
    let mode = match prefetching {
        Prefetching::Off => PrefetchMode::Off,
        Prefetching::Hold if spec.mount.warm => PrefetchMode::Warm,
        Prefetching::Hold => PrefetchMode::Hold,
        Prefetching::Push => PrefetchMode::Push,
    };
    let fixed = Status {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        image,
        command: Some(crate::record::command_line(spec)),
        since: unix_now(),
        medium: spec.medium.to_string(),
        log: log_output::place(),
        prefetch: PrefetchStatus { mode: mode.name().to_owned(), ..PrefetchStatus::default() },
        ..Status::default()
    };
    let (counters, retries) = (Arc::clone(&on_medium.counters), Arc::clone(&on_medium.retries));
    Subject { fixed, served, counters, retries, filling: None }
}

/// Starts the command.
fn spawn(spec: &Start, mounted: &Mounted) -> anyhow::Result<Child> {
    let piped = spec.ready.is_some() || spec.output != CommandOutput::Stdout;
    let root = mounted.root.as_ref().context("the root is taken down already")?;
    let own = OwnCommand::find(root.root(), &spec.command, spec.entrypoint.as_ref())?;
    let options = SpawnOptions {
        stdout: if piped { Stream::Pipe } else { Stream::Inherit },
        env: Some(environment::of_command(&spec.contain, &own, std::env::vars_os())),
        user: own.user,
        cwd: own.folder,
        confinement: match spec.contain.privileged {
            true => Confinement::Privileged,
            false => Confinement::Container { set_user_id: spec.mount.trusted },
        },
        ..SpawnOptions::default()
    };
    Ok(root.spawn(&own.words, options)?)
}

/// Makes a start in what is mounted.
fn start_in(
    mounted: &Mounted,
    spec: &Start,
    on_medium: Option<&OnMedium>,
    disk_bytes: u64,
    (began, told): (Instant, &EndRequest),
) -> anyhow::Result<Started> {
    let observation = if spec.observe { observe(mounted) } else { None };
    log::info!("mounted after {:.1?}", began.elapsed());
    let child = spawn(spec, mounted)?;
    told.command(child.killer());
    // Only now, so that the command inherits the score that this process was given.
    hs_service::careful::survive_low_memory();
    log::info!("command started after {:.1?}", began.elapsed());
    let looking = spec.processes.as_ref().map(|log| log.watch(began, child.processes()));
    let looking = looking.transpose().context("look at the processes")?;
    let mut child = Running { child: Some(child), mounted };
    let ready = wait_ready(spec, &mut child, began)?;
    let mut summary = Summary {
        medium: spec.medium.to_string(),
        image_bytes: disk_bytes,
        learned_windows: mounted.learned_windows,
        ..Summary::default()
    };
    let mut ready_at = None;
    let exit = match ready {
        Ready::Line(at) => {
            ready_at = Some(at - began);
            fill(&mut summary, mounted, on_medium);
            tell(spec, "ready", at - began, &summary);
            match spec.grace {
                Some(grace) => {
                    child.go_on(grace);
                    drop(child);
                    None
                }
                None => Some(child.wait()?),
            }
        }
        Ready::Ended => {
            let exit = child.wait()?;
            if spec.ready.is_none() {
                ready_at = Some(began.elapsed());
            }
            fill(&mut summary, mounted, on_medium);
            tell(spec, "ended", began.elapsed(), &summary);
            if let Some(grace) = spec.grace {
                std::thread::sleep(grace);
            }
            Some(exit)
        }
    };
    drop(looking);
    if let (Some(observation), ShownDisk::Image(served)) = (observation, &mounted.served) {
        match observation.finish(served.disk()) {
            Ok(observed) => fill_observed(&mut summary, &observed),
            Err(error) => log::warn!("use of prefetched bytes was not observed: {error}"),
        }
    }
    summary.ready_s = ready_at.map(|ready| ready.as_secs_f64());
    summary.wall_s = began.elapsed().as_secs_f64();
    summary.peak_rss_bytes = peak_rss_bytes();
    let mut lost = None;
    if let ShownDisk::Image(served) = &mounted.served {
        limit::fill(&mut summary, served.disk().image(), spec.medium);
        fill_deadlines(&mut summary, served.disk());
        fill_tripwires(&mut summary, served.disk());
        summary.end_reason = served.disk().ended().map(|reason| reason.as_str().to_owned());
        lost = on_medium.and_then(|on_medium| on_medium.lost(served.disk()));
    }
    Ok(Started { summary, exit, ready: ready_at, lost })
}

/// One line for the user.
fn tell(spec: &Start, what: &str, after: Duration, summary: &Summary) {
    if spec.tell {
        let requests = if summary.store_requests == 1 { "request" } else { "requests" };
        let learned = match summary.learned_windows {
            None => String::new(),
            Some(0) => "; nothing was learned before".to_owned(),
            Some(windows) => format!("; {windows} windows were learned before"),
        };
        let disk = summary.packed_disk_requests.map(|requests| format!(", {requests} for the pack's disk"));
        let disk = disk.unwrap_or_default();
        hs_output::note!(
            "headstart: {what} after {:.2} s; {} read in {} {requests}{disk}{learned}",
            after.as_secs_f64(),
            ByteSize(summary.store_bytes),
            summary.store_requests,
        );
    }
}

/// Sets what happens when the command is told to end.
fn hear_of(told: &EndRequest, mounted: &Mounted, on_medium: Option<&OnMedium>) {
    let Some(on_medium) = on_medium else { return };
    let store = Arc::clone(&on_medium.store);
    let close = move || store.close();
    match &mounted.served {
        ShownDisk::Image(served) => {
            let reader = Arc::downgrade(served.disk());
            let oldest = move || reader.upgrade().map(|reader| Duration::from(reader.waiting().oldest));
            told.disk(move |time| oldest().is_some_and(|oldest| oldest >= time), close);
        }
        ShownDisk::File(served) => {
            let reads = Arc::clone(served.reads());
            told.disk(move |time| reads.oldest() >= time, close);
        }
        ShownDisk::Nothing => {}
    }
}

/// Shows the disk of an image, with what was written to it.
fn show(
    spec: &Start,
    on_medium: &OnMedium,
    folder: &Path,
    config: &ServeConfig,
    watch: Option<Arc<dyn Watch>>,
) -> anyhow::Result<ServedImage> {
    let store = Arc::clone(&on_medium.store);
    let Some(path) = &spec.keep else { return Ok(ServedImage::start(store, folder, config, watch)?) };
    let mut file = KeepFile::open(path, OpenedAs::Keeping, KeepFile::PATIENCE)?;
    if let Some(folder) = spec.status.as_ref().and_then(|status| status.path().parent()) {
        file = file.asked_in(folder);
    }
    let access = FileAccess { mode: 0o600, ..config.access };
    let config = ServeConfig { access, ..config.clone() };
    Ok(ServedImage::start_keeping(store, folder, &config, watch, file)?)
}

fn mount(spec: &Start, on_medium: Option<&OnMedium>) -> anyhow::Result<Mounted> {
    let mut guard = Guard::start();
    let mut needed = match &spec.disk {
        Disk::Image { image, .. } => places_here(image),
        Disk::Foreign { path } | Disk::Directory { path } => vec![path.clone()],
    };
    needed.extend(spec.keep.clone());
    let work = Workdir::new(&needed)?;
    let mut learned_windows = None;
    let (served, fs, lower) = match (&spec.disk, on_medium) {
        (Disk::Image { config, .. }, Some(on_medium)) => {
            let disk = work.folder("disk")?;
            let watch = spec.watch.clone();
            let config = on_medium.config(config);
            let served = show(spec, on_medium, &disk, &config, watch)?;
            served.session().abort().iter().for_each(|abort| guard.watch(abort));
            learned_windows =
                spec.learned.as_ref().map(|learned| learned.teach(served.disk(), &spec.command));
            let target = work.folder("fs")?;
            let fs = served.mount_fs(&target, &spec.mount)?;
            (ShownDisk::Image(Box::new(served)), Some(fs), target)
        }
        (Disk::Foreign { .. }, Some(on_medium)) => {
            let disk = work.folder("disk")?;
            let served =
                ServedFile::start(Arc::clone(&on_medium.store), &disk, "disk.img", FileAccess::default())?;
            served.session().abort().iter().for_each(|abort| guard.watch(abort));
            let target = work.folder("fs")?;
            let fs = served.mount_fs(&target, &spec.mount)?;
            (ShownDisk::File(served), Some(fs), target)
        }
        (Disk::Directory { path }, _) => (ShownDisk::Nothing, None, path.clone()),
        (_, None) => bail!("a disk without a medium"),
    };
    let options = RootOptions {
        trusted: spec.mount.trusted,
        devices: spec.contain.privileged,
        writes_below: spec.keep.is_some(),
        scratch_bytes: Some(spec.scratch.0),
    };
    let root = RootEnv::prepare(&lower, &work.folder("root")?, options)?;
    if let Some(fs) = &fs {
        fs.wait_until_warming_leads();
    }
    let (scratch, deadline) = (spec.scratch, OnceCell::new());
    let root = Some(root);
    Ok(Mounted { root, fs, served, learned_windows, scratch, _work: work, _guard: guard, deadline })
}

enum Ready {
    Line(Instant),
    Ended,
}

/// Passes the command's output on until a line says that it is ready, or it ends.
fn wait_ready(spec: &Start, child: &mut Running<'_>, began: Instant) -> anyhow::Result<Ready> {
    let Some(stdout) = child.child.as_mut().and_then(|child| child.stdout.take()) else {
        return Ok(Ready::Ended);
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    let pattern = spec.ready.clone();
    let shown: Box<dyn Write + Send> = match spec.output {
        CommandOutput::Stdout => Box::new(std::io::stdout()),
        CommandOutput::Stderr => Box::new(std::io::stderr()),
        CommandOutput::Nowhere => Box::new(std::io::sink()),
    };
    std::thread::Builder::new().name("hs-output".to_owned()).spawn(move || {
        let told = || {
            let _ = sender.send(Instant::now());
        };
        ready_line::pass_on(stdout, shown, pattern, told);
    })?;
    if spec.ready.is_none() {
        // The output thread drops its sender when the output ends.
        let _ = receiver.recv();
        return Ok(Ready::Ended);
    }
    let left = spec.ready_timeout.saturating_sub(began.elapsed());
    match receiver.recv_timeout(left) {
        Ok(at) => Ok(Ready::Line(at)),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Ok(Ready::Ended),
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => bail!(
            "the command was not ready after {:.0} s: no line of its output matched '{}'; \
             give another --ready or a longer --ready-timeout",
            spec.ready_timeout.as_secs_f64(),
            spec.ready.as_ref().map_or("", regex::Regex::as_str),
        ),
    }
}

/// The figures as they are now.
fn fill(summary: &mut Summary, mounted: &Mounted, on_medium: Option<&OnMedium>) {
    if let Some(on_medium) = on_medium {
        fill_medium(summary, &on_medium.counters.snapshot(), &on_medium.retries.snapshot());
        summary.logical_bytes = on_medium.store.len();
    }
    if let ShownDisk::Image(served) = &mounted.served {
        fill_image(summary, served.disk());
    }
}

/// The figures of the medium.
pub fn fill_medium(summary: &mut Summary, counted: &Snapshot, again: &RetrySnapshot) {
    summary.store_requests = counted.requests;
    summary.store_bytes = counted.bytes;
    summary.seeks = counted.seeks;
    summary.medium_busy_s = seconds(counted.busy);
    summary.store_retries = again.retries;
    summary.store_errors = again.errors;
}

/// The figures of the image and of its reads until now.
pub fn fill_image(summary: &mut Summary, disk: &ServedDisk) {
    let image = disk.image();
    let stats = disk.stats();
    summary.logical_bytes = image.disk_bytes();
    let hot = &image.superblock().hot;
    summary.hot_bytes = hot.iter().map(|segment| segment.blocks * hs_units::BLOCK_BYTES).sum();
    summary.hot_compressed_bytes = hot.iter().map(|segment| segment.range().len).sum();
    summary.demand_requests = Some(stats.demand_requests);
    summary.demand_bytes = Some(stats.demand_bytes);
    summary.demand_outside_bytes = Some(stats.outside_bytes);
    summary.background_bytes = Some(stats.background_bytes);
    summary.background_used_bytes = Some(stats.background_used_bytes);
    summary.demand_wait_s = Some(seconds(stats.program_wait));
    summary.prefetch_bytes = Some(stats.prefetch_bytes);
    summary.failed_requests = Some(stats.failed_requests);
    if let Some(pack) = image.pack() {
        let counted = pack.disk_counted();
        (summary.packed_disk_requests, summary.packed_disk_bytes) =
            (Some(counted.requests), Some(counted.bytes));
    }
    let streamed = disk.streamed();
    summary.prefetch_stream_bytes = Some(streamed.bytes);
    summary.prefetch_stream_s = Some(seconds(streamed.time));
    let waited = stats.waited_requests as f64 / stats.demand_requests.max(1) as f64;
    summary.cache_hit_ratio = Some(1.0 - waited);
}

fn observe(mounted: &Mounted) -> Option<Observation> {
    let (ShownDisk::Image(served), Some(fs)) = (&mounted.served, &mounted.fs) else { return None };
    Observation::start(served.disk(), &fs.target(), fs.device().map(hs_linux::loopdev::LoopDevice::path))
        .inspect_err(|error| log::warn!("use of prefetched bytes is not observed: {error}"))
        .ok()
}

fn fill_observed(summary: &mut Summary, observed: &ObservedUsage) {
    if observed.lost_events > 0 {
        log::warn!(
            "not fully observed: the kernel lost {} events; unused may be too high",
            observed.lost_events
        );
    }
    let usage = &observed.usage;
    summary.used_prefetch_bytes = Some(usage.used_bytes + usage.late_bytes);
    summary.late_bytes = Some(usage.late_bytes);
    summary.overdue_used_bytes = Some(observed.overdue_bytes);
    summary.mapped_prefetch_bytes = Some(usage.mapped_only_bytes);
    summary.unused_prefetch_bytes = Some(usage.unused_bytes);
}

/// The observed use where the kernel answers from its page cache: a sample.
pub fn fill_tripwires(summary: &mut Summary, disk: &ServedDisk) {
    let count = disk.tripwire_count();
    summary.prefetch_markers = Some(count.placed);
    summary.prefetch_markers_used = Some(count.used);
}

/// How the stream kept the deadlines of the profile, if that has any.
pub fn fill_deadlines(summary: &mut Summary, disk: &ServedDisk) {
    summary.prefetch_least_slack_s = disk.least_slack_s();
    summary.overdue_bytes = disk.least_slack_s().map(|_| disk.overdue_bytes());
}

/// Where prefetched blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchMode {
    /// No prefetch.
    Off,
    /// Into the page cache of the mounted file system, in the recorded order.
    Warm,
    /// Into this process's memory, until the kernel asks for it.
    Hold,
    /// Into the page cache of disk.img.
    Push,
}

impl PrefetchMode {
    /// Where the server puts prefetched blocks.
    pub const fn prefetching(self) -> Prefetching {
        match self {
            Self::Off => Prefetching::Off,
            Self::Warm | Self::Hold => Prefetching::Hold,
            Self::Push => Prefetching::Push,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warm => "warm",
            Self::Hold => "hold",
            Self::Push => "push",
        }
    }
}

/// Limits and rules of the prefetch.
#[derive(Clone, Copy, Debug)]
pub struct PrefetchLimits {
    /// Memory for prefetched blocks that no reader has taken yet.
    pub budget: ByteSize,
    /// Whether the rest of a remote image comes behind the reads.
    pub background: bool,
    /// How a read of a hot block is served that has not arrived yet.
    pub late: LateRule,
    /// Whether a block of some prefetched chunks stays out of the page cache, so that their use is observed.
    pub tripwires: bool,
    /// How fast it goes.
    pub rate: PrefetchRate,
}

/// The served image's configuration for prefetching in `mode`, within `limits` where it is prefetched at all.
pub fn config(
    image: &ImageSource,
    mode: Prefetching,
    limits: Option<PrefetchLimits>,
    medium: &Medium,
) -> anyhow::Result<Box<ServeConfig>> {
    let source_name = match image.file() {
        Some(path) => {
            path.canonicalize().with_context(|| format!("open {}", path.display()))?.display().to_string()
        }
        None => image.display().to_string(),
    };
    let mut config = ServeConfig { prefetching: mode, source_name, ..ServeConfig::default() };
    config.read.queue = QueueConfig::for_medium(crate::medium::traits(image.file(), medium));
    if image.file().is_none() {
        config.prefetch = config.prefetch.over_a_network();
    }
    if image.file().is_none() || image.base().is_some_and(|base| base.file().is_none()) {
        config.read = config.read.over_a_network(image.remote.read_timeout);
    }
    if let Some(limits) = limits {
        config.prefetch.budget_bytes = limits.budget.0;
        config.prefetch.brings_rest &= limits.background;
        config.prefetch.rate = limits.rate;
        config.prefetch.late = limits.late;
        config.tripwires = limits.tripwires;
    }
    Ok(Box::new(config))
}
