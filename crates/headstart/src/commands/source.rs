//! What an image is built from, and what is said of it.

use std::path::{Path, PathBuf};

use anyhow::bail;
use hs_build::source::{Source, SourceKind};
use hs_format::{FileKind, FsKind};
use hs_linux::MountedForWriting;
use hs_start::source::SourceName;
use hs_units::ByteSize;
use hs_volumes::{FileSystem, Journal};

/// Bytes of a sector: a disk has a whole number of them.
const SECTOR_BYTES: u64 = 512;

/// Refuses a source that is not there.
///
/// # Errors
/// What a source is.
pub(crate) fn check_there(source: &SourceName) -> anyhow::Result<()> {
    let Some(path) = source.path() else { return Ok(()) };
    if path.as_os_str() == "-" || path.exists() {
        return Ok(());
    }
    let word = path.display();
    // docker.io/library/python:3.12, or localhost:5000/demo
    let text = path.to_string_lossy();
    let host = text.split_once('/').map_or("", |(host, _)| host);
    let hint = match host.contains(['.', ':']) && !host.starts_with('.') {
        true => format!(". A container's image in a registry is docker://{word}"),
        false => String::new(),
    };
    bail!(
        "{word}: No such file or directory. `build` takes a directory, a disk, a tar archive or a container's \
         image{hint}"
    )
}

/// Refuses a disk that a file system of this machine is written to, unless that `is_known`.
///
/// # Errors
/// Where it is mounted, and what to do.
pub(crate) fn refuse_mounted(source: &Path, is_known: bool) -> anyhow::Result<()> {
    if source.is_dir() || is_known {
        return Ok(());
    }
    match hs_linux::mounted_for_writing(source) {
        Ok(Some(MountedForWriting { device, target })) => bail!(
            "{}: {} is mounted for writing at {}, so the disk changes while it is read: unmount it, remount it for \
             reading (`mount -o remount,ro {}`), or build from a snapshot; --mounted builds all the same",
            source.display(),
            device.display(),
            target.display(),
            target.display()
        ),
        Ok(None) => Ok(()),
        Err(error) => {
            log::debug!("whether {} is mounted is not known: {error}", source.display());
            Ok(())
        }
    }
}

/// The same for all files that this process has open: a disk may be read from files that it names itself.
///
/// # Errors
/// As [`refuse_mounted`].
pub(crate) fn refuse_mounted_files(is_known: bool) -> anyhow::Result<()> {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let files = open.filter_map(|entry| entry.path().canonicalize().ok()).filter(|path| path.is_file());
    files.into_iter().try_for_each(|path| refuse_mounted(&path, is_known))
}

/// The folder that a file lies in.
pub(crate) fn folder_of(file: &Path) -> PathBuf {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Says what becomes of a source, where that may be a surprise.
pub(crate) fn say_of_source(source: &Source, path: &Path, output: &Path) {
    let shown = path.display();
    match source.content() {
        FileKind::Disk(FsKind::Squashfs) => hs_output::note!(
            "{shown}: this squashfs becomes the disk as it is; it is compressed already, so the image is about as \
             large. `sudo headstart build --as tree` compresses its files anew"
        ),
        FileKind::Disk(FsKind::Iso9660) => hs_output::note!(
            "{shown}: this ISO 9660 becomes the disk as it is, which boots as it did. `sudo headstart build --as \
             tree` takes its files"
        ),
        _ => {}
    }
    if source.kept_bytes() > 0 {
        hs_output::note!(
            "{shown}: its files take {} of a temporary file in {} until the image is complete",
            ByteSize(source.kept_bytes()),
            folder_of(output).display()
        );
    }
}

/// Warns of file systems that were not unmounted before they were copied: their journals hold changes that
/// are not in place yet.
///
/// # Errors
/// When the disk cannot be read.
pub(crate) fn warn_of_journal(source: &Source, path: &Path) -> anyhow::Result<()> {
    if !matches!(source.kind(), SourceKind::RawFile | SourceKind::BlockDevice) {
        return Ok(());
    }
    let contents = source.contents()?;
    let needs_replay = |found: &Option<FileSystem>| {
        found.as_ref().filter(|found| found.journal == Journal::NeedsReplay).map(|found| found.kind)
    };
    let whole = needs_replay(&contents.file_system).map(|kind| format!("its {kind}"));
    let parts = contents.table.iter().flat_map(|table| &table.partitions).filter_map(|partition| {
        needs_replay(&partition.file_system)
            .map(|kind| format!("the {kind} in partition {}", partition.number))
    });
    let all: Vec<String> = whole.into_iter().chain(parts).collect();
    if !all.is_empty() {
        log::warn!(
            "{}: {} was not unmounted: its journal holds changes that are not in place yet, which each start \
             replays in memory. Build from a disk that was unmounted (`e2fsck -p` does the same for ext3 and ext4), and \
             none needs to",
            path.display(),
            all.join(" and ")
        );
    }
    Ok(())
}

/// Refuses a file that is no raw disk, unless it `is_raw` by the flag.
///
/// # Errors
/// What the file is instead.
pub(crate) fn refuse_no_disk(source: &Source, path: &Path, is_raw: bool) -> anyhow::Result<()> {
    if is_raw || source.kind() != SourceKind::RawFile {
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
             it may be cut short; --raw takes it as it is"
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
        FileKind::Overlay => {
            format!(": `headstart commit IMAGE {path}` makes an image of it and of its disk")
        }
        FileKind::Qcow2 | FileKind::VirtualDisk => ": `headstart build` takes the disk out of it".to_owned(),
        FileKind::Cloop => ": `headstart import` takes the disk out of it".to_owned(),
        FileKind::Compressed(_) => ": unpack it, and give the disk in it".to_owned(),
        // One that `build` cannot take has a damaged header.
        FileKind::Tar => ": `headstart build` takes it, unless its first header is damaged".to_owned(),
        FileKind::Zip => ": unpack it, and give the directory".to_owned(),
        _ => "; --raw takes it as a raw disk all the same".to_owned(),
    }
}
