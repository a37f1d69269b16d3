//! One timed boot: a guest starts from an image, or from a raw disk, on some medium.
//!
//! ```text
//! medium ─► ServedImage | ServedFile ─► disk.img (FUSE; hot blocks are pushed into its page cache)
//!        └► ServedDisk ─► NBD (QEMU)       ▲ reads
//!                              guest ──────┤
//!                                          ▼ writes
//!                                       scratch (tmpfs in a mount namespace of our own)
//! ```

mod choice;
mod consoles;
mod first_program;
mod guest_read_ahead;
mod identity;
mod medium_reads;
mod nbd_disk;
mod own_recording;
mod qemu;
mod read_ahead;
mod saving;

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_build::ext4::ReadDisk;
use hs_device::Medium;
use hs_disk::Watch;
use hs_fuse::Abort;
use hs_fuse::{ServedFile, ServedImage};
use hs_guest::console::Console;
use hs_guest::qemu::Drive;
use hs_guest::uml::{self, Uml};
use hs_guest::{Guest, GuestError, Launch, jail, network, uml_trial};
use hs_keep::{KeepFile, KeptDisk, OpenedAs};
use hs_linux::Volume;
use hs_linux::fsmount::FileSystem;
use hs_serve::FileAccess;
use hs_serve::{ServeConfig, ServedDisk};
use hs_store::Snapshot;
use hs_trace::Profile;
use hs_units::{ByteSize, Nanos};
use rustix::mount::MountFlags;

use crate::guest_processes::GuestProcesses;
use crate::image::ImageSource;
use crate::keep;
use crate::learned::LearnedFolder;
use crate::limit;
use crate::medium::{self, Damage};
use crate::on_medium::OnMedium;
use crate::process_log::{Looking, ProcessLog};
use crate::remote::places_here;
use crate::stage_spans::{StageSpan, spans};
use crate::start;
use crate::summary::{Stage, Summary};
use hs_service::ending::{Deadline, Guard};
use hs_service::memory::peak_rss_bytes;
use hs_service::workdir::Workdir;

pub use self::choice::{VmmChoice, VmmName, choose, try_qemu, try_uml};
pub use self::consoles::Log;
pub use self::guest_read_ahead::GuestReadAhead;
pub use self::identity::{check_has_init, identify, is_image};
use self::medium_reads::MediumReads;
pub use self::medium_reads::{MediumRead, MediumStart};
pub use self::nbd_disk::{NbdDisk, close_kept};
use self::own_recording::OwnRecording;
use self::qemu::OnQemu;
pub use self::qemu::{KernelOf, QemuSpec};
pub use self::saving::{STATE_BYTES, SaveGuest, SavedParts, empty_overlay};

/// Memory that User-mode Linux needs in the same place beside the guest's memory; an upper bound.
const MEMORY_SLACK_BYTES: u64 = 16 << 20;

/// The disk of a guest.
#[derive(Clone, Debug)]
pub enum BootDisk {
    /// A headstart image, and how it is served.
    Image(Box<ImageSource>, Box<ServeConfig>),
    /// A plain disk.
    Raw(PathBuf),
}

impl BootDisk {
    /// Where it lies.
    pub fn image(&self) -> ImageSource {
        match self {
            Self::Image(image, _) => (**image).clone(),
            Self::Raw(path) => path.into(),
        }
    }
}

/// What runs the guest.
#[derive(Clone, Debug)]
pub enum Vmm {
    /// User-mode Linux.
    Uml {
        /// The program, which is the guest's kernel.
        kernel: PathBuf,
    },
    /// QEMU.
    Qemu(QemuSpec),
}

impl Vmm {
    /// Whether the guest has a network card.
    const fn has_network(&self) -> bool {
        matches!(self, Self::Qemu(QemuSpec { network: Some(_), .. }))
    }

    /// As the command line calls it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Uml { .. } => "uml",
            Self::Qemu(_) => "qemu",
        }
    }

    /// Fails when no guest could mount this file system of the disk as its root. Which file systems the usual
    /// kernels can mount is known.
    pub fn check_boots(&self, root: &Volume, disk: &ImageSource) -> anyhow::Result<()> {
        let (path, file_system) = (disk.display(), root.file_system);
        match self {
            Self::Uml { .. } if root.disk_sector_bytes != 512 => bail!(
                "the partition table of {path} counts in sectors of {} bytes, and disks of User-mode Linux have \
                 512: boot it with --vmm qemu, or make an image of the partition alone (`headstart build DISK \
                 --partition ...`)",
                root.disk_sector_bytes
            ),
            Self::Qemu(QemuSpec { kernel: KernelOf::Medium { .. }, .. }) => {}
            _ if file_system == FileSystem::Ext4 => {}
            Self::Uml { kernel } if kernel.file_name() == Some(uml::PROGRAM.as_ref()) => {
                bail!(
                    "{path} holds {file_system}, and linux.uml can boot only from ext4: give another --kernel"
                )
            }
            Self::Qemu(QemuSpec { kernel: KernelOf::Disk, .. }) => {
                bail!(
                    "{path} holds {file_system}, and a kernel is looked for only in ext4: give --kernel a file"
                )
            }
            _ => {}
        }
        Ok(())
    }

    /// With so little free scratch, writes of the guest fail. User-mode Linux fills it to the last page. QEMU
    /// allocates room for a whole request first; on a tmpfs a failed allocation leaves nothing behind.
    const fn least_free_bytes(&self) -> u64 {
        match self {
            Self::Uml { .. } => 0,
            Self::Qemu(_) => hs_guest::qemu::LARGEST_WRITE_BYTES,
        }
    }

    /// The least scratch with which a guest can begin, for a disk of so many bytes.
    const fn least_scratch_bytes(&self, disk_bytes: u64) -> u64 {
        match self {
            Self::Uml { .. } => uml::least_scratch_bytes(disk_bytes),
            Self::Qemu(_) => hs_guest::qemu::LEAST_SCRATCH_BYTES,
        }
    }
}

/// A boot to be made.
#[derive(Clone)]
pub struct BootSpec {
    /// What the guest boots from.
    pub disk: BootDisk,
    /// The partition with its root, by number, label, UUID or type; the whole disk when not given.
    pub partition: Option<String>,
    /// The root in the disk, where it has been identified.
    pub root: Option<Volume>,
    /// The medium of the disk.
    pub medium: Medium,
    /// The faults of that medium.
    pub damage: Damage,
    /// Read the whole disk into the page cache before the boot is timed.
    pub warm: bool,
    /// What runs the guest.
    pub vmm: Vmm,
    /// The guest's memory.
    pub memory: ByteSize,
    /// Memory for what it writes.
    pub scratch: ByteSize,
    /// The file that keeps what it writes.
    pub keep: Option<PathBuf>,
    /// Its first program, when not the usual one.
    pub init: Option<String>,
    /// Further words for its kernel.
    pub append: Vec<String>,
    /// How far its kernel reads ahead.
    pub guest_read_ahead: GuestReadAhead,
    /// Ready when a line of its console matches.
    pub ready: regex::Regex,
    /// How long to wait for that.
    pub ready_timeout: Duration,
    /// How long it goes on afterwards.
    pub grace: Duration,
    /// Where its console is kept.
    pub console: Option<PathBuf>,
    /// Sees every read that the server answers.
    pub watch: Option<Arc<dyn Watch>>,
    /// Whether the reads become a profile: then the guest reads nothing ahead that it can leave, and one that
    /// starts from a medium records itself.
    pub is_recorded: bool,
    /// Sees the guest's processes, or those of this machine that run it where it cannot tell of its own.
    pub processes: Option<Arc<ProcessLog>>,
    /// Saves the guest when it is ready.
    pub save: Option<Arc<dyn SaveGuest>>,
    /// Where the last boot has kept what it read.
    pub learned: Option<LearnedFolder>,
}

impl BootSpec {
    /// Whether firmware starts the guest from a medium.
    pub const fn starts_from_medium(&self) -> bool {
        matches!(self.vmm, Vmm::Qemu(QemuSpec { kernel: KernelOf::Medium { .. }, .. }))
    }

    /// Whether the guest records its start, since the image lies on a medium that only it reads.
    pub(crate) const fn records_itself(&self) -> bool {
        self.is_recorded && self.starts_from_medium()
    }

    /// Whether a guest that records itself records what its kernel reads ahead as well: the next start from
    /// the medium reads that too.
    pub(crate) fn records_read_ahead(&self) -> bool {
        self.guest_read_ahead != GuestReadAhead::Kib(0)
    }

    /// What makes this boot read other blocks than another one from its disk, for [`LearnedFolder`].
    pub(crate) fn words(&self) -> Vec<OsString> {
        let words = ["boot", self.vmm.as_str()].into_iter().chain(self.init.as_deref());
        let words = words.chain(self.vmm.has_network().then_some("--network"));
        let words = words.chain(self.partition.iter().flat_map(|word| ["--partition", word.as_str()]));
        words.chain(self.append.iter().map(String::as_str)).map(OsString::from).collect()
    }
}

/// The result of a boot that became ready.
pub struct Booted {
    /// The figures.
    pub summary: Summary,
    /// Start → ready.
    pub ready: Duration,
    /// Start → the end of what is recorded and traced of it.
    pub ended: Nanos,
    /// The message about reads that could not be answered.
    pub lost: Option<String>,
    /// The profile of a guest that has recorded itself, and when it began to, from the start on.
    pub recorded: Option<(Duration, Profile)>,
    /// What was read of the medium that firmware started the guest from.
    pub medium: Option<MediumStart>,
}

impl Booted {
    /// Its stages, those before the kernel included where they are known.
    #[must_use]
    pub fn stages(&self) -> Vec<StageSpan> {
        match &self.medium {
            Some(medium) => medium.stages.clone(),
            None => spans(&[], &self.summary.stages, self.ended),
        }
    }
}

/// Boots the guest, and takes everything down again. Call `hs_linux::rootenv::enter_private_mounts` once
/// before.
pub fn boot(spec: &BootSpec) -> anyhow::Result<Booted> {
    let on_medium = medium::open(spec.disk.image(), &spec.medium, &spec.damage)?;
    let (on_medium, medium_reads) = MediumReads::watch(spec, on_medium);
    // Opened before anything is mounted over the folder that it may lie in.
    let log = Log::open(spec.console.as_deref())?;
    let work = Workdir::new(&needed(spec))?;
    let scratch = work.folder("scratch")?;
    mount_memory(&scratch, spec.scratch.0)?;
    let mut machine = Machine::prepare(spec, &work, &scratch, &on_medium)?;
    let obstacle = read_ahead::obstacle(spec)?;
    let is_watched = first_program::is_watched(spec);
    let folder = work.folder("disk")?;
    let mut began = Instant::now();
    let (served, learned_windows) = ShownDisk::start(spec, &on_medium, &folder)?.taught(spec);
    let mut guard = Guard::start();
    served.abort().iter().for_each(|abort| guard.watch(abort));
    let booted = (|| {
        let disk_bytes = served.disk_bytes(&on_medium);
        check_room(spec, disk_bytes)?;
        let root = served.root(spec)?;
        let guest_read_ahead_kib = read_ahead::choose(spec, &served, obstacle.as_deref());
        if spec.warm {
            read_whole(&folder.join("disk.img"))?;
            began = Instant::now();
        }
        let before = if spec.warm { on_medium.counters.snapshot() } else { Snapshot::default() };
        let told = (guest_read_ahead_kib, is_watched);
        let launch = machine.launch((spec, &root), &served, (&folder, disk_bytes), told)?;
        let mut guest = Guest::start(launch, Console::new(spec.ready.clone()), log.writer())?;
        log::info!("guest started after {:.1?}", began.elapsed());
        let (watching, looking) = watch_processes(spec, &mut guest, began)?;
        let mut summary = Summary {
            medium: spec.medium.to_string(),
            image_bytes: on_medium.store.len(),
            logical_bytes: disk_bytes,
            guest_read_ahead_kib,
            learned_windows,
            ..Summary::default()
        };
        let went = (|| {
            let recording = machine.listen(&mut guest)?;
            let has_room = || check_scratch(&scratch, spec.scratch, spec.vmm.least_free_bytes());
            let mut look = |stage: Option<(&'static str, Instant)>| {
                if let Some((name, at)) = stage {
                    let counted = on_medium.counters.snapshot().since(&before);
                    summary.stages.push(Stage::new(name, at - began, &counted));
                }
                has_room()
            };
            let ready = guest.wait_ready(began, spec.ready_timeout, spec.ready.as_str(), &mut look)? - began;
            summary.guest_cpu_s = guest.cpu_time().map(|time| time.as_secs_f64());
            // A guest whose writes failed may go on all the same; it has not booted.
            has_room()?;
            let counted = on_medium.counters.snapshot().since(&before);
            start::fill_medium(&mut summary, &counted, &on_medium.retries.snapshot());
            summary.ready_s = Some(ready.as_secs_f64());
            served.fill(spec, &mut summary);
            guest.go_on(spec.grace, &has_room)?;
            medium_reads.iter().for_each(MediumReads::end);
            let ended = Nanos::from(began.elapsed());
            let recorded = recording.map(|own| own.finish(&mut guest, (began, ready))).transpose()?;
            Ok((ready, ended, machine.save(&mut guest)?, recorded))
        })();
        let lost = served.image().and_then(|disk| on_medium.lost(disk));
        summary.end_reason = served.end_reason();
        drop(looking);
        // From here on nothing may wait for the medium, the guest included.
        guest.kill();
        let kept = close_kept(served.kept());
        let ending = Deadline::unhurried(served.abort().into_iter().collect());
        served.close();
        guest.end();
        drop(ending);
        spec.processes.iter().zip(watching).for_each(|(log, watching)| watching.end(log));
        let (ready, ended, saved, recorded) = went
            .map_err(|error| explain(&error, lost.clone().or_else(|| on_medium.trouble()), &guest, &log))?;
        if let (Some(save), Some(parts), Some(disk)) = (&spec.save, saved, served.image()) {
            save.save(&parts, disk.image())?;
        }
        kept?;
        (summary.wall_s, summary.peak_rss_bytes) = (began.elapsed().as_secs_f64(), peak_rss_bytes());
        let medium = medium_reads.map(|reads| reads.of_start(spec, began, &summary.stages, ended));
        summary.medium_files = medium.as_ref().map(MediumStart::by_stage_and_file).unwrap_or_default();
        Ok(Booted { summary, ready, ended, lost, recorded, medium })
    })();
    let _deadline = Deadline::unhurried(served.abort().into_iter().collect());
    served.close();
    drop(served);
    booted
}

/// Watches the guest's processes, where it tells of them, and those that run it.
fn watch_processes(
    spec: &BootSpec,
    guest: &mut Guest,
    began: Instant,
) -> anyhow::Result<(Option<GuestProcesses>, Option<Looking>)> {
    let watching = guest.take_watch().map(|line| GuestProcesses::watch(began, line)).transpose()?;
    let looking = spec.processes.as_ref().zip(guest.processes());
    let looking = looking.map(|(log, processes)| log.watch(began, processes)).transpose();
    Ok((watching, looking.context("look at the processes")?))
}

/// Files that are opened while the guest starts, or afterwards.
fn needed(spec: &BootSpec) -> Vec<PathBuf> {
    let mut needed = places_here(&spec.disk.image());
    // Where the console of a boot that fails is kept.
    needed.push(std::env::temp_dir());
    needed.extend(spec.save.as_ref().map(|save| save.output().to_owned()));
    needed.extend(spec.keep.clone());
    match &spec.vmm {
        Vmm::Uml { kernel } => needed.push(kernel.clone()),
        Vmm::Qemu(qemu) => {
            needed.push(qemu.program.clone());
            needed.extend(qemu.network.iter().map(|_| PathBuf::from(network::RESOLV_CONF)));
            if let KernelOf::Machine { kernel, initrd } = &qemu.kernel {
                needed.push(kernel.clone());
                needed.extend(initrd.clone());
            }
        }
    }
    needed
}

/// The program that runs the guest, with its paths on this machine.
enum Machine {
    Uml { kernel: PathBuf, scratch: PathBuf, memory_folder: PathBuf },
    Qemu(Box<OnQemu>),
}

impl Machine {
    fn prepare(
        spec: &BootSpec,
        work: &Workdir,
        scratch: &Path,
        on_medium: &OnMedium,
    ) -> anyhow::Result<Self> {
        let scratch = scratch.to_owned();
        Ok(match &spec.vmm {
            Vmm::Uml { kernel } => {
                let memory_folder = work.folder("memory")?;
                mount_memory(&memory_folder, spec.memory.0 + MEMORY_SLACK_BYTES)?;
                Self::Uml { kernel: kernel.clone(), scratch, memory_folder }
            }
            Vmm::Qemu(qemu) => Self::Qemu(Box::new(OnQemu::prepare(spec, qemu, work, scratch, on_medium)?)),
        })
    }

    /// The command that starts the guest. Its disk is served already: as a file of so many bytes in `folder`,
    /// or over NBD.
    fn launch(
        &mut self,
        (spec, root): (&BootSpec, &Volume),
        served: &ShownDisk,
        (folder, disk_bytes): (&Path, u64),
        (read_ahead_kib, is_watched): (Option<u32>, bool),
    ) -> anyhow::Result<Launch> {
        let disk = folder.join("disk.img");
        Ok(match self {
            Self::Uml { kernel, scratch, memory_folder } => Uml {
                kernel: kernel.clone(),
                disk,
                partition: root.partition,
                keeps: spec.keep.is_some(),
                scratch: scratch.clone(),
                memory_folder: memory_folder.clone(),
                memory: spec.memory,
                init: spec.init.clone(),
                initramfs: first_program::of_uml(spec, read_ahead_kib, root, is_watched)
                    .map(|program| written(scratch, &program.initramfs()))
                    .transpose()?,
                is_watched,
                append: spec.append.clone(),
            }
            .launch()?,
            Self::Qemu(on_qemu) => {
                let drive = match served {
                    ShownDisk::Nbd(nbd) => nbd.drive(),
                    ShownDisk::Image(_) | ShownDisk::Raw(_) => Drive::File(disk.clone()),
                };
                let read = |offset, bytes: &mut [u8]| served.read_at(&disk, offset, bytes);
                on_qemu.launch(
                    (spec, root),
                    (drive, disk_bytes),
                    &mut ReadDisk::part(root.range, read),
                    is_watched,
                )?
            }
        })
    }

    /// Begins to listen to a guest that records its start.
    fn listen(&self, guest: &mut Guest) -> Result<Option<OwnRecording>, GuestError> {
        match self {
            Self::Qemu(on_qemu) => on_qemu.listen(guest),
            Self::Uml { .. } => Ok(None),
        }
    }

    /// Saves the guest, where that was asked for.
    fn save(&mut self, guest: &mut Guest) -> Result<Option<SavedParts>, GuestError> {
        match self {
            Self::Qemu(on_qemu) => on_qemu.save(guest),
            Self::Uml { .. } => Ok(None),
        }
    }
}

enum ShownDisk {
    Image(Box<ServedImage>),
    Raw(ServedFile),
    Nbd(Box<NbdDisk>),
}

impl ShownDisk {
    /// Shows the disk. An image is shown to QEMU over NBD, unless it is read into the page cache first; every
    /// other disk is a file in `folder`.
    fn start(spec: &BootSpec, on_medium: &OnMedium, folder: &Path) -> anyhow::Result<Self> {
        let store = Arc::clone(&on_medium.store);
        let watch = spec.watch.clone();
        // Only the guest's user may read the file.
        let access =
            jail::user().id.map_or_else(FileAccess::default, |id| FileAccess::default().owned_by(id, id));
        let keep = spec.keep.as_deref();
        let keep =
            keep.map(|path| KeepFile::open(path, OpenedAs::Keeping, KeepFile::PATIENCE)).transpose()?;
        let keep = keep.map(keep::asked);
        Ok(match (&spec.disk, &spec.vmm) {
            (BootDisk::Image(_, config), Vmm::Qemu(_)) if !spec.warm => {
                let config = on_medium.config(config);
                Self::Nbd(Box::new(NbdDisk::start(store, folder, &config, watch, keep)?))
            }
            (BootDisk::Image(_, config), _) => {
                let access = if keep.is_some() { FileAccess { mode: 0o600, ..access } } else { access };
                let config = ServeConfig { access, ..on_medium.config(config) };
                Self::Image(Box::new(match keep {
                    Some(keep) => ServedImage::start_keeping(store, folder, &config, watch, keep)?,
                    None => ServedImage::start(store, folder, &config, watch)?,
                }))
            }
            // The file may be anything, also a disk over NBD. Read-ahead below the guest's own would fetch
            // from there.
            (BootDisk::Raw(_), _) if spec.medium == Medium::None => {
                Self::Raw(ServedFile::without_read_ahead(store, folder, "disk.img", access)?)
            }
            (BootDisk::Raw(_), _) => Self::Raw(ServedFile::start(store, folder, "disk.img", access)?),
        })
    }

    /// Gives the disk what the last boot has read; also how many windows that is, if the boot learns.
    fn taught(self, spec: &BootSpec) -> (Self, Option<u64>) {
        let learned = spec.learned.as_ref().zip(self.image());
        let windows = learned.map(|(learned, disk)| learned.teach(disk, &spec.words()));
        (self, windows)
    }

    /// The image that is served, if it is one.
    fn image(&self) -> Option<&Arc<ServedDisk>> {
        match self {
            Self::Image(served) => Some(served.disk()),
            Self::Nbd(served) => Some(served.disk()),
            Self::Raw(_) => None,
        }
    }

    /// The means to fail requests that wait for the file, where there is one.
    fn abort(&self) -> Option<Arc<Abort>> {
        match self {
            Self::Image(served) => served.session().abort(),
            Self::Raw(served) => served.session().abort(),
            Self::Nbd(_) => None,
        }
    }

    /// The disk with what the guest writes, where that lasts.
    fn kept(&self) -> Option<&Arc<KeptDisk>> {
        match self {
            Self::Nbd(nbd) => nbd.kept(),
            Self::Image(served) => served.kept(),
            Self::Raw(_) => None,
        }
    }

    /// The disk is no longer needed: reads that wait for it fail.
    fn close(&self) {
        match self {
            Self::Image(served) => served.disk().close(),
            Self::Nbd(served) => served.disk().close(),
            Self::Raw(served) => served.close(),
        }
    }

    /// Reads the disk as the guest would; `file` is where a raw one is shown.
    fn read_at(&self, file: &Path, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self.image() {
            Some(disk) => disk.read_at(offset, bytes).map_err(io::Error::other),
            None => std::fs::File::open(file)?.read_exact_at(bytes, offset),
        }
    }

    /// The root in the disk. For a remote image it is not known yet; it is read through the reader that
    /// serves the guest.
    fn root(&self, spec: &BootSpec) -> anyhow::Result<Volume> {
        if let Some(known) = spec.root {
            return Ok(known);
        }
        let image = spec.disk.image();
        let disk = self.image().context("a raw disk lies in a file")?;
        let read_at = |offset: u64, bytes: &mut [u8]| disk.read_at(offset, bytes).map_err(io::Error::other);
        let (bytes, partition) = (disk.image().exact_bytes(), spec.partition.as_deref());
        let root = Volume::find(&image.word(), bytes, partition, read_at)?;
        spec.vmm.check_boots(&root, &image)?;
        Ok(root)
    }

    fn disk_bytes(&self, on_medium: &OnMedium) -> u64 {
        self.image().map_or_else(|| on_medium.store.len(), |disk| disk.image().disk_bytes())
    }

    fn fill(&self, spec: &BootSpec, summary: &mut Summary) {
        if let Some(disk) = self.image() {
            start::fill_image(summary, disk);
            start::fill_deadlines(summary, disk);
            start::fill_tripwires(summary, disk);
            let medium = if spec.warm { Medium::None } else { spec.medium };
            limit::fill(summary, disk.image(), medium);
        }
    }

    fn end_reason(&self) -> Option<String> {
        self.image()?.ended().map(|reason| reason.as_str().to_owned())
    }
}

/// Writes the guest's initramfs into the folder of its scratch.
fn written(scratch: &Path, initramfs: &[u8]) -> anyhow::Result<PathBuf> {
    let path = scratch.join("initramfs");
    // The guest's user must be able to read it, whatever the umask of this process is.
    std::fs::write(&path, initramfs)
        .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)))
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// A tmpfs of so many bytes, from which User-mode Linux may execute its guest's memory.
pub fn mount_memory(target: &Path, bytes: u64) -> anyhow::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let data = std::ffi::CString::new(format!("size={bytes},mode=700"))?;
    rustix::mount::mount("headstart", target, "tmpfs", flags, data.as_c_str())
        .with_context(|| format!("mount {} of memory at {}", ByteSize(bytes), target.display()))
}

/// Fails when the memory or the scratch is too small for the guest to begin, or this machine does not have
/// it.
fn check_room(spec: &BootSpec, disk_bytes: u64) -> anyhow::Result<()> {
    let least = spec.vmm.least_scratch_bytes(disk_bytes);
    if spec.scratch.0 < least {
        bail!(
            "{} of scratch is not enough for what a guest writes to a disk of {}: give --scratch {} or more",
            spec.scratch,
            ByteSize(disk_bytes),
            ByteSize(least)
        );
    }
    let needed = spec.memory.0.saturating_add(least);
    match available_memory_bytes() {
        Some(available) if available < needed => bail!(
            "the guest needs {} of memory, and this machine has {} to spare: give a smaller --memory",
            ByteSize(needed),
            ByteSize(available)
        ),
        _ => Ok(()),
    }
}

/// What this machine has to spare.
pub fn available_memory_bytes() -> Option<u64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Fails when no more than that is free in a folder for the writes of a guest.
pub fn check_scratch(folder: &Path, scratch: ByteSize, least_free_bytes: u64) -> Result<(), GuestError> {
    match rustix::fs::statvfs(folder) {
        Ok(found) if found.f_bavail * found.f_frsize <= least_free_bytes => {
            Err(GuestError::ScratchFull { scratch })
        }
        _ => Ok(()),
    }
}

/// Reads a file into the page cache.
pub fn read_whole(path: &Path) -> anyhow::Result<()> {
    let context = || format!("read {}", path.display());
    let mut file = std::fs::File::open(path).with_context(context)?;
    std::io::copy(&mut file, &mut std::io::sink()).with_context(context)?;
    Ok(())
}

/// The error, with the medium's errors, the guest's last output, and where the whole output is.
pub fn explain(error: &GuestError, trouble: Option<String>, guest: &Guest, log: &Log) -> anyhow::Error {
    let tail = guest.tail();
    let trouble = trouble.map(|trouble| format!("; {trouble}")).unwrap_or_default();
    let registers = uml_trial::registers(&tail).map(|why| format!("; {why}: --vmm qemu runs it in QEMU"));
    let network = network::trouble(&tail).map(|why| format!("; {why}"));
    let trouble = trouble + &registers.or(network).unwrap_or_default();
    if tail.is_empty() {
        return anyhow::anyhow!("{error}; its console said nothing{trouble}");
    }
    let kept = match log.keep() {
        Ok(path) => format!("all of it is in {}", path.display()),
        Err(error) => format!("the rest could not be kept: {error:#}"),
    };
    anyhow::anyhow!("{error}{trouble}; the last lines of its console ({kept}):\n  {}", tail.join("\n  "))
}
