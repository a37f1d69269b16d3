//! `headstart attach` and `headstart detach`

use std::ffi::OsString;

use hs_daemon::attach;

use crate::cli::{Attach, Detach};

/// Makes a file that fills itself, or goes on with one; gives the exit code. `arguments` are those of the
/// program.
pub(crate) fn run(args: &Attach, arguments: &[OsString], quiet: bool) -> anyhow::Result<i32> {
    let attach = attach::Attach {
        image: args.image.value(),
        file: args.file.clone(),
        foreground: args.foreground,
        access: args.access.access()?,
        hydrate: !args.no_hydrate,
        medium: args.emulation.medium,
        damage: args.emulation.damage.value(),
        no_prefetch: args.no_prefetch,
        limits: *args.limits,
        json: args.json,
        ready_fd: args.ready_fd,
        descriptors: args.descriptors,
        standby: args.standby,
        log_file: args.log_file.clone(),
    };
    attach::run(&attach, arguments, quiet)
}

/// Ends the filling of a file.
pub(crate) fn detach(args: &Detach) -> anyhow::Result<()> {
    attach::detach(&args.file, args.incomplete, args.json)
}
