//! What an image is built from: a directory, or a file that is a disk.

use std::path::Path;

use anyhow::bail;
use hs_build::source::{Source, SourceKind};
use hs_image::FileKind;

/// Bytes of a sector: a disk has a whole number of them.
const SECTOR_BYTES: u64 = 512;

/// Refuses a file that is no raw disk, unless `force` is given.
///
/// # Errors
/// What the file is instead.
pub(crate) fn refuse_no_disk(source: &Source, path: &Path, force: bool) -> anyhow::Result<()> {
    if force || source.kind() != SourceKind::RawFile {
        return Ok(());
    }
    let (path, kind) = (path.display(), source.content());
    if !kind.is_disk() {
        bail!("{path}: this is {kind}, not a raw disk or a directory{}", what_to_do(&path, kind));
    }
    let bytes = source.file_bytes();
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        bail!(
            "{path}: this is {kind}, but its {bytes} bytes are no whole number of sectors of {SECTOR_BYTES}: \
             it may be cut short; --force takes it as it is"
        );
    }
    Ok(())
}

/// The way on with such a file.
fn what_to_do(path: &impl std::fmt::Display, kind: FileKind) -> String {
    match kind {
        FileKind::Image => format!(
            ": `headstart optimize {path}` adds a hot region to it, `headstart export {path}` makes a raw \
             disk of it"
        ),
        FileKind::Profile => ": give the disk or the directory, and this with --profile".to_owned(),
        FileKind::Qcow2 | FileKind::VirtualDisk => {
            format!(": make a raw disk of it with `qemu-img convert -O raw {path} disk.raw`")
        }
        FileKind::Cloop => ": `headstart import` takes the disk out of it".to_owned(),
        FileKind::Compressed(_) => ": unpack it, and give the disk in it".to_owned(),
        FileKind::Tar | FileKind::Zip => ": unpack it, and give the directory".to_owned(),
        _ => "; --force takes it as a raw disk all the same".to_owned(),
    }
}
