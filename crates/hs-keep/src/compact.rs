//! A file without what is not needed any more.

use std::io;
use std::path::Path;

use hs_overlay::{Content, Overlay};
use hs_units::BLOCK_BYTES;

use crate::error::KeepError;
use crate::file::{KeepFile, OpenedAs};
use crate::new_file::NewFile;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// The space of a file before and after it was written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes on the medium before.
    pub before_bytes: u64,
    /// Bytes on the medium now.
    pub after_bytes: u64,
}

/// Writes the overlay at `path` anew, with only what its disk needs, and puts it in its place. The old file
/// stays as it is until then, and where `is_told` to end, nothing else is left.
///
/// # Errors
/// When it is told to end, is in use, has snapshots or damaged blocks, or cannot be read or written.
pub fn compact(path: &Path, is_told: &dyn Fn() -> bool) -> Result<Compacted, KeepError> {
    let file = KeepFile::open(path, OpenedAs::Existing, KeepFile::PATIENCE)?;
    let overlay = file.overlay(None, true)?;
    if let Some(snapshot) = overlay.snapshots().first() {
        return Err(KeepError::HasSnapshots { path: path.to_owned(), name: snapshot.name.clone() });
    }
    let checked = file.check(&overlay)?;
    if checked.damaged > 0 {
        // Their new sums would say that they are right.
        return Err(KeepError::DamagedBlocks { path: path.to_owned(), checked });
    }
    let before_bytes = file.space_bytes()?;
    let identity = overlay.identity();
    let mut new = NewFile::instead_of(file, (identity.disk_digest, identity.disk_bytes))?;
    copy(&overlay, &mut new, is_told)?;
    let after_bytes = new.finish()?.space_bytes()?;
    Ok(Compacted { before_bytes, after_bytes })
}

fn copy(overlay: &Overlay, new: &mut NewFile, is_told: &dyn Fn() -> bool) -> Result<(), KeepError> {
    for (start, blocks, content) in overlay.extents() {
        let Content::Data(place) = content else {
            new.zero(start, blocks, content == Content::Discarded)?;
            continue;
        };
        let pieces = PIECE_BYTES / BLOCK_BYTES;
        for at in (0..blocks).step_by(pieces as usize) {
            if is_told() {
                let told = io::Error::new(io::ErrorKind::Interrupted, "told to end; it is as it was");
                return Err(KeepError::io("compact", new.old().path())(told));
            }
            let mut bytes = vec![0; (pieces.min(blocks - at) * BLOCK_BYTES) as usize];
            let offset = (place + at) * BLOCK_BYTES;
            let old = new.old();
            old.read(offset, &mut bytes).map_err(KeepError::io("read", old.path()))?;
            new.write(start + at, &bytes)?;
        }
    }
    Ok(())
}
