//! The processes behind a file that fills itself: the server fills it, the guard guards it, and a standby
//! waits.
//!
//! ```text
//! headstart attach ──► guard: holds the fanotify group, answers no event while the server lives
//!                        │ starts, with the group, the file and its sidecar as descriptors
//!                        ▼
//!                      server: asked, fills, answers; ends when the file is complete
//!                      standby: waits until both have died, and is the guard then
//! ```
//!
//! When the server dies, the guard answers the events that the server had not noted with an error and starts
//! another server. While there is none, the guard answers every event with an error.

mod control;
pub mod fill;
mod guard;
mod guarded;
mod process;
mod report;
mod server;
mod standby;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::bail;
use hs_device::Medium;
use hs_fill::{Marker, look_at};
use hs_output::show;
use hs_serve::FileAccess;
use hs_service::background;
use hs_service::careful::resolve;
use hs_start::image::ImageSource;
use hs_start::medium::Damage;
use hs_start::start::PrefetchLimits;

pub use self::control::{Request, ask};
pub use self::process::Descriptors;

/// What is filled, and how.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The image.
    pub image: ImageSource,
    /// The file.
    pub file: PathBuf,
    /// Stay in the foreground.
    pub foreground: bool,
    /// Who may read the file.
    pub access: FileAccess,
    /// Also fill what no reader asks for.
    pub hydrate: bool,
    /// The emulated medium.
    pub medium: Medium,
    /// Its planted faults.
    pub damage: Damage,
    /// Do not prefetch.
    pub no_prefetch: bool,
    /// Limits of the prefetch.
    pub limits: PrefetchLimits,
    /// Print the file as JSON when it can be read.
    pub json: bool,
    /// The pipe to the process that waits for this one.
    pub ready_fd: Option<i32>,
    /// This process fills; its parent guards.
    pub descriptors: Option<Descriptors>,
    /// This process stands by until all that hold the other end of this pipe have died.
    pub standby: Option<i32>,
    /// Where messages go once the file can be read, where the system has no log.
    pub log_file: Option<PathBuf>,
}

/// Makes a file that fills itself, or goes on with one; gives the exit code. `arguments` are those of the
/// program.
///
/// # Errors
/// When the file cannot be attached.
pub fn run(args: &Attach, arguments: &[OsString], quiet: bool) -> anyhow::Result<i32> {
    match (args.descriptors, args.standby) {
        (Some(descriptors), Some(alive)) => standby::stand_by(args, arguments, descriptors, alive),
        (Some(descriptors), None) => server::serve(args, descriptors).map(|()| 0),
        (None, _) if args.foreground => guard::guard(args, arguments, quiet),
        (None, _) => background::start(arguments, "attach", None),
    }
}

/// Ends the filling of a file.
///
/// # Errors
/// When it is not complete, unless `incomplete` allows that, or not attached.
pub fn detach(file: &Path, incomplete: bool, json: bool) -> anyhow::Result<()> {
    let (marker, _) = look_at(file)?;
    let name = file.display();
    if let (Marker::Incomplete(_), false) = (marker, incomplete) {
        bail!(
            "{name} is not complete, and reads of it would give zeros where blocks are missing: `headstart fill {name}` \
             completes it; --incomplete detaches it as it is"
        );
    }
    let is_complete = matches!(marker, Marker::Complete(_) | Marker::Contradicted(_));
    let was_attached = ask(file, Request::End)?;
    if !was_attached && !is_complete {
        bail!("{name} is not attached");
    }
    if json {
        return show::json(&serde_json::json!({
            "file": resolve(file).to_string_lossy(),
            "state": if is_complete { "complete" } else { "incomplete" },
            "was_attached": was_attached,
        }));
    }
    Ok(())
}
