//! What reads a file without events: loop devices, and file systems mounted from the file itself. On Linux
//! 6.18 no event comes for either, and the reader sees zeros.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hs_linux::mounts::{MountEntry, MountTable};

use super::error::FillError;

/// Fails when `path`, which `metadata` is of, is used in such a way.
pub(super) fn refuse(path: &Path, metadata: &fs::Metadata) -> Result<(), FillError> {
    match user(metadata) {
        Some(user) => Err(FillError::UncoveredUse { path: path.to_owned(), user }),
        None => Ok(()),
    }
}

/// What uses the file that `metadata` is of in such a way; `None` as far as this process can see.
pub(super) fn user(metadata: &fs::Metadata) -> Option<String> {
    let same = |path: &Path| {
        fs::metadata(path).is_ok_and(|other| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino()))
    };
    loop_devices().find(|(_, backing)| same(backing)).map(|(name, _)| format!("/dev/{name}")).or_else(|| {
        mounts().find(|(source, _)| same(source)).map(|(_, target)| format!("a mount at {target}"))
    })
}

fn loop_devices() -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        // A path, whatever bytes are in it, and an end of line.
        let mut backing = fs::read(entry.path().join("loop/backing_file")).ok()?;
        backing.pop();
        Some((entry.file_name().to_string_lossy().into_owned(), OsString::from_vec(backing).into()))
    })
}

/// Sources that are files, as mounts of EROFS can have (Linux 6.12), and where they are mounted.
fn mounts() -> impl Iterator<Item = (PathBuf, String)> {
    let table = MountTable::open().and_then(|mut table| table.entries()).unwrap_or_default();
    let of_files = |entry: &MountEntry| entry.kind == "erofs" && entry.source.is_absolute();
    table.into_iter().filter(of_files).map(|entry| (entry.source, entry.target.display().to_string()))
}
