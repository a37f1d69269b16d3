//! Lets a guest go on from a snapshot.
//!
//! ```text
//! snapshot ─► ServedImage ─► disk.img (FUSE, no read-ahead; hot pages are pushed into its page cache)
//!                               │ mapped privately: a page is read when it is first touched
//!                               ▼
//!                             guest ──reads of its disk──► NBD ◄── ServedDisk ◄── disk
//! ```
//!
//! What it writes to its disk is discarded, or kept in an overlay's file, which begins with what it had
//! written when it was saved.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hs_device::Medium;
use hs_disk::Watch;
use hs_guest::agent::AgentSocket;
use hs_guest::console::Console;
use hs_guest::monitor::{Monitor, MonitorSocket};
use hs_guest::network::{Forward, Network, RESOLV_CONF};
use hs_guest::qemu::{Accelerator, LARGEST_WRITE_BYTES};
use hs_guest::resumable::{DiskWrites, FilePart, Resumable, Resumed};
use hs_guest::{Guest, GuestError, Launch};
use hs_serve::{Prefetching, ServedDisk};
use hs_service::ending::{Deadline, Guard};
use hs_service::memory::peak_rss_bytes;
use hs_service::workdir::Workdir;
use hs_start::boot::{self, Log, NbdDisk, close_kept};
use hs_start::image::ImageSource;
use hs_start::medium::{self, Damage};
use hs_start::on_medium::OnMedium;
use hs_start::remote::places_here;
use hs_start::start::{self, PrefetchLimits};
use hs_start::summary::Summary;
use hs_store::Snapshot;
use hs_units::{BLOCK_BYTES, ByteSize, to_usize};
use rustix::fs::MemfdFlags;

use crate::ResumeError;
use crate::description::{Description, Part};
use crate::keep::Keeping;
use crate::memory::ShownMemory;
use crate::overlay;

/// What QEMU says of a machine that it does not have.
const UNKNOWN_MACHINE: &str = "unsupported machine type";

/// A guest that is to go on.
#[derive(Clone)]
pub struct ResumeSpec {
    /// The snapshot.
    pub snapshot: ImageSource,
    /// The disk that it was booted from; the image of its name beside the snapshot when `None`.
    pub disk: Option<ImageSource>,
    /// Whether hot blocks of both are prefetched.
    pub prefetches: bool,
    /// Limits of that.
    pub limits: PrefetchLimits,
    /// The medium of both.
    pub medium: Medium,
    /// The faults of the medium of the snapshot.
    pub damage: Damage,
    /// Read the whole snapshot into the page cache before the resume is timed.
    pub warm: bool,
    /// The QEMU.
    pub program: PathBuf,
    /// Memory for what the guest writes to its disk, where that is not kept.
    pub scratch: ByteSize,
    /// The file that keeps what it writes.
    pub keep: Option<PathBuf>,
    /// What is typed at its console: the first line at once, each further one at a prompt.
    pub typed: Vec<String>,
    /// What a prompt is.
    pub prompt: regex::Regex,
    /// Ready when a line of its console matches.
    pub ready: regex::Regex,
    /// How long to wait for that.
    pub ready_timeout: Duration,
    /// How long it goes on afterwards.
    pub grace: Duration,
    /// What its network card is connected to: nothing when `None`, else what this machine reaches, with these
    /// forwarded ports.
    pub network: Option<Vec<Forward>>,
    /// Where its console is kept.
    pub console: Option<PathBuf>,
    /// Sees every read of the snapshot.
    pub watch: Option<Arc<dyn Watch>>,
    /// Sees every read of the disk.
    pub disk_watch: Option<Arc<dyn Watch>>,
}

/// The result of a resume that became ready.
pub struct Outcome {
    /// The figures, of snapshot and disk together where both have a part.
    pub summary: Summary,
    /// Start → ready.
    pub ready: Duration,
    /// The message about reads that could not be answered.
    pub lost: Option<String>,
    /// The disk, as it was found.
    pub disk: ImageSource,
}

/// Lets the guest go on until it has been ready for a while, and takes everything down again. Call
/// `hs_linux::rootenv::enter_private_mounts` once before.
///
/// # Errors
/// [`ResumeError`] when the parts do not fit, and when the guest is not ready in time.
pub fn resume(spec: &ResumeSpec) -> anyhow::Result<Outcome> {
    let on_medium = ShownMemory::on_medium(spec)?;
    let log = Log::open(spec.console.as_deref())?;
    let work = Workdir::new(&needed(spec))?;
    let scratch = work.folder("scratch")?;
    boot::mount_memory(&scratch, spec.scratch.0)?;
    let folder = work.folder("snapshot")?;
    let mut began = Instant::now();
    let disk_folder = work.folder("disk")?;
    // Where the disk is known before the snapshot says it, both are opened at once.
    let (memory, early) = std::thread::scope(|scope| {
        let open = |disk: &ImageSource| OpenDisk::open(spec, disk.clone());
        let early = spec.disk.as_ref().map(|disk| scope.spawn(move || open(disk)));
        let memory = ShownMemory::open(spec, on_medium, &folder);
        (memory, early.map(|early| early.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
    });
    let memory = memory?;
    let mut guard = Guard::start();
    memory.abort().iter().for_each(|abort| guard.watch(abort));
    let outcome = (|| {
        let description = describe(&memory, spec.network.is_some())?;
        let disk = match early {
            Some(disk) => disk?,
            None => OpenDisk::open(spec, beside(&spec.snapshot, &description)?)?,
        };
        let shown = disk.show(spec, &memory, &description, &disk_folder)?;
        if spec.warm {
            boot::read_whole(&memory.file)?;
            began = Instant::now();
        }
        let media = Media::of(memory.served().map(|(_, on_medium)| on_medium), &disk.on_medium, spec.warm);
        let sockets = work.folder("monitor")?;
        let socket = MonitorSocket::listen(sockets.join("socket"))?;
        let agent =
            description.has_agent().then(|| AgentSocket::listen(sockets.join("agent"))).transpose()?;
        let launch = launch(spec, &description, (&memory, &shown), (&scratch, &socket, agent.as_ref()))?;
        let console = Console::new(spec.ready.clone()).with_prompt(spec.prompt.clone());
        let mut guest = Guest::start(launch, console, log.writer())?;
        log::info!("QEMU started after {:.1?}", began.elapsed());
        let mut summary = Summary { medium: spec.medium.to_string(), ..Summary::default() };
        let went = (|| {
            // While QEMU begins.
            let state = state_of(&memory, description.state)?;
            let mut monitor = socket.accept(&mut guest, spec.ready_timeout)?;
            load_devices(&mut monitor, &state, spec)?;
            let _agent = agent.as_ref().map(AgentSocket::tell_resumed).transpose()?;
            memory.wait_prefetched(spec.ready_timeout.saturating_sub(began.elapsed()));
            memory.count_faults();
            monitor.go_on()?;
            log::info!("the guest goes on after {:.1?}", began.elapsed());
            guest.type_lines(spec.typed.clone())?;
            let has_room = || boot::check_scratch(&scratch, spec.scratch, LARGEST_WRITE_BYTES);
            let mut look = |_| has_room();
            let ready = guest.wait_ready(began, spec.ready_timeout, spec.ready.as_str(), &mut look)? - began;
            summary.guest_cpu_s = guest.cpu_time().map(|time| time.as_secs_f64());
            media.fill(&mut summary);
            memory.fill(&mut summary);
            guest.go_on(spec.grace, &has_room)?;
            summary.faults = memory.fault_waits();
            Ok(ready)
        })();
        let lost = memory.lost().or_else(|| disk.on_medium.lost(&disk.disk));
        let ended = memory.served().and_then(|(served, _)| served.disk().ended());
        summary.end_reason = ended.map(|reason| reason.as_str().to_owned());
        // From here on nothing may wait for the medium, the guest included.
        guest.kill();
        let kept = close_kept(shown.kept());
        let ending = Deadline::unhurried(memory.abort().into_iter().collect());
        memory.close();
        disk.disk.close();
        guest.end();
        drop(ending);
        let ready = went.map_err(|error: GuestError| {
            if guest.tail().iter().any(|line| line.contains(UNKNOWN_MACHINE)) {
                let (machine, saved) = (description.machine.clone(), description.qemu.clone());
                return ResumeError::OtherMachine { snapshot: memory.name.clone(), machine, saved }.into();
            }
            boot::explain(&error, lost.clone(), &guest, &log)
        })?;
        kept?;
        summary.ready_s = Some(ready.as_secs_f64());
        summary.wall_s = began.elapsed().as_secs_f64();
        summary.peak_rss_bytes = peak_rss_bytes();
        Ok(Outcome { summary, ready, lost, disk: disk.source })
    })();
    let _deadline = Deadline::unhurried(memory.abort().into_iter().collect());
    memory.close();
    drop(memory);
    outcome
}

/// Files that are opened while the guest starts, or afterwards.
fn needed(spec: &ResumeSpec) -> Vec<PathBuf> {
    let images = [Some(&spec.snapshot), spec.disk.as_ref()].into_iter().flatten();
    let mut needed: Vec<PathBuf> = images.flat_map(places_here).collect();
    needed.extend([spec.program.clone(), std::env::temp_dir()]);
    needed.extend(spec.keep.clone());
    needed.extend(spec.network.iter().map(|_| PathBuf::from(RESOLV_CONF)));
    needed
}

/// How QEMU is started.
fn launch(
    spec: &ResumeSpec,
    description: &Description,
    (memory, disk): (&ShownMemory, &NbdDisk),
    (scratch, socket, agent): (&Path, &MonitorSocket, Option<&AgentSocket>),
) -> anyhow::Result<Launch> {
    let Part { offset, bytes } = description.overlay;
    let writes = if disk.kept().is_some() {
        DiskWrites::Kept
    } else {
        // Whole sectors: zeros follow to the end of the block.
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let written = FilePart { path: memory.file.clone(), offset, bytes };
        DiskWrites::Discarded { overlay: boot::empty_overlay(scratch, description.disk_bytes)?, written }
    };
    let resumed = Resumed {
        program: spec.program.clone(),
        accelerator: accelerator(description, &memory.name)?,
        memory: ByteSize(description.memory_bytes),
        drive: disk.drive(),
        scratch: scratch.to_owned(),
        parts: Resumable {
            monitor: socket.path().to_owned(),
            machine: description.machine.clone(),
            cpu: description.cpu.clone(),
            memory_file: memory.file.clone(),
            writes,
            agent: agent.map(|agent| agent.path().to_owned()),
            has_second_place: description.has_second_place(),
        },
        network: description.has_network.then(|| match &spec.network {
            Some(forwards) => Network::Connected { forwards: forwards.clone() },
            None => Network::Unplugged,
        }),
    };
    Ok(resumed.launch())
}

/// Reads what the snapshot says of itself. Refuses a guest that cannot be had, or not with a network.
fn describe(memory: &ShownMemory, wants_network: bool) -> anyhow::Result<Description> {
    let bytes = memory.bytes()?;
    let mut block = vec![0; to_usize(BLOCK_BYTES.min(bytes))];
    memory
        .read_at(bytes - block.len() as u64, &mut block)
        .with_context(|| format!("read the description in {}", memory.name))?;
    let description = Description::decode(&block, bytes, &memory.name)?;
    match (description.has_network, wants_network) {
        (false, true) => return Err(ResumeError::NoNetwork { snapshot: memory.name.clone() }.into()),
        (true, false) => log::info!("the guest's network card is not connected: --network connects it"),
        _ => {}
    }
    let (needed, available) = (description.memory_bytes, boot::available_memory_bytes());
    if let Some(available) = available.filter(|available| *available < needed) {
        let (needed, available) = (ByteSize(needed), ByteSize(available));
        return Err(ResumeError::NoMemory { snapshot: memory.name.clone(), needed, available }.into());
    }
    Ok(description)
}

/// Refuses an overlay that names other files, before QEMU looks at it.
fn check_overlay(memory: &ShownMemory, description: &Description) -> anyhow::Result<()> {
    let Part { offset, bytes } = description.overlay;
    let mut head = vec![0; to_usize(bytes.min(overlay::HEAD_BYTES))];
    memory
        .read_at(offset, &mut head)
        .with_context(|| format!("read what the guest of {} wrote to its disk", memory.name))?;
    overlay::check(&head, description.disk_bytes)
        .map_err(|why| ResumeError::Overlay { snapshot: memory.name.clone(), why }.into())
}

/// What executes the guest, if it is here.
fn accelerator(description: &Description, snapshot: &str) -> Result<Accelerator, ResumeError> {
    let refused = |why: String| ResumeError::NoAccelerator {
        snapshot: snapshot.to_owned(),
        accelerator: description.accelerator.clone(),
        why,
    };
    match description.accelerator.as_str() {
        "tcg" => Ok(Accelerator::Tcg),
        "kvm" => match File::options().read(true).write(true).open("/dev/kvm") {
            Ok(_) => Ok(Accelerator::Kvm),
            Err(error) => Err(refused(format!("/dev/kvm: {error}"))),
        },
        _ => Err(refused("it is not known".to_owned())),
    }
}

/// Loads the state of the devices; a network card is saved without what it was connected to.
fn load_devices(monitor: &mut Monitor, state: &File, spec: &ResumeSpec) -> Result<(), GuestError> {
    monitor.load_devices(state.as_fd())?;
    if spec.network.is_some() { monitor.plug_network_in() } else { Ok(()) }
}

/// The state of the devices, as a file that QEMU reads.
fn state_of(memory: &ShownMemory, part: Part) -> Result<File, GuestError> {
    let failed = |source| GuestError::Monitor { action: "read the state of devices for", source };
    let descriptor = rustix::fs::memfd_create("headstart-state", MemfdFlags::CLOEXEC);
    let mut file = File::from(descriptor.map_err(|errno| failed(errno.into()))?);
    memory.read_part(part, |piece| file.write_all(piece)).map_err(failed)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(|errno| failed(errno.into()))?;
    Ok(file)
}

/// The disk that the guest was booted from.
struct OpenDisk {
    source: ImageSource,
    on_medium: OnMedium,
    disk: Arc<ServedDisk>,
}

impl OpenDisk {
    fn open(spec: &ResumeSpec, source: ImageSource) -> anyhow::Result<Self> {
        let on_medium = medium::open(source.clone(), &spec.medium, &Damage::default())?;
        let mode = if spec.prefetches { Prefetching::Hold } else { Prefetching::Off };
        let config = start::config(&source, mode, Some(spec.limits), &spec.medium)?;
        let (store, config) = (Arc::clone(&on_medium.store), on_medium.config(&config));
        let disk = config
            .open(store, spec.disk_watch.clone())
            .with_context(|| format!("the disk of the guest, {}", source.display()))?;
        Ok(Self { source, on_medium, disk })
    }

    /// Shows it to the guest, in this folder. Refuses what does not fit together, before QEMU looks at it.
    fn show(
        &self,
        spec: &ResumeSpec,
        memory: &ShownMemory,
        description: &Description,
        folder: &Path,
    ) -> anyhow::Result<NbdDisk> {
        self.check(spec, description)?;
        memory.use_base(&self.disk)?;
        check_overlay(memory, description)?;
        let disk_name = self.source.display().to_string();
        let keeping = Keeping { memory, description, disk: &self.disk, disk_name: &disk_name };
        let keep = spec.keep.as_deref().map(|path| keeping.open(path)).transpose()?;
        let keep = keep.map(hs_start::keep::asked);
        NbdDisk::of(Arc::clone(&self.disk), folder, &disk_name, keep)
    }

    /// Refuses another disk than the guest was booted from.
    fn check(&self, spec: &ResumeSpec, description: &Description) -> Result<(), ResumeError> {
        let found = self.disk.image().disk_digest().to_string();
        if found != description.disk_digest {
            return Err(ResumeError::OtherDisk {
                snapshot: spec.snapshot.display().to_string(),
                expected: description.disk_digest.clone(),
                disk_name: description.disk_name.clone(),
                disk: self.source.display().to_string(),
                found,
            });
        }
        let (named, there) = (description.disk_bytes, self.disk.image().disk_bytes());
        if named != there {
            let why = format!("it names a disk of {named} bytes, and {} has {there}", self.source.display());
            return Err(ResumeError::Description { snapshot: spec.snapshot.display().to_string(), why });
        }
        Ok(())
    }
}

/// The image of the disk in the folder of the snapshot.
fn beside(snapshot: &ImageSource, description: &Description) -> Result<ImageSource, ResumeError> {
    let disk_name = &description.disk_name;
    let is_name = !disk_name.is_empty() && !disk_name.contains('/') && disk_name != "..";
    let folder = snapshot.file().and_then(|path| path.parent()).filter(|_| is_name);
    let found = folder.map(|folder| folder.join(disk_name)).filter(|path| path.is_file());
    found.map(ImageSource::from).ok_or_else(|| ResumeError::NoDisk {
        snapshot: snapshot.display().to_string(),
        disk_name: disk_name.clone(),
    })
}

/// The media of snapshot and disk, and what they had done before the clock started.
struct Media<'a>(Vec<(&'a OnMedium, Snapshot)>);

impl<'a> Media<'a> {
    fn of(snapshot: Option<&'a OnMedium>, disk: &'a OnMedium, is_warm: bool) -> Self {
        let before = |medium: &OnMedium| match is_warm {
            true => medium.counters.snapshot(),
            false => Snapshot::default(),
        };
        Self(snapshot.into_iter().chain([disk]).map(|medium| (medium, before(medium))).collect())
    }

    /// What they did together.
    fn fill(&self, summary: &mut Summary) {
        for (on_medium, before) in &self.0 {
            let mut part = Summary::default();
            let counted = on_medium.counters.snapshot().since(before);
            start::fill_medium(&mut part, &counted, &on_medium.retries.snapshot());
            summary.store_requests += part.store_requests;
            summary.store_bytes += part.store_bytes;
            summary.seeks += part.seeks;
            summary.medium_busy_s += part.medium_busy_s;
            summary.store_retries += part.store_retries;
            summary.store_errors += part.store_errors;
        }
    }
}
