//! Files that keep what is written, as starts and servers open them.

use hs_keep::KeepFile;
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
