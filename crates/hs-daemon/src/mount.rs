//! `headstart mount`: shows a disk as a file, and mounts its file system.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_disk::Watch;
use hs_fuse::ServedImage;
use hs_fuse::{HeldSession, Negotiated, Session};
use hs_linux::mounts::MountTable;
use hs_serve::FileAccess;
use hs_serve::{MountFsOptions, MountedFs, Prefetching, ServedDisk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::CapabilitySet;
use serde_json::Value;
use zerocopy::{FromBytes, IntoBytes};

use crate::live_page::{self, LivePage, Now};
use crate::recording::RunningRecording;
use crate::{Fill, Recording, ServerOptions, background_fill, keep, mounted};
use hs_device::Medium;
use hs_output::log_output;
use hs_output::show;
use hs_service::background::{self, LogFile, Parent};
use hs_service::careful;
use hs_service::confinement::Confinement;
use hs_service::ending::{Deadline, EndsEarly, Guard};
use hs_service::handover::{ABORT, HandedOver, Supervisor};
use hs_service::metrics::{self, MetricsSocket};
use hs_service::notify::Manager;
use hs_service::run_folder::{RunFolder, StatusSocket};
use hs_service::signals::Ends;
use hs_service::status::{PrefetchStatus, Status, Subject, unix_now};
use hs_service::supervisor::{self, Plan};
use hs_start::cache::CacheChoice;
use hs_start::image::ImageSource;
use hs_start::medium::{self, Damage};
use hs_start::on_medium::OnMedium;
use hs_start::opening_pipe::OpeningPipe;
use hs_start::pinned;
use hs_start::server_files::Origin;
use hs_start::start::{self, PrefetchLimits, PrefetchMode};
use hs_start::trace::{Traced, Tracer};

/// How long the dead servers before this one may take to release their mounts.
const PREDECESSORS_PATIENCE: Duration = Duration::from_secs(20);

/// What is shown, and how.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The image.
    pub image: ImageSource,
    /// An empty folder, for disk.img.
    pub dir: PathBuf,
    /// A folder to mount the file system at.
    pub fs: Option<PathBuf>,
    /// The partition that is mounted there; the whole disk when not given.
    pub partition: Option<Arc<str>>,
    /// Mount it although its journal was not replayed.
    pub ignore_journal: bool,
    /// The file that keeps what is written.
    pub keep: Option<PathBuf>,
    /// Stay in the foreground.
    pub foreground: bool,
    /// Where prefetched blocks go, where that is said.
    pub prefetch: Option<PrefetchMode>,
    /// Limits of the prefetch.
    pub limits: PrefetchLimits,
    /// Who may read disk.img.
    pub access: FileAccess,
    /// The cache.
    pub cache: CacheChoice,
    /// Fill the disk cache meanwhile.
    pub fill: Fill,
    /// The emulated medium.
    pub medium: Medium,
    /// Its planted faults.
    pub damage: Damage,
    /// Trust the image.
    pub trusted: bool,
    /// Record what the file system is asked for: nothing is prefetched.
    pub record: Option<Recording>,
    /// First remove mounts of a dead server.
    pub clear_dead: bool,
    /// Print the mount as JSON when it is ready.
    pub json: bool,
    /// The pipe to the parent of a server in the background.
    pub ready_fd: Option<i32>,
    /// Write what is read and prefetched to this file, at the end.
    pub trace: Option<PathBuf>,
    /// The address of the live page.
    pub ui: Option<String>,
    /// Supervision and metrics.
    pub serving: ServerOptions,
}

/// Shows an image's disk until it is unmounted; gives the exit code. `arguments` are those of the program.
pub fn run(args: &Mount, arguments: &[OsString], quiet: bool) -> anyhow::Result<i32> {
    // By their names alone: a mount that waits for its server would not answer.
    if let Some(fs) = args.fs.as_ref().filter(|fs| fs.components().eq(args.dir.components())) {
        bail!("{}: disk.img comes into this folder, so give --fs another one", fs.display());
    }
    if !args.foreground {
        let code = background::start(arguments, "mount", None)?;
        if code == 0 && !quiet && !args.json {
            let dir = args.dir.display();
            match &args.fs {
                Some(fs) => hs_output::note!("the file system is at {0}; `umount {0}` ends it", fs.display()),
                None => hs_output::note!("the disk is {dir}/disk.img; `umount {dir}` ends it"),
            }
        }
        return Ok(code);
    }
    if args.serving.starts_supervisor() {
        let clear = || match hs_linux::mounts::clear_dead(&args.dir, args.fs.as_deref()) {
            Ok(_) => {}
            Err(error) => log::error!("{} stays as it is: {error}", args.dir.display()),
        };
        let ready_fd = args.ready_fd;
        let (keeper_fd, first_fd) = (args.serving.keeper_fd, args.serving.opening_fd);
        let (subcommand, clear, reloads) = ("mount", &clear, false);
        let plan = Plan { arguments, subcommand, ready_fd, clear, reloads, keeper_fd, first_fd };
        return supervisor::supervise(&plan);
    }
    let signals = Ends::block()?;
    let (supervisor, kept) = Supervisor::at(args.serving.supervisor_fd)?;
    let folder = RunFolder::offered();
    let log_file = LogFile::of(folder.as_ref());
    if args.ready_fd.is_some() && supervisor.restarts() > 0 {
        log_file.go_to_background()?;
    }
    confine(args, &supervisor);
    let server = Server { args, quiet, supervisor, folder, log_file: &log_file, signals };
    server.run(kept)?;
    log_file.remove();
    Ok(0)
}

/// Gives up the rights that serving a mount does not need. A mount of an ordinary user is made by a program
/// with more rights, so nothing is given up there. Landlock is not used, because it would forbid unmounting.
fn confine(args: &Mount, supervisor: &Supervisor) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut capabilities = CapabilitySet::SYS_ADMIN
        | CapabilitySet::SYS_RESOURCE
        | CapabilitySet::IPC_LOCK
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::DAC_OVERRIDE;
    if args.serving.metrics.is_some() || args.ui.is_some() {
        capabilities |= CapabilitySet::NET_BIND_SERVICE;
    }
    Confinement {
        capabilities,
        files: None,
        // Without a supervisor it starts a process that watches over its end.
        // Before its file system is mounted for writing, e2fsck and tune2fs may have to look at it.
        starts_programs: (args.keep.is_some() && args.fs.is_some())
            || supervisor.process().is_none()
            || Origin::of(&args.image) == Origin::WithLogins,
        mounts: true,
        has_rings: false,
    }
    .enforce();
}

/// Whether the image is a file of this user, who then trusts it.
fn is_own(image: &ImageSource) -> bool {
    let own = rustix::process::geteuid().as_raw();
    image.file().and_then(|file| std::fs::metadata(file).ok()).is_some_and(|file| file.uid() == own)
}

/// The parts of a server that do not depend on its image.
struct Server<'a> {
    args: &'a Mount,
    quiet: bool,
    supervisor: Supervisor,
    folder: Option<RunFolder>,
    log_file: &'a LogFile,
    signals: Ends,
}

impl Server<'_> {
    fn run(self, mut kept: HandedOver) -> anyhow::Result<()> {
        let args = self.args;
        let default = if args.fs.is_some() { PrefetchMode::Warm } else { PrefetchMode::Push };
        let mode = args.prefetch.unwrap_or(default);
        let metrics = metrics::socket(&mut kept, args.serving.metrics.as_deref(), &self.supervisor)?;
        let mut page = LivePage::listen(args.ui.as_deref(), &mut kept, &self.supervisor)?;
        let early = self.ends_early()?;
        let recording = args.record.as_ref().map(|record| record.begin(self.supervisor.restarts()));
        let recording = recording.transpose()?.flatten();
        let name = args.image.shown().display().to_string();
        let map = page.as_mut().map(|page| page.map_of_disk(&name));
        let tracer = self.tracer();
        let watches = [
            recording.as_ref().map(RunningRecording::watch),
            map.clone().map(|map| map as _),
            tracer.as_ref().map(Tracer::watch),
        ];
        let (on_medium, served) = self.show_disk(&mut kept, mode.prefetching(), watch_of(watches))?;
        if let Some(map) = &map {
            live_page::describe(map, served.disk());
        }
        let began = Instant::now();
        early.serves(&served);
        let mut guard = self.supervisor.process().is_none().then(Guard::start);
        let abort = served.session().abort();
        if let (Some(guard), Some(abort)) = (&mut guard, &abort) {
            guard.watch(abort);
        }
        let (dir, fs) = (args.dir.clone(), args.fs.clone());
        let mounted = match &args.fs {
            Some(target) => self.mount_fs(&served, target, mode).map(Some),
            None => Ok(None),
        };
        early.end();
        let mut ended = mounted.map(|mounted| {
            let recorded = match (recording, &args.fs) {
                (Some(recording), Some(target)) => recording.finish_later(args.image.clone(), target.clone()),
                _ => Ok(()),
            };
            let ended = recorded
                .and_then(|()| self.serve(mode, &on_medium, &served, mounted.as_ref(), metrics, page));
            (ended, mounted)
        });
        if let Some(kept) = served.kept() {
            let is_started = ended.is_ok();
            // What was written has to come to the medium, however long that takes.
            ended = ended.map(|(ended, mounted)| {
                drop(mounted);
                (ended, None)
            });
            let unmounted = served.session().unmount().map_err(anyhow::Error::from);
            let mut closed = unmounted.and_then(|()| keep::close(kept, is_started));
            if args.fs.is_some() {
                closed = closed.and_then(|()| hs_start::keep::has_room(kept));
            }
            ended = ended.map(|(ended, none)| (ended.and(closed), none));
        }
        // From here on nothing may wait for the medium.
        let deadline = Deadline::begin(abort.into_iter().collect(), move || {
            let _ = hs_linux::mounts::clear_dead(&dir, fs.as_deref());
        });
        served.disk().close();
        let ended = ended.and_then(|(ended, mounted)| {
            drop(mounted);
            ended
        });
        let traced = Traced {
            disk_digest: Some(served.disk().image().disk_digest()),
            disk_bytes: served.disk().image().disk_bytes(),
            command: "mount".to_owned(),
            medium: args.medium.to_string(),
            ready_s: None,
            ended_s: began.elapsed().as_secs_f64(),
            stages: Vec::new(),
            profile: None,
        };
        drop(served);
        drop(deadline);
        // A trace of a day takes a while to write.
        ended.and(tracer.map_or(Ok(()), |tracer| tracer.write(&traced, None)))
    }

    /// Traces from the beginning; a server that died has taken its trace along.
    fn tracer(&self) -> Option<Tracer> {
        let file = self.args.trace.as_deref()?;
        if self.supervisor.restarts() > 0 {
            log::warn!("there is no trace: the server that began it died");
            return None;
        }
        Some(Tracer::new(file))
    }

    /// Without a supervisor this process must also handle signals that come before everything is mounted.
    fn ends_early(&self) -> anyhow::Result<EndsEarly> {
        let (dir, fs) = (self.args.dir.clone(), self.args.fs.clone());
        EndsEarly::watch(self.supervisor.process().is_none().then_some(&self.signals), move || {
            let _ = hs_linux::mounts::clear_dead(&dir, fs.as_deref());
        })
    }

    /// Shows the disk, or goes on showing it where a server died.
    fn show_disk(
        &self,
        kept: &mut HandedOver,
        prefetching: Prefetching,
        watch: Option<Arc<dyn Watch>>,
    ) -> anyhow::Result<(OnMedium, ServedImage)> {
        let args = self.args;
        let refuse_waiting = self.supervisor.refuses_waiting();
        let held = kept.take::<HeldAs>("session")?;
        let mut held = held.map(|(held, fds)| held.session(fds, refuse_waiting)).transpose()?;
        if let (Some(held), Some(((), mut memory))) = (&mut held, kept.take("replay")?) {
            held.replay = memory.pop();
        }
        if held.is_none() {
            let died_early = self.supervisor.restarts() > 0;
            if (args.clear_dead || died_early) && hs_linux::mounts::clear_dead(&args.dir, args.fs.as_deref())?
            {
                log::warn!("cleared away what a server that died had left at {}", args.dir.display());
            }
            let targets: Vec<&Path> = args.fs.iter().map(PathBuf::as_path).chain([&*args.dir]).collect();
            careful::refuse_to_cover_itself(args.image.file(), RunFolder::place().as_deref(), &targets)?;
        }
        let mut image = pinned::recall(kept, 0, &args.image)?;
        if let (Some(fd), 0) = (args.serving.opening_fd, self.supervisor.restarts()) {
            image.remote.opening = Some(OpeningPipe::new(background::inherited(fd)?));
        }
        if self.supervisor.restarts() > 0 {
            // Its readers wait already: it asks a server for as long as they do.
            image.remote.open_timeout = image.remote.open_timeout.max(Some(image.remote.read_timeout));
        }
        let mut config = start::config(&image, prefetching, Some(args.limits), &args.medium)?;
        args.cache.apply(&mut config);
        config.access = args.access;
        if args.keep.is_some() {
            config.access.mode |= 0o200;
        }
        if args.record.is_some() {
            config.disk_read_ahead_kib = 0;
        }
        if args.access.opens_for_writing() && args.keep.is_none() {
            // It is mapped, as the memory of a guest, and read by single pages.
            (config.disk_read_ahead_kib, config.hot_disk_read_ahead_kib) = (0, 0);
        }
        let keep = args.keep.as_deref().map(|path| keep::open(path, kept, &self.supervisor)).transpose()?;
        let on_medium = medium::open(&image, &args.medium, &args.damage)?;
        let store = Arc::clone(&on_medium.store);
        let config = on_medium.config(&config);
        let hold = |session: &Session, reader: &ServedDisk| {
            pinned::keep(&self.supervisor, 0, &image, reader.image().image_digest())
                .and_then(|()| self.hold(session))
                .map_err(io::Error::other)
        };
        // A write that is done twice could come behind a later one.
        let may_ask_again = keep.is_none() && held.as_ref().is_some_and(HeldSession::can_be_asked_again);
        let served = match held {
            Some(held) => ServedImage::resume(store, held, &config, watch, keep)?,
            None => ServedImage::start_held(store, &args.dir, &config, watch, keep, &hold)?,
        };
        // The disk is shown by now, so what it was attached with is no longer kept.
        hold(served.session(), served.disk())?;
        // They may have been mounting when they died; this very disk lets that come to an end.
        if self.supervisor.wait_for_predecessors(PREDECESSORS_PATIENCE) && may_ask_again {
            served.session().ask_again()?;
        }
        Ok((on_medium, served))
    }

    /// Gives the supervisor what the next server needs to go on.
    fn hold(&self, session: &Session) -> anyhow::Result<()> {
        let descriptors = session.descriptors().chain(session.detached());
        self.supervisor.keep("session", HeldAs::of(session), descriptors)?;
        if let Some(abort) = session.abort() {
            self.supervisor.keep(ABORT, (), abort.control().into_iter())?;
        }
        Ok(())
    }

    /// Mounts the file system in the disk, unless a server that died had.
    fn mount_fs(&self, served: &ServedImage, target: &Path, mode: PrefetchMode) -> anyhow::Result<MountedFs> {
        let args = self.args;
        let options = MountFsOptions {
            direct_io: mode != PrefetchMode::Push,
            warm: mode == PrefetchMode::Warm,
            calls_apart: self.supervisor.process().is_some() && !served.session().negotiated().has_resend(),
            trusted: args.trusted,
            partition: args.partition.clone(),
            ignore_journal: args.ignore_journal,
            writes: args.keep.is_some(),
            read_ahead_kib: match &args.record {
                Some(Recording { reads_ahead: false, .. }) => 0,
                _ => MountFsOptions::default().read_ahead_kib,
            },
            inode_readahead_blocks: (mode.prefetching() != Prefetching::Off).then_some(1),
            ..MountFsOptions::default()
        };
        if self.supervisor.restarts() > 0
            && let Some(mounted) = served.adopt_fs(target, &options)?
        {
            return Ok(mounted);
        }
        let hold = |memory: BorrowedFd<'_>| {
            self.supervisor.keep("replay", (), std::iter::once(memory)).map_err(io::Error::other)
        };
        let mounted = served.mount_fs_held(target, &options, &hold)?;
        if !args.trusted && !is_own(&args.image) {
            log::warn!(
                "the kernel has mounted the {} in {}: use images that you trust, for a malicious one can attack \
                 the kernel's driver (--trusted leaves this line out)",
                mounted.file_system(),
                args.image.display()
            );
        }
        // A snapshotter's caller starts its program some requests later.
        if args.serving.keeper_fd.is_none() {
            mounted.wait_until_warming_leads();
        }
        Ok(mounted)
    }

    /// From the moment that everything is mounted to its end.
    fn serve(
        &self,
        mode: PrefetchMode,
        on_medium: &OnMedium,
        served: &ServedImage,
        mounted: Option<&MountedFs>,
        metrics: Option<MetricsSocket>,
        page: Option<LivePage>,
    ) -> anyhow::Result<()> {
        let args = self.args;
        careful::take_care();
        let filling = background_fill::start(args.fill, &args.image, served.disk())?;
        // The thread that fills the cache waits for the medium. The disk is closed to end it, also when
        // something fails from here on.
        let closing = served.kept().is_none().then(|| ClosesDisk(served.disk()));
        let socket = StatusSocket::offer(self.folder.as_ref());
        let words = format!("{} at {}", args.image.display(), args.dir.display());
        // A supervisor itself reports to the service manager and to the parent.
        let unsupervised = self.supervisor.process().is_none();
        let manager = if unsupervised && args.ready_fd.is_none() {
            Manager::of_this_process()
        } else {
            Manager::none()
        };
        if args.ready_fd.is_some() && self.supervisor.restarts() == 0 {
            self.log_file.go_to_background()?;
        }
        let status = self.fixed_status(mode, served, mounted.map(MountedFs::target).as_deref());
        let url = page.as_ref().map(LivePage::url);
        let report = match (args.json, &url) {
            (true, _) => {
                mounted::report(&status, served, mounted, socket.as_ref(), metrics.as_ref(), url.as_deref())
            }
            // The only way to it is this line.
            (false, Some(url)) => format!("live page at {url}").into(),
            (false, None) => Value::Null,
        };
        if let (Some(fd), true) = (args.ready_fd, unsupervised) {
            Parent::at(fd)?.tell(&report)?;
        }
        // Before the line is printed: a program that has read it may end the server at once, and the server
        // must be ready for that.
        self.supervisor.ready(&words, &report);
        manager.ready(&words);
        let is_first = args.ready_fd.is_none() && self.supervisor.restarts() == 0;
        if is_first && args.json {
            show::announce(&report);
        } else if is_first && !self.quiet {
            hs_output::note!(
                "{} mounted; `umount {}` or Ctrl-C ends it",
                args.image.display(),
                args.dir.display()
            );
            if let Some(metrics) = &metrics {
                hs_output::note!("metrics at {}", metrics.url());
            }
        }
        // Also with `--quiet`: the page has no other address.
        if let (true, Some(url)) = (is_first && !args.json, &url) {
            hs_output::note!("live page at {url}");
        }
        let fs = mounted.map(|mounted| (mounted, &**served.disk()));
        let subject = Subject {
            fixed: status,
            served: served.disk(),
            counters: Arc::clone(&on_medium.counters),
            retries: Arc::clone(&on_medium.retries),
            filling: filling.as_ref(),
        };
        let answering = socket.as_ref().map(|socket| (socket, &subject));
        let ended = metrics::answered_meanwhile(
            metrics,
            || vec![subject.now()],
            || {
                live_page::shown_meanwhile(
                    page.as_ref(),
                    || Now { statuses: vec![subject.now()], clients: None },
                    || wait_for_end(served.session(), fs, &self.signals, answering),
                )
            },
        );
        self.supervisor.ending();
        manager.stopping();
        careful::stand_back();
        drop(closing);
        ended
    }

    fn fixed_status(&self, mode: PrefetchMode, served: &ServedImage, target: Option<&Path>) -> Status {
        Status {
            pid: std::process::id(),
            supervisor: self.supervisor.process(),
            restarts: self.supervisor.restarts(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            image: self.args.image.shown(),
            dir: shown(served.session().mount_point()),
            fs: target.map(shown),
            since: unix_now(),
            medium: self.args.medium.to_string(),
            log: log_output::place(),
            prefetch: PrefetchStatus { mode: mode.name().to_owned(), ..PrefetchStatus::default() },
            ..Status::default()
        }
    }
}

/// What lets all of these see the same.
fn watch_of(watches: impl IntoIterator<Item = Option<Arc<dyn Watch>>>) -> Option<Arc<dyn Watch>> {
    let mut all: Vec<Arc<dyn Watch>> = watches.into_iter().flatten().collect();
    if all.len() > 1 { Some(Arc::new(all)) } else { all.pop() }
}

/// Closes the disk when it is dropped: dropped before what waits for the medium.
struct ClosesDisk<'a>(&'a ServedDisk);

impl Drop for ClosesDisk<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The description of a session for the supervisor. Bytes, because a JSON string cannot hold a path that is
/// not UTF-8.
#[derive(serde::Serialize, serde::Deserialize)]
struct HeldAs {
    negotiated: Vec<u8>,
    mount_point: Vec<u8>,
    /// Whether the last descriptor is the mount, which may not be attached.
    is_detached: bool,
}

impl HeldAs {
    fn of(session: &Session) -> Self {
        Self {
            negotiated: session.negotiated().as_bytes().to_vec(),
            mount_point: session.mount_point().as_os_str().as_bytes().to_vec(),
            is_detached: session.detached().is_some(),
        }
    }

    fn session(self, mut descriptors: Vec<OwnedFd>, refuse_waiting: bool) -> anyhow::Result<HeldSession> {
        let negotiated = Negotiated::read_from_bytes(&self.negotiated).ok();
        let detached = if self.is_detached { descriptors.pop() } else { None };
        Ok(HeldSession {
            descriptors,
            detached,
            refuse_waiting,
            replay: None,
            negotiated: negotiated.context("the session was kept by another version of this program")?,
            mount_point: OsStr::from_bytes(&self.mount_point).into(),
        })
    }
}

/// A JSON string cannot hold other paths; one that is not UTF-8 is shown with replacement characters.
fn shown(path: &Path) -> PathBuf {
    path.to_string_lossy().into_owned().into()
}

/// How often it is looked whether a file system has users without a name here: nothing tells of them.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The same until it is told of: the kernel takes a moment to let go of what had no other users.
const FIRST_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const FIRST_LOOKS: u32 = 25;

/// Waits until the disk, or the file system in it, is unmounted, or a signal comes. It waits for the file
/// system's last users, in whatever mount namespace: a container has its root in one of its own. It answers
/// requests for the server's status meanwhile.
pub fn wait_for_end(
    session: &Session,
    fs: Option<(&MountedFs, &ServedDisk)>,
    signals: &Ends,
    answering: Option<(&StatusSocket, &Subject<'_>)>,
) -> anyhow::Result<()> {
    let target = fs.map(|(mounted, _)| mounted.target());
    let device = fs.and_then(|(mounted, _)| mounted.device());
    let mut table = MountTable::open()?;
    // Another mount may take the place of one that is gone.
    let (mut is_gone, mut looks) = (false, 0);
    loop {
        for target in [Some(session.mount_point()), target.as_deref()].into_iter().flatten() {
            is_gone |= !table.has(target)?;
        }
        if let (true, Some((_, disk))) = (is_gone, fs) {
            // The warmer of its caches is a user too.
            disk.end_warming();
        }
        let lingers = is_gone && device.is_some_and(|device| device.is_mounted().unwrap_or(false));
        if is_gone && !lingers {
            return Ok(());
        }
        looks += u32::from(lingers);
        if looks == FIRST_LOOKS {
            log::warn!(
                "{} is unmounted, but still in use, perhaps in another mount namespace: it is served until its \
                 last user is gone",
                target.as_deref().unwrap_or_else(|| session.mount_point()).display()
            );
        }
        let mut events = vec![table.changes(), PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        if let Some((socket, _)) = answering {
            events.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        let look = if looks < FIRST_LOOKS { &FIRST_LOOK } else { &LOOK };
        match poll(&mut events, lingers.then_some(look)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => bail!("wait for the end of the mount: {error}"),
        }
        if events[1].revents().contains(PollFlags::IN) {
            return Ok(());
        }
        if let Some((socket, subject)) = answering {
            socket.answer(|| subject.json());
        }
    }
}

/// Waits until nothing is mounted at `path` any more.
pub fn wait_until_gone(path: &Path, patience: Duration) -> anyhow::Result<()> {
    if !MountTable::open()?.wait_until_gone(path, patience)? {
        bail!("{} is still mounted after {} s", path.display(), patience.as_secs());
    }
    Ok(())
}
