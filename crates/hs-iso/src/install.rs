//! A disk with a system that starts from an image and keeps what is written.
//!
//! ```text
//! GPT ┬ BIOS boot: GRUB's core
//!     ├ EFI system: EFI/BOOT
//!     ├ boot (ext4): boot/grub/{grub.cfg,grubenv}, slots/{a,b}/{vmlinuz,initrd.img,boot.cfg}
//!     └ data (ext4): slots/{a,b}/root.hsi, writes/DISK.hsk
//! ```
//!
//! GRUB does not replay the journal of an ext4. What it reads has a partition of its own, which is unmounted,
//! so that everything lies in its place, before the boot loader's block names a new slot.

mod claim;
mod disk;
mod grub;
mod slots;
mod target;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_live::boot_state::{BootState, Slot};
use hs_output::show::Bar;
use hs_service::signals::Ends;
use hs_service::workdir::Workdir;
use hs_start::channel;
use hs_units::ByteSize;
use serde::Serialize;

use crate::drafts::{Drafts, Left};
use crate::parts::SystemSpec;
use crate::{boot_loader, tools};
use disk::Disk;
use slots::{Filling, SlotReport};
use target::Target;

/// What a signal says that comes between the first write and the last.
const INCOMPLETE: &str =
    "a file that was made is removed; another disk is incomplete, and the same command begins again";

/// A disk to be made.
#[derive(Clone, Debug)]
pub struct InstallSpec {
    /// The device, or the file.
    pub disk: PathBuf,
    /// The system.
    pub system: SystemSpec,
    /// How large a file is made.
    pub size: Option<ByteSize>,
    /// Room for files in a root that is built from a directory; a quarter of the data partition when `None`.
    pub free: Option<ByteSize>,
    /// Further words for the kernel.
    pub append: Vec<String>,
    /// How long the boot menu waits, in seconds.
    pub timeout_s: u32,
    /// Destroy what is on the disk.
    pub force: bool,
}

/// A system to be put beside the one that is there.
#[derive(Clone, Debug)]
pub struct UpdateSpec {
    /// The device, or the file.
    pub disk: PathBuf,
    /// The system, an image.
    pub system: SystemSpec,
    /// What was written to the systems that are there need not be in the new one.
    pub without_writes: bool,
}

/// What is on a disk.
#[derive(Clone, Debug, Serialize)]
pub struct DiskReport {
    /// The disk.
    pub disk: String,
    /// The slot of the system that came up last.
    pub good: String,
    /// The slot that is tried at the next start.
    pub next: Option<String>,
    /// The systems.
    pub slots: Vec<SlotReport>,
    /// Free bytes of the data partition.
    pub free_bytes: u64,
    /// What starts the disk: its loaders, when it was just made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaders: Option<DiskLoaders>,
}

/// Which firmware starts a disk.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DiskLoaders {
    /// BIOS.
    pub bios: bool,
    /// UEFI.
    pub uefi: bool,
    /// UEFI where Secure Boot is on.
    pub secure_boot: bool,
}

/// Makes the disk. Call `hs_linux::rootenv::enter_private_mounts` before. `signals` end the process.
///
/// # Errors
/// When the disk is in use or holds something, when a tool or a part of the system is missing, or when the
/// system does not fit. A device then says, when it is started, that the installation was interrupted; a file
/// that was made is removed.
pub fn install(spec: &InstallSpec, quiet: bool, signals: Ends) -> anyhow::Result<DiskReport> {
    let (drafts, _interruption) =
        Drafts::watch(signals, Left { drafts: Vec::new(), said: "nothing is changed" })?;
    tools::check_disk()?;
    grub::check_words(&spec.append)?;
    let image_bytes = slots::least_bytes(&spec.system)?;
    spec.system.check_kernel(&spec.disk)?;
    let target = Target::open(&spec.disk, spec.size, spec.force, &drafts)?;
    let plan = target.plan(image_bytes)?;
    drafts.left().said = INCOMPLETE;
    let made = make(spec, &target, &plan, &drafts, quiet);
    if made.is_err() {
        target.remove_if_made();
    }
    made
}

fn make(
    spec: &InstallSpec,
    target: &Target,
    plan: &target::Plan,
    drafts: &Drafts,
    quiet: bool,
) -> anyhow::Result<DiskReport> {
    let bar = Bar::new(quiet);
    bar.spin("dividing the disk");
    target.divide(plan)?;
    let work = workdir(&spec.disk, &spec.system)?;
    let disk = Disk::format(&spec.disk, plan, &work)?;
    let free = spec.free.unwrap_or(ByteSize(plan.data.len / 4));
    let (system, free_bytes) = (&spec.system, free.0);
    Filling { disk: &disk, slot: Slot::A, system, free_bytes, work: &work, drafts }.run(&bar)?;
    let menu = grub::Menu { data_uuid: &disk.data_uuid, words: &spec.append, timeout_s: spec.timeout_s };
    grub::write_menu(disk.boot.path(), &menu)?;
    BootState { good: Slot::A, next: None }
        .write(disk.boot.path())
        .context("write the boot loader's block")?;
    bar.spin("writing the boot loaders");
    let loaders = boot_loader::for_disk(disk.boot.path(), &work.folder("loaders")?, &disk.boot_uuid)?;
    let mut report = report(&disk)?;
    disk.close()?;
    target.make_startable(&loaders)?;
    report.loaders = Some(DiskLoaders {
        bios: loaders.bios.is_some(),
        uefi: loaders.uefi.is_some(),
        secure_boot: loaders.is_signed,
    });
    Ok(report)
}

/// Puts an image into the slot that is not in use, to be tried once at the next start. Call
/// `hs_linux::rootenv::enter_private_mounts` before. `signals` end the process.
///
/// # Errors
/// When writes would be lost, when the image is not right or does not fit, or when the system that is running
/// has not come up. The old system stays as it is.
pub fn update(spec: &UpdateSpec, quiet: bool, signals: Ends) -> anyhow::Result<DiskReport> {
    let left = Left { drafts: Vec::new(), said: "the system that is there stays as it is" };
    let (drafts, _interruption) = Drafts::watch(signals, left)?;
    let bar = Bar::new(quiet);
    // A channel is asked once, so that all that follows is of one image.
    let mut system = spec.system.clone();
    system.source = channel::resolve(&system.source)?;
    let work = workdir(&spec.disk, &system)?;
    let opened = OpenOptions::new().read(true).write(true).open(&spec.disk);
    let taken = opened.with_context(|| format!("open {}", spec.disk.display()))?;
    claim::take(&spec.disk, &taken)?;
    let mut disk = Disk::open(&spec.disk, &work)?;
    let state = disk.state()?;
    refuse_unconfirmed(&disk, state)?;
    let slot = state.good.other();
    if system.directory().is_some() {
        bail!(
            "an update is an image: `headstart build` makes one of a directory, with --free for what is written"
        );
    }
    slots::refuse_own_image(&disk, slot, &system)?;
    slots::refuse_loss(&disk, state.good, &system, spec.without_writes)?;
    system.check_kernel(disk.path())?;
    // From here on the slot holds nothing that can be started.
    BootState { next: None, ..state }.write(disk.boot.path()).context("write the boot loader's block")?;
    slots::empty(&disk, slot)?;
    drafts.left().drafts.push(slots::data_folder(&disk, slot));
    let filling = Filling { disk: &disk, slot, system: &system, free_bytes: 0, work: &work, drafts: &drafts };
    filling.run(&bar)?;
    disk.settle_boot()?;
    *drafts.left() =
        Left { drafts: Vec::new(), said: "whether the new system is tried, `headstart install DISK` shows" };
    BootState { next: Some(slot), ..state }
        .write(disk.boot.path())
        .context("write the boot loader's block")?;
    if let Err(error) = slots::remove_stale_writes(&disk) {
        log::warn!("what was written to a system that is replaced stays: {error:#}");
    }
    let report = report(&disk)?;
    disk.close()?;
    drop(taken);
    Ok(report)
}

/// What is on a disk, which stays as it is. Call `hs_linux::rootenv::enter_private_mounts` before.
///
/// # Errors
/// When it is no such disk.
pub fn look(path: &Path) -> anyhow::Result<DiskReport> {
    let work = Workdir::new(&[path.to_owned()])?;
    let looked_at = File::open(path).with_context(|| format!("open {}", path.display()))?;
    claim::look_at(path, &looked_at)?;
    report(&Disk::look_at(path, &work)?)
}

fn report(disk: &Disk) -> anyhow::Result<DiskReport> {
    let state = disk.state()?;
    Ok(DiskReport {
        disk: disk.path().display().to_string(),
        good: state.good.to_string(),
        next: state.next.map(|slot| slot.to_string()),
        slots: [Slot::A, Slot::B].into_iter().filter_map(|slot| slots::report(disk, slot)).collect(),
        free_bytes: disk.free_bytes()?,
        loaders: None,
    })
}

/// A place for mounts that covers nothing that is needed.
fn workdir(disk: &Path, system: &SystemSpec) -> anyhow::Result<Workdir> {
    let mut needed = vec![disk.to_owned()];
    needed.extend(hs_start::remote::places_here(&system.source));
    needed.extend(system.kernel.iter().flat_map(|(kernel, initrd)| [kernel.clone(), initrd.clone()]));
    needed.extend(system.live.clone());
    Workdir::new(&needed)
}

/// The slot that is not in use would be the one to go back to, if the system that runs is on trial.
fn refuse_unconfirmed(disk: &Disk, state: BootState) -> anyhow::Result<()> {
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let Some(running) = grub::running_slot(&line, &disk.boot_uuid) else { return Ok(()) };
    if running != state.good {
        bail!(
            "the system in slot {running} runs and has not come up yet, so slot {} is kept: see `systemctl \
             status headstart-up`; a file /run/headstart/up says that it has come up",
            state.good
        );
    }
    Ok(())
}
