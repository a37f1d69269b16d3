//! Makes the inodes of a new file system depend on nothing but the tree, and checks them against it.
//!
//! `mkfs.ext4 -d` of e2fsprogs 1.47.0 copies change and access times from the source, gives each inode the
//! time of its creation, drops nanoseconds and whatever does not fit in 32 bits, leaves the root directory's
//! mode, owner and times alone, and lists attributes in the source's order. Each inode that came from the
//! tree gets the source's modification time as all of its times.
//!
//! The tables are edited directly, which takes half the time of one `debugfs -w -f` run with a command for
//! each time field (70 ms and 130 ms for 10,000 inodes). `debugfs` would be quick enough, but it cannot put
//! attributes in order, and the directories must be read anyway to know which inode came from which entry.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;

use rustix::fs::FileType;

use super::ext4::{Ext4, Inode, ROOT_INODE};
use super::tree::{Entry, Tree};
use super::{SourceError, SourceProgress};

/// Inodes between two progress calls.
const PROGRESS_INODES: u32 = 4096;

/// Normalises the file system in `scratch`, made from `tree`.
///
/// # Errors
/// [`SourceError::Changed`] if it does not hold the tree, [`SourceError::UnexpectedImage`] or
/// [`SourceError::UnexpectedFileSystem`] if it is not what was asked of `mkfs.ext4`.
pub(super) fn normalise(
    scratch: &File,
    tree: &Tree,
    progress: &dyn Fn(SourceProgress),
) -> Result<(), SourceError> {
    let mut ext4 = Ext4::open(scratch)?;
    let mut done = vec![false; ext4.inodes() as usize + 1];
    let total_inodes = tree.entries.len() as u64;
    // The names of the directories from the root to the current entry's.
    let mut open_directories: Vec<HashMap<OsString, u32>> = Vec::new();
    for (index, entry) in tree.entries.iter().enumerate() {
        let changed = || SourceError::Changed { path: tree.path(index) };
        open_directories.truncate(entry.depth);
        let number = match open_directories.last() {
            None => ROOT_INODE,
            Some(names) => *names.get(&entry.name).ok_or_else(changed)?,
        };
        let mut inode = ext4.read_inode(number)?;
        if entry.status.file_type() == FileType::Directory {
            if FileType::from_raw_mode(inode.mode()) != FileType::Directory {
                return Err(changed());
            }
            open_directories.push(ext4.read_directory(number)?);
        }
        // A further name of a file that has been done says nothing new.
        let is_done = done.get_mut(number as usize).ok_or_else(changed)?;
        if !std::mem::replace(is_done, true) {
            if index == 0 {
                inode.set_owner(entry.status.mode, entry.status.uid, entry.status.gid);
            }
            if !is_copy_of(&inode, entry) {
                return Err(changed());
            }
            inode.set_times(entry.status.modified);
            if entry.xattrs > 1 {
                ext4.sort_attributes(&mut inode)?;
            }
            ext4.write_inode(&mut inode)?;
        }
        let inodes = index as u64 + 1;
        if inodes.is_multiple_of(u64::from(PROGRESS_INODES)) || inodes == total_inodes {
            progress(SourceProgress::Normalising { inodes, total_inodes });
        }
    }
    Ok(())
}

/// Whether the inode has what `lstat` said of the entry when the tree was walked.
fn is_copy_of(inode: &Inode, entry: &Entry) -> bool {
    let status = &entry.status;
    inode.has_extra_bytes()
        && inode.mode() == status.mode & 0xffff
        && inode.uid() == status.uid
        && inode.gid() == status.gid
        && (status.file_type() != FileType::RegularFile || inode.size() == status.bytes)
}
