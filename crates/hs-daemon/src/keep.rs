//! The file of an overlay, as commands open and close it.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use hs_keep::{KeepFile, KeptDisk, OpenedAs};
use hs_service::handover::Supervisor;

/// How long a server that died may take to let go of the file.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(20);

/// Opens the file, which is made where there is none. It is opened before the server gives its rights up.
pub(crate) fn open(path: &Path, supervisor: &Supervisor) -> anyhow::Result<KeepFile> {
    let patience = if supervisor.restarts() > 0 { PREDECESSOR_PATIENCE } else { Duration::ZERO };
    Ok(KeepFile::open(path, OpenedAs::Keeping, patience)?)
}

/// Makes sure that everything lasts.
pub(crate) fn close(kept: &KeptDisk) -> anyhow::Result<()> {
    if kept.close().is_err() {
        bail!("{}: what was written last may not last: see the lines above", kept.path().display());
    }
    Ok(())
}
