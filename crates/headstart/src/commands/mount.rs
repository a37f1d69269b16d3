//! `headstart mount`

use std::ffi::OsString;

use hs_daemon::mount;

use crate::cli::Mount;

/// Shows an image's disk until it is unmounted; gives the exit code. `arguments` are those of the program.
pub(crate) fn run(args: &Mount, arguments: &[OsString], quiet: bool) -> anyhow::Result<i32> {
    if args.fs.is_none() && (args.volume.partition.is_some() || args.volume.ignore_journal) {
        anyhow::bail!(
            "--partition and --ignore-journal are for the file system that --fs mounts; disk.img is the whole disk"
        );
    }
    let mount = mount::Mount {
        // Without --fs this machine does not mount the disk; only programs that open the file read it.
        image: if args.fs.is_some() { args.insecure.apply(&args.image) } else { args.image.value() },
        dir: args.dir.clone(),
        fs: args.fs.clone(),
        partition: args.volume.partition.as_deref().map(Into::into),
        ignore_journal: args.volume.ignore_journal,
        keep: args.keep.keep.as_deref().map(std::path::absolute).transpose()?,
        foreground: args.foreground,
        prefetch: args.prefetch.prefetch,
        limits: *args.prefetch.limits,
        access: args.access.access()?,
        cache: *args.cache,
        fill: args.filling.fill(),
        medium: args.emulation.medium,
        damage: args.emulation.damage.value(),
        trusted: args.trusted,
        record: None,
        clear_dead: args.clear_dead,
        json: args.json,
        ready_fd: args.ready_fd,
        trace: args.trace.as_deref().map(std::path::absolute).transpose()?,
        ui: args.page.ui.clone(),
        serving: args.serving.value(),
    };
    mount::run(&mount, arguments, quiet)
}
