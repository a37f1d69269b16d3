//! A directory becomes an ext4 file system.
//!
//! 1. Walk and read the tree: what it needs, and a digest of it ([`super::tree`]).
//! 2. Make a scratch file without a name, as large as the file system, all holes.
//! 3. `mkfs.ext4 -d` fills it ([`super::mkfs`]). It visits the tree depth first with names in byte order and
//!    takes inodes and blocks one after the other, so that files lie on the disk contiguous and in the order
//!    of their paths.
//! 4. Check that the tree is still as it was walked.
//! 5. Normalise the inodes ([`super::normalise`]).
//!
//! Equal trees (names, types, permissions, owners, modification times, link targets, device numbers,
//! attributes and data) give equal bytes with the same version of e2fsprogs, wherever they lie: no inode
//! number, `readdir` order, access or change time, hole or path of the source reaches the output.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::mkfs::{self, Mkfs};
use super::normalise::normalise;
use super::raw::RawDisk;
use super::sizing::Geometry;
use super::tree::Tree;
use super::{SourceError, SourceOptions, SourceProgress};

/// As much as ext4 has with block numbers of 32 bits. Of far more, a group would not even hold the
/// descriptors of all.
const MOST_FREE_BYTES: u64 = 16 << 40;
/// Bytes of ext4's volume label.
const LABEL_BYTES: usize = 16;

/// Makes the file system from the directory at `path`.
pub(super) fn build(
    path: &Path,
    options: &SourceOptions,
    progress: &dyn Fn(SourceProgress),
) -> Result<RawDisk, SourceError> {
    if options.free_bytes > MOST_FREE_BYTES {
        return Err(SourceError::TooMuchFree { bytes: options.free_bytes, most_bytes: MOST_FREE_BYTES });
    }
    let tool = mkfs::find_tool()?;
    let label = options.volume_label.as_deref();
    if let Some(label) = label.filter(|label| label.len() > LABEL_BYTES || label.contains('\0')) {
        return Err(SourceError::LabelTooLong { label: label.to_owned() });
    }
    let root =
        path.canonicalize().map_err(|error| SourceError::Unreadable { path: path.to_owned(), error })?;
    if let Some(output) = &options.output {
        refuse_output_inside(&root, output)?;
    }
    let tree = Tree::scan(&root, progress)?;
    let geometry = tree.needs.geometry(options.free_bytes);
    let directory = scratch_directory(options);
    let scratch = make_scratch(&directory, &geometry)?;
    let mkfs =
        Mkfs { tree: &root, geometry, uuid: options.uuid.unwrap_or_else(|| derived_uuid(&tree)), label };
    let total_bytes = geometry.written_bytes();
    let mut tick = || {
        // Blocks of 512 bytes, whatever the file system's are.
        let bytes = scratch.metadata().map_or(0, |metadata| metadata.blocks() * 512).min(total_bytes);
        progress(SourceProgress::Writing { bytes, total_bytes });
    };
    let made = mkfs.run(&tool, &scratch, &mut tick);
    // A tree that changed is the cause of almost any failure, and explains it better.
    tree.verify_unchanged()?;
    made.map_err(|error| explain(error, &directory, &geometry))?;
    normalise(&scratch, &tree, progress)?;
    Ok(RawDisk::from_scratch(scratch, path.to_owned(), geometry.bytes()))
}

/// The output must not be read as part of its own source.
fn refuse_output_inside(root: &Path, output: &Path) -> Result<(), SourceError> {
    let parent = match output.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    // An output directory that does not exist is reported where the output is created.
    match parent.canonicalize() {
        Ok(parent) if parent.starts_with(root) => {
            Err(SourceError::OutputInside { output: output.to_owned(), directory: root.to_owned() })
        }
        _ => Ok(()),
    }
}

fn scratch_directory(options: &SourceOptions) -> PathBuf {
    let beside_output = || {
        let parent = options.output.as_deref()?.parent()?;
        Some(if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() })
    };
    options.scratch_dir.clone().or_else(beside_output).unwrap_or_else(std::env::temp_dir)
}

/// A file without a name and of the file system's size, all holes, where there is room for it.
fn make_scratch(directory: &Path, geometry: &Geometry) -> Result<File, SourceError> {
    let failed = |error| SourceError::Scratch { directory: directory.to_owned(), error };
    let needed_bytes = geometry.written_bytes();
    let available_bytes = available_bytes(directory).map_err(|error| failed(error.into()))?;
    if needed_bytes > available_bytes {
        return Err(SourceError::NoSpace { directory: directory.to_owned(), needed_bytes, available_bytes });
    }
    let scratch = tempfile::tempfile_in(directory).map_err(failed)?;
    scratch.set_len(geometry.bytes()).map_err(failed)?;
    Ok(scratch)
}

fn available_bytes(directory: &Path) -> rustix::io::Result<u64> {
    let status = rustix::fs::statvfs(directory)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// A full scratch file system is told as such.
fn explain(error: SourceError, directory: &Path, geometry: &Geometry) -> SourceError {
    match error {
        SourceError::MkfsFailed { stderr, .. } if stderr.contains("No space left on device") => {
            SourceError::NoSpace {
                directory: directory.to_owned(),
                needed_bytes: geometry.written_bytes(),
                available_bytes: available_bytes(directory).unwrap_or(0),
            }
        }
        other => other,
    }
}

/// A UUID of version 8 (RFC 9562, section 5.8: the content is the maker's own matter) from the tree's digest.
fn derived_uuid(tree: &Tree) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&tree.digest.as_bytes()[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
