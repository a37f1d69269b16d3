//! The two places for a system, and the files that keep what was written.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hs_fuse::ServedImage;
use hs_image::Image;
use hs_keep::{KeepFile, OpenedAs};
use hs_live::boot_state::Slot;
use hs_output::show::Bar;
use hs_serve::{MountFsOptions, Prefetching};
use hs_service::workdir::Workdir;
use hs_start::image::ImageSource;
use hs_start::medium::{self, Damage};
use hs_start::open::open_image;
use hs_start::{progress, start};
use hs_units::ByteSize;
use serde::Serialize;

use super::disk::Disk;
use super::grub::SlotWords;
use crate::drafts::Drafts;
use crate::parts::SystemSpec;

/// Folders of slots, on both partitions, and of what was written.
const SLOTS: &str = "slots";
const WRITES: &str = "writes";
const BOOT: &str = "boot.cfg";
/// So many characters of a disk's digest are enough to tell a few disks apart; the file has all of it.
const NAME_CHARACTERS: usize = 32;
/// Free space that a root needs to start at all: logs, and a journal of the file system.
const LEAST_FREE_BYTES: u64 = 32 << 20;
/// What stays free on the data partition for what the running system writes meanwhile.
const RESERVE_BYTES: u64 = 64 << 20;

/// A system on a disk.
#[derive(Clone, Debug, Serialize)]
pub struct SlotReport {
    /// Its slot.
    pub slot: String,
    /// The image's name.
    pub image_digest: String,
    /// Its bytes.
    pub image_bytes: u64,
    /// What was written to its disk: the bytes of the file. Two images of one disk share it.
    pub writes_bytes: u64,
}

/// Where the image of a slot lies in the data partition.
pub(super) fn image_path(slot: Slot) -> String {
    format!("{SLOTS}/{slot}/root.hsi")
}

/// The file for what is written to the disk of an image.
fn writes_path(image: &Image) -> String {
    let digest = image.disk_digest().to_string();
    format!("{WRITES}/{}.hsk", digest.get(..NAME_CHARACTERS).unwrap_or(&digest))
}

fn folder(slot: Slot) -> PathBuf {
    Path::new(SLOTS).join(slot.name())
}

/// Where the file for writes is made.
fn draft_of(writes: &Path) -> PathBuf {
    writes.with_extension("new")
}

/// The folder of a slot in the data partition.
pub(super) fn data_folder(disk: &Disk, slot: Slot) -> PathBuf {
    disk.data.path().join(folder(slot))
}

/// The image in a slot, if there is one.
fn image(disk: &Disk, slot: Slot) -> anyhow::Result<Option<Image>> {
    let path = disk.data.path().join(image_path(slot));
    if !path.exists() {
        return Ok(None);
    }
    open_image(&*path).map(Some).with_context(|| format!("slot {slot}"))
}

/// The same; one that cannot be read is none.
fn readable_image(disk: &Disk, slot: Slot) -> Option<Image> {
    image(disk, slot).inspect_err(|error| log::warn!("{error:#}")).ok().flatten()
}

/// What is in a slot.
pub(super) fn report(disk: &Disk, slot: Slot) -> Option<SlotReport> {
    let image =
        readable_image(disk, slot).filter(|_| disk.boot.path().join(folder(slot)).join(BOOT).exists())?;
    Some(SlotReport {
        slot: slot.to_string(),
        image_digest: image.image_digest().to_string(),
        image_bytes: image.store().len(),
        writes_bytes: writes_bytes(disk, &writes_path(&image)),
    })
}

fn writes_bytes(disk: &Disk, name: &str) -> u64 {
    disk.data.path().join(name).metadata().map_or(0, |file| file.blocks() * 512)
}

/// What the data partition gets back when a slot is emptied.
fn slot_bytes(disk: &Disk, slot: Slot) -> u64 {
    let entries = data_folder(disk, slot).read_dir().into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512)).sum()
}

/// How large the image is at least. One that is built from a directory is not known before.
pub(super) fn least_bytes(system: &SystemSpec) -> anyhow::Result<u64> {
    match system.directory() {
        Some(path) => path.read_dir().map(|_| 0).with_context(|| format!("read {}", path.display())),
        None => Ok(whole_image(system)?.store().len()),
    }
}

/// Opens the image of a system, which has to have all of its disk.
fn whole_image(system: &SystemSpec) -> anyhow::Result<Image> {
    let image = open_image(&system.source)?;
    if image.superblock().base.is_some() || image.pack().is_some() {
        bail!(
            "{}: a part of its disk lies in another file, which the installed disk would not have; \
             `headstart build` makes a whole image",
            system.source.display()
        );
    }
    Ok(image)
}

/// Refuses an update by the image in the slot that it empties.
pub(super) fn refuse_own_image(disk: &Disk, slot: Slot, system: &SystemSpec) -> anyhow::Result<()> {
    let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    let own = identity(&disk.data.path().join(image_path(slot)));
    let places = hs_start::remote::places_here(&system.source);
    if let Some(place) = places.iter().find(|place| own.is_some() && identity(place) == own) {
        bail!(
            "{}: this is the image in slot {slot}, which an update empties first; the boot menu starts it, and a \
             copy elsewhere can be given",
            place.display()
        );
    }
    Ok(())
}

/// Refuses an update by which something that was written would be lost, unless that is said.
pub(super) fn refuse_loss(
    disk: &Disk,
    good: Slot,
    system: &SystemSpec,
    is_allowed: bool,
) -> anyhow::Result<()> {
    let new = whole_image(system)?;
    let running =
        image(disk, good)?.with_context(|| format!("slot {good} has no image: install the disk again"))?;
    let replaced = readable_image(disk, good.other());
    let bytes = new.store().len();
    let free = disk.free_bytes()? + slot_bytes(disk, good.other());
    if bytes + RESERVE_BYTES > free {
        bail!(
            "{} has {}, and {} of the data partition are free for it: {} stay free for what the running system \
             writes",
            system.source.display(),
            ByteSize(bytes),
            ByteSize(free),
            ByteSize(RESERVE_BYTES)
        );
    }
    if is_allowed {
        return Ok(());
    }
    let is_other = |image: &Image| image.disk_digest() != new.disk_digest();
    if is_other(&running) {
        bail!(
            "the new image is of another disk than that of slot {good}, so what was written there ({}) is not in it: \
             --without-writes accepts that, and slot {good} keeps it",
            ByteSize(writes_bytes(disk, &writes_path(&running)))
        );
    }
    if let Some(replaced) = replaced.filter(|image| is_other(image)) {
        let written = writes_bytes(disk, &writes_path(&replaced));
        if written > 0 {
            bail!(
                "slot {} holds {} with what was written to it ({}), which goes with it: --without-writes accepts that",
                good.other(),
                replaced.image_digest(),
                ByteSize(written)
            );
        }
    }
    Ok(())
}

/// Empties a slot, boot files first.
pub(super) fn empty(disk: &Disk, slot: Slot) -> anyhow::Result<()> {
    for mounted in [&disk.boot, &disk.data] {
        let path = mounted.path().join(folder(slot));
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("empty slot {slot}"))?;
        }
        mounted.sync()?;
    }
    Ok(())
}

/// Removes what was written to disks of which no image is there any more. Where an image cannot be read,
/// nothing is removed.
pub(super) fn remove_stale_writes(disk: &Disk) -> anyhow::Result<()> {
    let mut used = BTreeSet::new();
    for slot in [Slot::A, Slot::B] {
        used.extend(image(disk, slot)?.map(|image| disk.data.path().join(writes_path(&image))));
    }
    let folder = disk.data.path().join(WRITES);
    for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?.flatten() {
        if !used.contains(&entry.path()) {
            fs::remove_file(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    disk.data.sync()
}

/// A system that goes into a slot.
pub(super) struct Filling<'a> {
    pub(super) disk: &'a Disk,
    pub(super) slot: Slot,
    pub(super) system: &'a SystemSpec,
    /// Free bytes of a root that is built from a directory.
    pub(super) free_bytes: u64,
    pub(super) work: &'a Workdir,
    /// What a signal removes.
    pub(super) drafts: &'a Drafts,
}

impl Filling<'_> {
    /// Fills the slot. What GRUB needs to start it comes last.
    pub(super) fn run(&self, bar: &Bar) -> anyhow::Result<()> {
        let draft = self.disk.data.path().join(image_path(self.slot)).with_extension("new");
        self.fill(&draft, bar).inspect_err(|_| drop(fs::remove_file(&draft)))
    }

    fn fill(&self, draft: &Path, bar: &Bar) -> anyhow::Result<()> {
        let (data, boot) = (self.disk.data.path(), self.disk.boot.path().join(folder(self.slot)));
        for folder in [&boot, &data.join(folder(self.slot)), &data.join(WRITES)] {
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        let path = data.join(image_path(self.slot));
        self.system.place_image(draft, self.free_bytes, bar)?;
        let image = open_image(draft)?;
        hs_image::verify(&image, None, &|progress| progress::of_image(bar, progress))
            .with_context(|| self.system.source.display().to_string())?;
        File::open(draft).and_then(|file| file.sync_all()).context("write the image")?;
        let writes = data.join(writes_path(&image));
        if !writes.exists() {
            self.drafts.left().drafts.extend([writes.clone(), draft_of(&writes)]);
            self.begin_writes(draft, &writes)?;
        }
        let placed = SystemSpec { source: draft.into(), ..self.system.clone() };
        placed.place_kernel(&boot, self.disk.path(), bar)?;
        fs::rename(draft, &path).context("put the image in its place")?;
        self.disk.data.sync()?;
        let words = SlotWords {
            slot: self.slot,
            image_digest: &image.image_digest().to_string(),
            writes: &writes_path(&image),
            data_uuid: &self.disk.data_uuid,
            boot_uuid: &self.disk.boot_uuid,
        };
        fs::write(boot.join(BOOT), words.script()).context("write the slot's boot.cfg")?;
        self.disk.boot.sync()
    }

    /// Makes the file for writes, and mounts the root for writing once: the initramfs has no tools to give an
    /// ext4 its journal. A root that cannot be written to is found here, and not at its first start.
    fn begin_writes(&self, image: &Path, writes: &Path) -> anyhow::Result<()> {
        let draft = draft_of(writes);
        let _ = fs::remove_file(&draft);
        let source = ImageSource::from(image);
        let on_medium = medium::open(&source, &hs_device::Medium::None, &Damage::default())?;
        let mut config = start::config(&source, Prefetching::Off, None, &hs_device::Medium::None)?;
        config.access.mode = 0o600;
        let config = on_medium.config(&config);
        let keep = KeepFile::open(&draft, OpenedAs::Keeping, KeepFile::PATIENCE)?;
        let store = Arc::clone(&on_medium.store);
        let served = ServedImage::start_keeping(store, &self.work.folder("disk")?, &config, None, keep)?;
        let target = self.work.folder("root")?;
        let options =
            MountFsOptions { trusted: true, writes: true, warm: false, ..MountFsOptions::default() };
        let mounted = served.mount_fs(&target, &options)?;
        let room = rustix::fs::statvfs(&target).context("look at the root")?;
        drop(mounted);
        served.session().unmount()?;
        if served.kept().is_some_and(|kept| kept.close().is_err()) {
            bail!("{}: it cannot be written", draft.display());
        }
        drop(served);
        let free = room.f_bfree * room.f_frsize;
        if free < LEAST_FREE_BYTES {
            bail!(
                "the root's file system has {} free, and a system that keeps what it writes needs {} and more: \
                 `headstart build --free SIZE` makes room, which costs nothing in the image",
                ByteSize(free),
                ByteSize(LEAST_FREE_BYTES)
            );
        }
        fs::rename(&draft, writes).context("put the file for writes in its place")
    }
}
