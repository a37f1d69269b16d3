//! Recorded starts and boots.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_disk::Watch;
use hs_fuse::ServedImage;
use hs_image::{Blocks, Image};
use hs_serve::{FsDriver, MountFsOptions, Prefetching, Recorder, ServeConfig};
use hs_service::ending::{Guard, was_told};
use hs_service::workdir::Workdir;
use hs_trace::{BlockDigest, FileUse, Profile, Read, ReadAhead};
use hs_units::Nanos;

use crate::boot::{self, BootDisk, BootSpec, Booted};
use crate::image::ImageSource;
use crate::learned::LearnedFolder;
use crate::medium::{self, Damage};
use crate::open::open_image;
use crate::remote::places_here;
use crate::start::{self, Disk, Start, Started};

/// How long the image is waited for when a signal has ended the command that was recorded.
const PATIENCE_WHEN_TOLD: Duration = Duration::from_secs(2);
/// For so long after it is ready, reads are of the start, as `headstart profile` has it.
const LEARNED_AFTER_READY: Nanos = Nanos::from_millis(1_000);

/// Records a start from an image, and finds out which files' pages it read. `read_ahead` is what the profile
/// says of the kernel's.
///
/// # Errors
/// When the command is not ready.
pub fn start(mut spec: Start, read_ahead: ReadAhead) -> anyhow::Result<(Profile, Started)> {
    let recorder = watch_with_recorder(&mut spec.watch);
    let started = start::start(&spec)?;
    if started.ready.is_none() {
        let code = started.exit.map_or(0, hs_linux::rootenv::Exit::code);
        let lost = started.lost.map(|lost| format!("; {lost}")).unwrap_or_default();
        bail!("the command ended with exit code {code} without being ready; nothing was recorded{lost}");
    }
    if let Some(lost) = &started.lost {
        log::warn!("{lost}; the recording is of a start that lacked them");
    }
    let location = recorded_image(&spec)?;
    let image = open_image(&location)?;
    let mut profile = profile_of(&spec, &started, recorded_reads(&recorder), read_ahead, &image)?;
    profile.files = match spec.mount.driver {
        FsDriver::Kernel if spec.mount.partition.is_some() => {
            log::warn!(
                "which files were read is not recorded of a partition: images optimized by this profile are \
                 prefetched, but warm no caches; an image of the partition alone does (`build --partition`)"
            );
            Vec::new()
        }
        FsDriver::Kernel => files(&location, &profile, spec.mount.ignore_journal)
            .inspect_err(|error| log::warn!("which files were read is not known: {error:#}"))
            .unwrap_or_default(),
        FsDriver::Fuse2fs => {
            log::warn!(
                "which files were read is not recorded without root: images optimized by this profile are prefetched, but warm no caches"
            );
            Vec::new()
        }
    };
    Ok((profile, started))
}

/// Makes a start with what the last one has learned, and keeps what this one reads in its place, if it ends
/// well. Reads that come long after it is ready are not of the start.
///
/// # Errors
/// When the start cannot be made.
pub fn learn(mut spec: Start, folder: &LearnedFolder) -> anyhow::Result<Started> {
    let recorder = watch_with_recorder(&mut spec.watch);
    spec.learned = Some(folder.clone());
    let started = start::start(&spec)?;
    let ended_well = spec.ready.is_some() || started.exit.is_some_and(|exit| exit.code() == 0);
    let Some(ready) = started.ready.filter(|_| ended_well && started.lost.is_none()) else {
        return Ok(started);
    };
    let reads = reads_of_start(&recorder, ready);
    let kept = recorded_image(&spec).and_then(open_image).and_then(|image| {
        let read_ahead = match spec.mount.read_ahead_kib {
            0 => ReadAhead::Off,
            kib => ReadAhead::Kernel { kib },
        };
        let profile = profile_of(&spec, &started, reads, read_ahead, &image)?;
        folder.keep(&image, &spec.command, &profile)
    });
    tell_of_keeping(kept);
    Ok(started)
}

/// What was read until a moment after the start was ready.
fn reads_of_start(recorder: &Recorder, ready: Duration) -> Vec<Read> {
    let mut reads = recorded_reads(recorder);
    reads.retain(|read| read.at <= Nanos::from(ready) + LEARNED_AFTER_READY);
    reads
}

/// The start itself went well, whatever became of its profile.
fn tell_of_keeping(kept: anyhow::Result<()>) {
    if let Err(error) = kept {
        log::warn!("nothing was learned of this start: {error:#}");
    }
}

/// Sees the reads of a start, besides what sees them already.
fn watch_with_recorder(watch: &mut Option<Arc<dyn Watch>>) -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::default());
    let watches = watch.take().into_iter().chain([recorder.clone() as Arc<dyn Watch>]);
    *watch = Some(Arc::new(watches.collect::<Vec<_>>()));
    recorder
}

fn recorded_reads(recorder: &Recorder) -> Vec<Read> {
    let (reads, dropped) = recorder.take();
    if dropped > 0 {
        log::warn!("{dropped} reads beyond the limit of a profile were not recorded");
    }
    reads
}

/// The image that was recorded. One that has a signal behind it does not wait long for it.
fn recorded_image(spec: &Start) -> anyhow::Result<ImageSource> {
    let Disk::Image { image: location, .. } = &spec.disk else { bail!("a start is recorded from an image") };
    let mut location = location.as_ref().clone();
    if was_told() {
        location.remote.read_timeout = location.remote.read_timeout.min(PATIENCE_WHEN_TOLD);
    }
    Ok(location)
}

/// The profile of a start that was ready, without its files.
fn profile_of(
    spec: &Start,
    started: &Started,
    reads: Vec<Read>,
    read_ahead: ReadAhead,
    image: &Image,
) -> anyhow::Result<Profile> {
    let mut profile = Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: image.disk_bytes(),
        command: command_line(spec),
        medium: spec.medium.to_string(),
        read_ahead,
        ready: started.ready.map(Into::into),
        ended: Nanos::from_secs_f64(started.summary.wall_s),
        reads,
        digests: Vec::new(),
        files: Vec::new(),
    };
    profile.digests = digests(image, &profile)?;
    Ok(profile)
}

/// The command of a start, as one line.
#[must_use]
pub fn command_line(spec: &Start) -> String {
    if spec.command.is_empty() && spec.entrypoint.is_none() {
        return "the image's own command".to_owned();
    }
    let words = spec.entrypoint.iter().filter(|word| !word.is_empty()).chain(&spec.command);
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Records a boot. The files of its blocks are not known, because the guest mounts the file system itself.
///
/// # Errors
/// When it is not of an image, or not ready.
pub fn boot(mut spec: BootSpec) -> anyhow::Result<(Profile, Booted)> {
    let recorder = watch_with_recorder(&mut spec.watch);
    spec.is_recorded = true;
    if spec.records_itself() {
        return boot_that_records_itself(&spec);
    }
    check_is_image(&spec.disk)?;
    let booted = boot::boot(&spec)?;
    let image = open_image(spec.disk.image())?;
    Ok((profile_of_boot(&spec, &booted, recorded_reads(&recorder), &image)?, booted))
}

/// The same of a guest whose initramfs records: it sees each page of the image, and the files.
fn boot_that_records_itself(spec: &BootSpec) -> anyhow::Result<(Profile, Booted)> {
    let mut booted = boot::boot(spec)?;
    let (from, mut profile) = booted.recorded.take().context("the guest has recorded nothing")?;
    booted.summary.recorded_from_s = Some(from.as_secs_f64());
    profile.command = recorded_command(spec.vmm.as_str(), None);
    profile.medium = spec.medium.to_string();
    if spec.records_read_ahead() {
        profile.read_ahead = ReadAhead::Kernel { kib: MountFsOptions::default().read_ahead_kib };
    }
    Ok((profile, booted))
}

/// Makes a boot with what the last one has learned, and keeps what this one reads in its place.
///
/// # Errors
/// When the guest cannot be booted.
pub fn learn_boot(mut spec: BootSpec, folder: &LearnedFolder) -> anyhow::Result<Booted> {
    check_is_image(&spec.disk)?;
    let recorder = watch_with_recorder(&mut spec.watch);
    spec.learned = Some(folder.clone());
    let booted = boot::boot(&spec)?;
    if booted.lost.is_none() {
        let kept = open_image(spec.disk.image()).and_then(|image| {
            let reads = reads_of_start(&recorder, booted.ready);
            folder.keep(&image, &spec.words(), &profile_of_boot(&spec, &booted, reads, &image)?)
        });
        tell_of_keeping(kept);
    }
    Ok(booted)
}

fn check_is_image(disk: &BootDisk) -> anyhow::Result<()> {
    if let BootDisk::Raw(path) = disk {
        bail!("{} is a raw disk: a boot is recorded from an image, build one of it first", path.display());
    }
    Ok(())
}

fn profile_of_boot(
    spec: &BootSpec,
    booted: &Booted,
    reads: Vec<Read>,
    image: &Image,
) -> anyhow::Result<Profile> {
    let mut profile = Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: image.disk_bytes(),
        command: recorded_command(spec.vmm.as_str(), booted.summary.guest_read_ahead_kib),
        medium: spec.medium.to_string(),
        // The read-ahead of disk.img. Blocks that the guest's own kernel reads ahead are read again at the
        // next boot.
        read_ahead: ReadAhead::Off,
        ready: Some(booted.ready.into()),
        ended: Nanos::from_secs_f64(booted.summary.wall_s),
        reads,
        digests: Vec::new(),
        files: Vec::new(),
    };
    profile.digests = digests(image, &profile)?;
    Ok(profile)
}

/// The profile of what a mounted file system was asked for since `began`; `target` is where it is mounted.
///
/// # Errors
/// When the image cannot be read.
pub fn of_mount(
    recorder: &Recorder,
    image: &ImageSource,
    target: &Path,
    began: Instant,
) -> anyhow::Result<Profile> {
    let reads = recorded_reads(recorder);
    let ended = began.elapsed();
    let image = open_image(image)?;
    let mut profile = Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: image.disk_bytes(),
        command: "a machine's root".to_owned(),
        medium: Medium::None.to_string(),
        read_ahead: ReadAhead::Off,
        ready: None,
        ended: ended.into(),
        reads,
        digests: Vec::new(),
        files: Vec::new(),
    };
    profile.digests = digests(&image, &profile)?;
    profile.files = hs_observe::block_files::map(target, &profile.block_set())?;
    Ok(profile)
}

/// The command that a profile names. The guest's read-ahead is part of it, because it changes what the guest
/// reads.
fn recorded_command(vmm: &str, guest_read_ahead_kib: Option<u32>) -> String {
    let read_ahead = guest_read_ahead_kib.map(|kib| format!(" --guest-read-ahead {kib}"));
    format!("boot --vmm {vmm}{}", read_ahead.unwrap_or_default())
}

/// The digest of each block that `profile` has read, in first-access order.
///
/// # Errors
/// When a block cannot be read.
pub fn digests(image: &Image, profile: &Profile) -> anyhow::Result<Vec<BlockDigest>> {
    let mut blocks = Blocks::new(image);
    profile.first_access().into_iter().map(|lba| Ok(BlockDigest::of(blocks.block(lba)?))).collect()
}

/// Mounts the image once more, from its real medium, and asks the file system where its files lie.
fn files(image: &ImageSource, profile: &Profile, ignore_journal: bool) -> anyhow::Result<Vec<FileUse>> {
    let work = Workdir::new(&places_here(image))?;
    let on_medium = medium::open(image, &Medium::None, &Damage::default())?;
    let mut config = ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() };
    if image.file().is_none() {
        config.read = config.read.over_a_network(image.remote.read_timeout);
    }
    let config = on_medium.config(&config);
    let served = ServedImage::start(on_medium.store, &work.folder("disk")?, &config, None)?;
    let mut guard = Guard::start();
    served.session().abort().iter().for_each(|abort| guard.watch(abort));
    let options = MountFsOptions { warm: false, ignore_journal, ..MountFsOptions::default() };
    let mounted = served.mount_fs(&work.folder("fs")?, &options)?;
    Ok(hs_observe::block_files::map(&mounted.target(), &profile.block_set())?)
}
