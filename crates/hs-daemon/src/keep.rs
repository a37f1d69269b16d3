//! The file of an overlay, as commands open and close it.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hs_keep::{KeepFile, KeptDisk, OpenedAs, Unflushed};
use hs_service::handover::{HandedOver, Supervisor};

/// What the supervisor calls the memory that says whether writes are unflushed.
const UNFLUSHED: &str = "unflushed";
/// How long a server that died may take to let go of the file.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(20);

/// Opens the file, which is made where there is none. It is opened before the server gives its rights up.
pub(crate) fn open(path: &Path, kept: &mut HandedOver, supervisor: &Supervisor) -> anyhow::Result<KeepFile> {
    let patience = if supervisor.restarts() > 0 { PREDECESSOR_PATIENCE } else { KeepFile::PATIENCE };
    let file = KeepFile::open(path, OpenedAs::Keeping, patience)?;
    let held = kept.take::<()>(UNFLUSHED)?.and_then(|((), memory)| memory.into_iter().next());
    let unflushed = match held {
        Some(memory) => Unflushed::held(memory),
        None => Unflushed::new().context("make memory for the supervisor")?,
    };
    supervisor.keep(UNFLUSHED, (), [unflushed.as_fd()].into_iter())?;
    Ok(hs_start::keep::asked(file.telling(unflushed)))
}

/// Makes sure that everything lasts. Where its server has not started, an empty file is not kept.
pub(crate) fn close(kept: &KeptDisk, is_started: bool) -> anyhow::Result<()> {
    let closed = if is_started { kept.close() } else { kept.give_up() };
    hs_start::keep::lasts(kept, closed)
}
