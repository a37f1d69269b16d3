//! Files that keep what is written, as starts and servers open them.

use anyhow::bail;
use hs_keep::{KeepFile, KeptDisk};
use hs_service::run_folder::RunFolder;

/// The same file, whose disk is asked for snapshots where servers say how they are. Where that cannot be, as
/// in a user's own namespaces, none can be taken while the file is used.
#[must_use]
pub fn asked(file: KeepFile) -> KeepFile {
    match RunFolder::create() {
        Ok(folder) => file.asked_in(folder.path()),
        Err(error) => {
            log::info!("{}: no snapshots can be taken meanwhile: {error:#}", file.path().display());
            file
        }
    }
}

/// Says when what was written to a disk that was closed does not last.
///
/// # Errors
/// Then.
pub fn lasts(kept: &KeptDisk, closed: Result<(), i32>) -> anyhow::Result<()> {
    if closed.is_err() {
        bail!("{}: what was written last may not last: see the lines above", kept.path().display());
    }
    if kept.is_removed() {
        bail!("{}: the file was removed while it was used: what was written is lost", kept.path().display());
    }
    Ok(())
}

/// Says when a file system that was mounted from the disk has lost writes: what it writes behind programs,
/// the last of it when it is unmounted, fails behind them as well.
///
/// # Errors
/// Then.
pub fn has_room(kept: &KeptDisk) -> anyhow::Result<()> {
    match kept.refused() {
        0 => Ok(()),
        refused => bail!(
            "{}: {refused} writes found no space: files that were written are lost or incomplete; make room, and \
             write them again",
            kept.path().display()
        ),
    }
}
