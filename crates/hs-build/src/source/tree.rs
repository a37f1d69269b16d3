//! The walk over a source directory: a plan of the file system to be made, and a digest of it all.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hs_ext4::{NodeId, Refusal, Time};
use rustix::fs::Statx;
use rustix::io::Errno;

use super::assembly::{Assembled, Assembly, Fault, Payload, Status, file_type};
use super::folders::{Folder, Folders, unreadable};
use super::{SourceError, SourceProgress, xattrs};

/// A walked tree.
pub(super) struct Tree {
    pub(super) assembled: Assembled,
    pub(super) folders: Folders,
}

/// Entries between two progress calls.
const PROGRESS_ENTRIES: usize = 256;

impl Tree {
    /// Walks and reads the tree under `path`. Folders are visited depth first, each with all its entries in
    /// byte order, so neither `readdir` order nor inode numbers of the source matter. Files get digests of
    /// their own, if `has_contents`. Of a disk a folder with two names is damage: it may lead back, or be one
    /// of many that have no end.
    pub(super) fn scan(
        path: &Path,
        has_contents: bool,
        is_disk: bool,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<Self, SourceError> {
        let mut scan = Scan::new(path, has_contents)?;
        let mut entered = HashSet::new();
        let mut pending = vec![(NodeId::ROOT, None)];
        while let Some((node, device_above)) = pending.pop() {
            let folder = scan.folders.folder(scan.assembly.plan(), node)?;
            let entry = At { folder: &folder, node, name: b"" };
            let status = scan.status(&entry)?;
            let device = device(&status);
            if device_above != Some(device) {
                scan.refuse_kernel_file_system(&entry)?;
            }
            let names = folder.names().map_err(|error| scan.unreadable(&entry, error))?;
            // A btrfs has one number for all folders in place of subvolumes, which are empty.
            if is_disk && !names.is_empty() && !entered.insert((device, status.stx_ino)) {
                return Err(SourceError::FolderTwice { path: scan.path(&entry) });
            }
            let above = pending.len();
            for name in names {
                let directory = scan.visit(&At { name: &name, ..entry })?;
                pending.extend(directory.map(|node| (node, Some(device))));
                if scan.assembly.plan().nodes().is_multiple_of(PROGRESS_ENTRIES) {
                    scan.report(progress);
                }
            }
            pending[above..].reverse();
        }
        scan.report(progress);
        let Scan { assembly, folders, .. } = scan;
        Ok(Self { assembled: assembly.finish(path), folders })
    }
}

/// An entry of an open folder; without a name, the folder itself.
#[derive(Clone, Copy)]
struct At<'a> {
    folder: &'a Folder,
    node: NodeId,
    name: &'a [u8],
}

/// A walk under way.
struct Scan {
    assembly: Assembly,
    folders: Folders,
    /// Files with several names, by device and inode number.
    linked: HashMap<(u64, u64), NodeId>,
}

impl Scan {
    fn new(path: &Path, has_contents: bool) -> Result<Self, SourceError> {
        let mut folders = Folders::new(path)?;
        let root = folders.root();
        let failed = |error: Errno| unreadable(path.to_owned(), error);
        let statx = root.status(b"").map_err(failed)?;
        let attributes = xattrs::read(&root.path_of(b"")).map_err(failed)?;
        let assembly = Assembly::new(&status(&statx), &attributes, has_contents);
        let assembly = assembly.map_err(|refusal| refused(path.to_owned(), refusal))?;
        folders.push(&statx);
        Ok(Self { assembly, folders, linked: HashMap::new() })
    }

    /// Takes up one entry, and gives its node if it is a directory.
    fn visit(&mut self, at: &At<'_>) -> Result<Option<NodeId>, SourceError> {
        let statx = self.status(at)?;
        let status = status(&statx);
        let is_directory = status.is(file_type::DIRECTORY);
        if statx.stx_nlink > 1 && !is_directory {
            let number = self.assembly.next_node();
            let first = *self.linked.entry((device(&statx), statx.stx_ino)).or_insert(number);
            if first != number {
                let linked = self.assembly.link(at.node, at.name, &status, first);
                linked.map_err(|refusal| self.refused(at, refusal))?;
                return Ok(None);
            }
        }
        let attributes = xattrs::read(&at.folder.path_of(at.name));
        let attributes = attributes.map_err(|error| self.unreadable(at, error))?;
        let (file, target);
        let payload = match status.mode & file_type::MASK {
            file_type::SYMLINK => {
                target = at.folder.target(at.name).map_err(|error| self.unreadable(at, error))?;
                Payload::Symlink(&target)
            }
            file_type::REGULAR => {
                file = at.folder.file(at.name).map_err(|error| self.unreadable(at, error))?;
                Payload::File(&file)
            }
            _ => Payload::Nothing,
        };
        let added = self.assembly.add(at.node, at.name, &status, &attributes, &payload);
        let node = added.map_err(|fault| match fault {
            Fault::Refused(refusal) => self.refused(at, refusal),
            Fault::Unreadable(error) => self.unreadable(at, error),
        })?;
        self.folders.push(&statx);
        Ok(is_directory.then_some(node))
    }

    fn status(&self, at: &At<'_>) -> Result<Statx, SourceError> {
        at.folder.status(at.name).map_err(|error| self.unreadable(at, error))
    }

    /// Refuses a mount point of a file system that the kernel invents: its files have no end or no content,
    /// and reading them may act on the machine. A build of `/` would meet `/proc`.
    fn refuse_kernel_file_system(&self, at: &At<'_>) -> Result<(), SourceError> {
        let magic = at.folder.file_system().map_err(|error| self.unreadable(at, error))?;
        match KERNEL_FILE_SYSTEMS.iter().find(|(known, _)| *known == magic) {
            Some(&(_, file_system)) => {
                Err(SourceError::KernelFileSystem { path: self.path(at), file_system })
            }
            None => Ok(()),
        }
    }

    fn report(&self, progress: &dyn Fn(SourceProgress)) {
        let (entries, bytes) = self.assembly.done();
        progress(SourceProgress::Scanning { entries, bytes });
    }

    fn path(&self, at: &At<'_>) -> std::path::PathBuf {
        let folder = self.folders.path(self.assembly.plan(), at.node);
        if at.name.is_empty() { folder } else { folder.join(OsStr::from_bytes(at.name)) }
    }

    fn unreadable(&self, at: &At<'_>, error: impl Into<std::io::Error>) -> SourceError {
        unreadable(self.path(at), error)
    }

    fn refused(&self, at: &At<'_>, refusal: Refusal) -> SourceError {
        refused(self.path(at), refusal)
    }
}

fn refused(path: std::path::PathBuf, refusal: Refusal) -> SourceError {
    SourceError::Unsupported { path, reason: refusal.to_string() }
}

fn device(status: &Statx) -> u64 {
    u64::from(status.stx_dev_major) << 32 | u64::from(status.stx_dev_minor)
}

fn status(statx: &Statx) -> Status {
    Status {
        mode: statx.stx_mode,
        uid: statx.stx_uid,
        gid: statx.stx_gid,
        bytes: statx.stx_size,
        device: (statx.stx_rdev_major, statx.stx_rdev_minor),
        modified: Time { seconds: statx.stx_mtime.tv_sec, nanoseconds: statx.stx_mtime.tv_nsec },
    }
}

/// `f_type` of file systems without files of their own, from the kernel's `include/uapi/linux/magic.h`.
const KERNEL_FILE_SYSTEMS: [(u64, &str); 14] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x1cd1, "devpts"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0xcafe_4a11, "bpf"),
    (0x1980_0202, "mqueue"),
    (0x6265_6570, "configfs"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
];
