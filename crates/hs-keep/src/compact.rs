//! A file without what is not needed any more.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hs_overlay::{Content, Overlay, Refusal};
use hs_units::BLOCK_BYTES;

use crate::error::KeepError;
use crate::file::{KeepFile, OpenedAs};

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of the unit in which the system counts the space of files.
const SECTOR_BYTES: u64 = 512;

/// The space of a file before and after it was written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes on the medium before.
    pub before_bytes: u64,
    /// Bytes on the medium now.
    pub after_bytes: u64,
}

/// Writes the overlay at `path` anew, with only what its disk needs, and puts it in its place. The old file
/// stays as it is until then.
///
/// # Errors
/// When it is in use, has snapshots, or cannot be read or written.
pub fn compact(path: &Path) -> Result<Compacted, KeepError> {
    let file = KeepFile::open(path, OpenedAs::Existing, KeepFile::PATIENCE)?;
    let overlay = file.overlay(None, true)?;
    if let Some(snapshot) = overlay.snapshots().first() {
        return Err(KeepError::HasSnapshots { path: path.to_owned(), name: snapshot.name.clone() });
    }
    let beside = beside(path);
    let before_bytes = file.space_bytes()?;
    let copied = copy(&file, &overlay, &beside).and_then(|()| {
        let permissions = fs::metadata(path).map_err(KeepError::io("look at", path))?.permissions();
        fs::set_permissions(&beside, permissions).map_err(KeepError::io("set up", &beside))?;
        fs::rename(&beside, path).map_err(KeepError::io("replace", path))
    });
    if copied.is_err() {
        let _ = fs::remove_file(&beside);
    }
    copied?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    let about = fs::metadata(path).map_err(KeepError::io("look at", path))?;
    Ok(Compacted { before_bytes, after_bytes: about.blocks() * SECTOR_BYTES })
}

/// Where the new file is written.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().as_bytes().to_vec();
    name.extend(b".compacting");
    path.with_file_name(std::ffi::OsStr::from_bytes(&name))
}

fn copy(file: &KeepFile, overlay: &Overlay, beside: &Path) -> Result<(), KeepError> {
    // What an attempt that was killed has left.
    let _ = fs::remove_file(beside);
    let new = KeepFile::open(beside, OpenedAs::Keeping, Duration::ZERO)?;
    let identity = overlay.identity();
    let mut copy = new.overlay(Some((identity.disk_digest, identity.disk_bytes)), true)?;
    for (start, blocks, content) in overlay.extents() {
        let Content::Data(place) = content else {
            let discard = content == Content::Discarded;
            put(&new, &mut copy, 0, |copy| copy.handle_zero(start, blocks, discard))?;
            continue;
        };
        let pieces = PIECE_BYTES / BLOCK_BYTES;
        for at in (0..blocks).step_by(pieces as usize) {
            let len = pieces.min(blocks - at);
            let mut bytes = vec![0; (len * BLOCK_BYTES) as usize];
            let offset = (place + at) * BLOCK_BYTES;
            file.read(offset, &mut bytes).map_err(KeepError::io("read", file.path()))?;
            put(&new, &mut copy, len, |copy| copy.handle_write(start + at, &bytes))?;
        }
    }
    copy.handle_close();
    new.run_alone(&mut copy)
}

/// Makes a change, and room for it where that is needed.
fn put(
    file: &KeepFile,
    overlay: &mut Overlay,
    data: u64,
    mut change: impl FnMut(&mut Overlay) -> Result<(), Refusal>,
) -> Result<(), KeepError> {
    loop {
        match change(overlay) {
            Ok(()) => return Ok(()),
            Err(Refusal::NeedsSpace) => file.take_space(overlay, data)?,
            Err(_) => file.run_alone(overlay)?,
        }
    }
}
