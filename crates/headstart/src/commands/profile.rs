//! `headstart profile`

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use hs_device::Medium;
use hs_image::{Blocks, Image};
use hs_serve::{FsDriver, MountFsOptions, Prefetching, Recorder, ServeConfig, ServedImage};
use hs_trace::{BlockDigest, FileUse, ReadAhead};
use hs_units::{ByteSize, Nanos};
use serde::Serialize;

use super::run;
use crate::cli::Profile;
use hs_output::show;
use hs_output::whole_file::check_output;
use hs_output::whole_file::write_whole;
use hs_service::ending::{Guard, was_told};
use hs_service::workdir::Workdir;
use hs_start::image::ImageSource;
use hs_start::medium::{self, Damage};
use hs_start::open::open_image;
use hs_start::remote::place_here;
use hs_start::start::{self, Disk, Start, Started};
use hs_start::summary::Summary;

/// How long the image is waited for when a signal has ended the command that was recorded.
const PATIENCE_WHEN_TOLD: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Recorded {
    profile: String,
    reads: usize,
    distinct_blocks: u64,
    files: usize,
    #[serde(flatten)]
    summary: Summary,
}

/// Records a start; gives the exit code of the command, or 0 when it was ended after its grace time.
pub(crate) fn run(args: &Profile, quiet: bool) -> anyhow::Result<i32> {
    hs_serve::rootenv::enter_private_mounts()?;
    check_output(&args.output)?;
    let (profile, started) = record(args, !args.json)?;
    let code = started.exit.map_or(0, hs_serve::rootenv::Exit::code);
    if code != 0 && !args.keep_failed {
        log::error!(
            "the command failed with exit code {code}: {} is not written (--keep-failed writes it)",
            args.output.display()
        );
        return Ok(code);
    }
    write_whole(&args.output, &profile.encode()?)?;
    let recorded = Recorded {
        profile: args.output.display().to_string(),
        reads: profile.reads.len(),
        distinct_blocks: profile.distinct_blocks(),
        files: profile.files.len(),
        summary: started.summary,
    };
    if args.json {
        show::json(&recorded)?;
    } else if !quiet {
        hs_output::note!(
            "{}: {} reads of {} in {} files; ready after {:.2} s",
            recorded.profile,
            recorded.reads,
            ByteSize(recorded.distinct_blocks * hs_units::BLOCK_BYTES),
            recorded.files,
            recorded.summary.ready_s.unwrap_or_default()
        );
    }
    Ok(code)
}

/// Records a start, and finds out which files' pages it read.
pub(crate) fn record(args: &Profile, show_output: bool) -> anyhow::Result<(hs_trace::Profile, Started)> {
    let recorder = Arc::new(Recorder::default());
    // Without read-ahead, each touched page is one read, and there are no other reads.
    let exact = !args.keep_read_ahead && args.start.read_ahead.is_none();
    let mount = MountFsOptions {
        read_ahead_kib: if exact { 0 } else { args.start.read_ahead_kib() },
        inode_readahead_blocks: exact.then_some(1),
        warm: false,
        ..run::mount_options(&args.start)
    };
    let mut config = start::config(&args.image, Prefetching::Off, None, &args.start.emulation.medium)?;
    config.disk_read_ahead_kib = run::disk_read_ahead_kib(&mount, config.disk_read_ahead_kib);
    let spec = Start {
        disk: Disk::Image { image: Box::new(args.start.insecure.apply(&args.image)), config },
        medium: args.start.emulation.medium,
        damage: args.start.emulation.damage.value(),
        mount,
        command: args.command.clone(),
        contain: args.start.contain.value(),
        ready: args.start.ready.clone(),
        ready_timeout: args.start.ready_timeout,
        grace: Some(args.grace),
        tell: false,
        show_output,
        watch: Some(recorder.clone()),
        observe: false,
    };
    let started = start::start(&spec)?;
    let Some(ready) = started.ready else {
        let code = started.exit.map_or(0, hs_serve::rootenv::Exit::code);
        let lost = started.lost.map(|lost| format!("; {lost}")).unwrap_or_default();
        bail!("the command ended with exit code {code} without being ready; nothing was recorded{lost}");
    };
    if let Some(lost) = &started.lost {
        log::warn!("{lost}; the recording is of a start that lacked them");
    }
    let (reads, dropped) = recorder.take();
    if dropped > 0 {
        log::warn!("{dropped} reads beyond the limit of a profile were not recorded");
    }
    let mut location = args.image.value();
    if was_told() {
        location.remote.read_timeout = location.remote.read_timeout.min(PATIENCE_WHEN_TOLD);
    }
    let image = open_image(&location)?;
    let mut profile = hs_trace::Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: image.disk_bytes(),
        command: command_line(args),
        medium: args.start.emulation.medium.to_string(),
        read_ahead: if exact {
            ReadAhead::Off
        } else {
            ReadAhead::Kernel { kib: args.start.read_ahead_kib() }
        },
        ready: Some(ready.into()),
        ended: Nanos::from_secs_f64(started.summary.wall_s),
        reads,
        digests: Vec::new(),
        files: Vec::new(),
    };
    profile.digests = digests(&image, &profile)?;
    profile.files = match mount.driver {
        FsDriver::Kernel => files(&location, &profile)
            .inspect_err(|error| log::warn!("which files were read is not known: {error:#}"))
            .unwrap_or_default(),
        FsDriver::Fuse2fs => {
            log::warn!(
                "which files were read is not recorded without root: images optimised by this profile are prefetched, but warm no caches"
            );
            Vec::new()
        }
    };
    Ok((profile, started))
}

fn command_line(args: &Profile) -> String {
    args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The digest of each block that `profile` has read, in first-access order.
pub(crate) fn digests(image: &Image, profile: &hs_trace::Profile) -> anyhow::Result<Vec<BlockDigest>> {
    let mut blocks = Blocks::new(image);
    profile.first_access().into_iter().map(|lba| Ok(BlockDigest::of(blocks.block(lba)?))).collect()
}

/// Mounts the image once more, from its real medium, and asks the file system where its files lie.
fn files(image: &ImageSource, profile: &hs_trace::Profile) -> anyhow::Result<Vec<FileUse>> {
    let work = Workdir::new(place_here(image).as_slice())?;
    let on_medium = medium::open(image, &Medium::None, &Damage::default())?;
    let mut config = ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() };
    if image.file().is_none() {
        config.read.read_timeout = Some(image.remote.read_timeout);
    }
    let config = on_medium.config(&config);
    let served = ServedImage::start(on_medium.store, &work.folder("disk")?, &config, None)?;
    let mut guard = Guard::start();
    served.session().abort().iter().for_each(|abort| guard.watch(abort));
    let options = MountFsOptions { warm: false, ..MountFsOptions::default() };
    let mounted = served.mount_fs(&work.folder("fs")?, &options)?;
    Ok(hs_serve::block_files::map(&mounted.target(), &profile.block_set())?)
}
