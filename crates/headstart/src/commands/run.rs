//! `headstart run`

use std::sync::Arc;

use anyhow::{Context, bail};
use hs_serve::{FsDriver, MountFsOptions};

use crate::cli::{Run, StartFlags};
use hs_output::show;
use hs_output::whole_file::write_whole;
use hs_service::run_folder::{RunFolder, StatusSocket};
use hs_start::medium;
use hs_start::record;
use hs_start::start::{self, CommandOutput, Disk, PrefetchMode, Start};
use hs_start::trace::{Traced, Tracer};

/// The largest read-ahead that FUSE is given.
const MAX_DISK_READ_AHEAD_KIB: u32 = 1024;

/// The start that the flags describe.
pub(crate) fn spec(args: &Run) -> anyhow::Result<Start> {
    let mut mount = mount_options(&args.start);
    // Where a request costs next to nothing, reading neighbours costs less than as many requests through
    // fuse2fs.
    if !medium::has_dear_requests(args.image.file(), &args.start.emulation.medium) {
        mount.hot_fuse2fs_read_ahead_kib = mount.read_ahead_kib;
    }
    let mode = args.prefetch.prefetch.unwrap_or(match mount.driver {
        FsDriver::Kernel => PrefetchMode::Warm,
        FsDriver::Fuse2fs => PrefetchMode::Push,
    });
    if mount.driver == FsDriver::Fuse2fs && mode == PrefetchMode::Warm {
        log::warn!(
            "without root caches are not warmed: prefetched blocks wait in memory, as with --prefetch hold"
        );
    }
    if args.keep.keep.is_some() && mount.driver == FsDriver::Fuse2fs {
        bail!(
            "--keep needs root here, for the kernel's driver writes: run with sudo, or use `headstart boot`, or \
             `headstart serve --nbd`, which keep changes without root"
        );
    }
    let disk = if args.foreign {
        let path = args.image.file().context("a foreign disk is a file of this machine")?;
        Disk::Foreign { path: path.to_owned() }
    } else {
        let prefetching = mode.prefetching();
        let mut config = start::config(
            &args.image,
            prefetching,
            Some(*args.prefetch.limits),
            &args.start.emulation.medium,
        )?;
        args.cache.apply(&mut config);
        config.disk_read_ahead_kib = disk_read_ahead_kib(&mount, config.disk_read_ahead_kib);
        Disk::Image { image: Box::new(args.start.insecure.apply(&args.image)), config }
    };
    Ok(Start {
        disk,
        medium: args.start.emulation.medium,
        damage: args.start.emulation.damage.value(),
        mount: MountFsOptions {
            // Pushed blocks lie in the page cache of disk.img, which direct I/O bypasses.
            direct_io: mode != PrefetchMode::Push && !args.foreign,
            warm: mode == PrefetchMode::Warm,
            writes: args.keep.keep.is_some(),
            // The neighbours of a recorded inode were not recorded: reading them ahead costs a miss each.
            inode_readahead_blocks: (mode != PrefetchMode::Off && !args.foreign).then_some(1),
            ..mount
        },
        command: args.command.clone(),
        entrypoint: args.start.entrypoint.clone(),
        contain: args.start.contain.value(),
        scratch: args.start.scratch,
        keep: args.keep.keep.as_deref().map(std::path::absolute).transpose()?,
        status: None,
        ready: args.start.ready.clone(),
        ready_timeout: args.start.ready_timeout,
        grace: None,
        tell: false,
        output: if args.prints_json() { CommandOutput::Stderr } else { CommandOutput::Stdout },
        watch: None,
        observe: args.observe,
        processes: None,
        learned: None,
    })
}

/// Runs a command in an image's root; gives the exit code.
pub(crate) fn run(args: &Run, quiet: bool) -> anyhow::Result<i32> {
    // Before a user namespace is entered, in which a user has another number.
    let status = RunFolder::create().and_then(|folder| Ok(StatusSocket::listen(&folder)?));
    let status = status.inspect_err(|error| log::info!("no status to be asked for: {error:#}")).ok();
    hs_linux::rootenv::enter_private_mounts()?;
    // The JSON summary contains this line's figures.
    let mut start =
        Start { tell: !quiet && args.json.is_none(), status: status.map(Arc::new), ..spec(args)? };
    let tracer = args.trace.as_deref().map(Tracer::new);
    if let Some(tracer) = &tracer {
        (start.watch, start.processes) = (Some(tracer.watch()), Some(tracer.processes()));
    }
    let started = match args.learn.learn {
        true => record::learn(start.clone(), &args.learn.folder()?)?,
        false => start::start(&start)?,
    };
    if let Some(tracer) = &tracer {
        tracer.write(&Traced::of_start(&start)?.started(&started.summary), None)?;
    }
    match &args.json {
        Some(_) if args.prints_json() => show::json(&started.summary)?,
        Some(path) => {
            let text = serde_json::to_string_pretty(&started.summary)?;
            write_whole(path, (text + "\n").as_bytes())?;
        }
        None => {}
    }
    let code = started.exit.map_or(0, hs_linux::rootenv::Exit::code);
    match (started.ready, started.lost) {
        (Some(_), None) => {}
        // The command may have gone on without these reads. If it has not, it could not report the reason.
        (Some(_), Some(lost)) => log::error!("{lost}"),
        (None, lost) => bail!(
            "the command ended with exit code {code} without being ready{}",
            lost.map(|lost| format!("; {lost}")).unwrap_or_default()
        ),
    }
    Ok(code)
}

/// Kernel read-ahead in disk.img, in KiB: that of the file system, if the file system is read through its
/// page cache.
pub(crate) fn disk_read_ahead_kib(mount: &MountFsOptions, otherwise: u32) -> u32 {
    match mount.driver {
        FsDriver::Kernel => otherwise,
        FsDriver::Fuse2fs => mount.read_ahead_kib.min(MAX_DISK_READ_AHEAD_KIB),
    }
}

/// The options of the mount, by the flags.
pub(crate) fn mount_options(flags: &StartFlags) -> MountFsOptions {
    MountFsOptions {
        driver: FsDriver::for_this_process(),
        read_ahead_kib: flags.read_ahead_kib(),
        hot_fuse2fs_read_ahead_kib: flags
            .read_ahead
            .unwrap_or(MountFsOptions::default().hot_fuse2fs_read_ahead_kib),
        trusted: flags.trusted,
        partition: flags.volume.partition.as_deref().map(Into::into),
        ignore_journal: flags.volume.ignore_journal,
        ..MountFsOptions::default()
    }
}
