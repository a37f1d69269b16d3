//! `headstart attach` and `headstart detach`

use std::ffi::OsString;

use anyhow::bail;
use hs_serve::self_filling::{Marker, look_at};
use serde_json::json;

use crate::cli::{Attach, Detach};
use hs_daemon::attach::{self, Request, ask};
use hs_output::show;
use hs_service::careful::resolve;

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
    let (marker, _) = look_at(&args.file)?;
    let name = args.file.display();
    if let (Marker::Incomplete(_), false) = (marker, args.incomplete) {
        bail!(
            "{name} is not complete, and reads of it would give zeros where blocks are missing: `headstart fill {name}` \
             completes it; --incomplete detaches it as it is"
        );
    }
    let is_complete = matches!(marker, Marker::Complete(_) | Marker::Contradicted(_));
    let was_attached = ask(&args.file, Request::End)?;
    if !was_attached && !is_complete {
        bail!("{name} is not attached");
    }
    if args.json {
        return show::json(&json!({
            "file": resolve(&args.file).to_string_lossy(),
            "state": if is_complete { "complete" } else { "incomplete" },
            "was_attached": was_attached,
        }));
    }
    Ok(())
}
