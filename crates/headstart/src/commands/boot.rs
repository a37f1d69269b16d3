//! `headstart boot`

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use hs_format::limits::SUPERBLOCK_BYTES;
use hs_image::{Blocks, Image};
use hs_serve::fsmount::FileSystem;
use hs_serve::{Prefetching, Recorder};
use hs_store::{FileStore, Retry, Store};
use hs_trace::{Profile, ReadAhead};
use hs_units::{ByteSize, Nanos};
use serde::Serialize;

use super::profile;
use crate::cli::Boot;
use hs_output::show;
use hs_output::whole_file::write_whole;
use hs_start::boot::{self, BootDisk, BootSpec, Booted};
use hs_start::channel;
use hs_start::image::ImageSource;
use hs_start::open::open_image;
use hs_start::start;
use hs_start::summary::Summary;

/// What every image begins with.
const IMAGE_MAGIC: &[u8] = b"HSIMAGE\0";

#[derive(Serialize)]
struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    #[serde(flatten)]
    summary: Summary,
}

/// Boots a guest; done when it was ready and has been ended.
pub(crate) fn run(args: &Boot, quiet: bool) -> anyhow::Result<()> {
    hs_serve::rootenv::enter_private_mounts()?;
    let booted = match &args.record {
        None => boot::boot(&spec(args, None)?)?,
        Some(output) => {
            let (profile, booted) = record(args)?;
            write_whole(output, &profile.encode()?)?;
            booted
        }
    };
    let profile = args.record.as_ref().map(|output| output.display().to_string());
    if args.json {
        show::json(&Shown { profile, summary: booted.summary })?;
    } else if !quiet {
        let Summary { store_requests, store_bytes, store_errors, .. } = booted.summary;
        let failed =
            if store_errors == 0 { String::new() } else { format!("; {store_errors} could not be served") };
        hs_output::note!(
            "ready after {:.2} s; the medium answered {store_requests} requests with {}{failed}",
            booted.ready.as_secs_f64(),
            ByteSize(store_bytes)
        );
    }
    // The guest went on without them. Its messages about it may be in a console that was not kept.
    if let Some(lost) = booted.lost {
        log::error!("{lost}");
    }
    Ok(())
}

/// Records a boot. The files of its blocks are not known, because the guest mounts the file system itself.
pub(crate) fn record(args: &Boot) -> anyhow::Result<(Profile, Booted)> {
    let recorder = Arc::new(Recorder::default());
    let spec = spec(args, Some(Arc::clone(&recorder)))?;
    let BootDisk::Image(image, _) = &spec.disk else {
        bail!(
            "{} is a raw disk: a boot is recorded from an image, build one of it first",
            args.disk.display()
        );
    };
    let booted = boot::boot(&spec)?;
    let (reads, dropped) = recorder.take();
    if dropped > 0 {
        log::warn!("{dropped} reads beyond the limit of a profile were not recorded");
    }
    let image = open_image(&**image)?;
    let mut recorded = Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: image.disk_bytes(),
        command: recorded_command(spec.vmm.as_str(), booted.summary.guest_read_ahead_kib),
        medium: args.emulation.medium.to_string(),
        // The read-ahead of disk.img. Blocks that the guest's own kernel reads ahead are read again at the
        // next boot.
        read_ahead: ReadAhead::Off,
        ready: Some(booted.ready.into()),
        ended: Nanos::from_secs_f64(booted.summary.wall_s),
        reads,
        digests: Vec::new(),
        files: Vec::new(),
    };
    recorded.digests = profile::digests(&image, &recorded)?;
    Ok((recorded, booted))
}

/// The command that a profile names. The guest's read-ahead is part of it, because it changes what the guest
/// reads.
fn recorded_command(vmm: &str, guest_read_ahead_kib: Option<u32>) -> String {
    let read_ahead = guest_read_ahead_kib.map(|kib| format!(" --guest-read-ahead {kib}"));
    format!("boot --vmm {vmm}{}", read_ahead.unwrap_or_default())
}

/// The boot that the flags describe, recorded if there is a recorder.
pub(crate) fn spec(args: &Boot, recorder: Option<Arc<Recorder>>) -> anyhow::Result<BootSpec> {
    // The channel's pointer is fetched only once.
    let disk = channel::resolve(&args.insecure.apply(&args.disk))?;
    let is_image = is_image(&disk)?;
    let file_system = file_system(&disk, is_image)?;
    // After all checks that need no guest, because this may run a trial guest.
    let vmm = boot::choose(&args.vmm_choice())?;
    if let Some(file_system) = file_system {
        vmm.check_boots(file_system, &disk)?;
    }
    let disk = if is_image {
        let mode = match vmm {
            _ if args.no_prefetch || recorder.is_some() => Prefetching::Off,
            // Over NBD there is no page cache of ours to push into.
            boot::Vmm::Qemu(_) if !args.warm => Prefetching::Hold,
            boot::Vmm::Uml { .. } | boot::Vmm::Qemu(_) => Prefetching::Push,
        };
        let mut config = start::config(&disk, mode, Some(*args.limits), &args.emulation.medium)?;
        args.cache.apply(&mut config);
        if recorder.is_some() {
            config.disk_read_ahead_kib = 0;
        }
        // The guest's kernel reads ahead, or is told not to. Read-ahead below it would fetch blocks outside
        // the profile as soon as this kernel has dropped a prefetched page. With `--warm` the whole disk is
        // read in sequence first.
        if !args.warm {
            config.hot_disk_read_ahead_kib = 0;
        }
        BootDisk::Image(Box::new(disk), config)
    } else {
        BootDisk::Raw(disk.file().map(Path::to_owned).unwrap_or_default())
    };
    Ok(BootSpec {
        disk,
        file_system,
        medium: args.emulation.medium,
        damage: args.emulation.damage.value(),
        warm: args.warm,
        vmm,
        memory: args.memory,
        scratch: args.scratch,
        init: args.init.clone(),
        append: args.append.clone(),
        guest_read_ahead: args.guest_read_ahead,
        ready: args.ready.clone(),
        ready_timeout: args.ready_timeout,
        grace: args.grace,
        console: args.console.clone(),
        watch: recorder.map(|recorder| recorder as Arc<dyn hs_disk::Watch>),
    })
}

/// Whether the file begins as images do; where that cannot be read, whether its end does, where they have the
/// same once more.
fn is_image(image: &ImageSource) -> anyhow::Result<bool> {
    // Only images can be remote or have a trusted key.
    let Some(path) = image.file().filter(|_| image.image.trust.is_none()) else { return Ok(true) };
    let store = Retry::new(FileStore::open(path)?);
    let Some(mirror) = store.len().checked_sub(SUPERBLOCK_BYTES as u64) else { return Ok(false) };
    let mut magic = [0; IMAGE_MAGIC.len()];
    if store.read_at(0, &mut magic).is_err() {
        store.read_at(mirror, &mut magic)?;
    }
    Ok(magic == *IMAGE_MAGIC)
}

/// The file system of the disk. A remote image is examined when it is served, so that it is opened only once.
fn file_system(disk: &ImageSource, is_image: bool) -> anyhow::Result<Option<FileSystem>> {
    Ok(match disk.file() {
        Some(path) if !is_image => Some(FileSystem::detect(path)?),
        None => None,
        Some(_) => Some(file_system_in(&open_image(disk)?)?),
    })
}

fn file_system_in(image: &Image) -> anyhow::Result<FileSystem> {
    let mut blocks = Blocks::new(image);
    let found =
        FileSystem::detect_with(Path::new(image.name()), |offset, bytes| blocks.read_at(offset, bytes))?;
    Ok(found)
}
