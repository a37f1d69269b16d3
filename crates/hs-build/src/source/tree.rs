//! The walk over a source directory: a plan of the file system to be made, and a digest of it all.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hs_ext4::{Attributes, DataRun, Kind, MOST_FILE_BYTES, Meta, NodeId, Plan, Refusal, Time};
use rustix::fs::{FileType, Statx};

use super::file_data::FileReader;
use super::folders::{Folder, Folders, file_type, unreadable};
use super::{SourceError, SourceProgress, xattrs};

/// A walked tree.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) plan: Plan,
    pub(super) folders: Folders,
    /// Names, attributes, data; not change and access times, nor inode numbers, nor where holes are.
    pub(super) digest: blake3::Hash,
}

/// Entries between two progress calls.
const PROGRESS_ENTRIES: usize = 256;

impl Tree {
    /// Walks and reads the tree under `path`. Folders are visited depth first, each with all its entries in
    /// byte order, so neither `readdir` order nor inode numbers of the source matter.
    pub(super) fn scan(path: &Path, progress: &dyn Fn(SourceProgress)) -> Result<Self, SourceError> {
        let mut scan = Scan::new(path)?;
        let mut pending = vec![(NodeId::ROOT, None)];
        while let Some((node, device_above)) = pending.pop() {
            let folder = scan.folders.folder(&scan.plan, node)?;
            let entry = At { folder: &folder, node, name: b"" };
            let device = device(&scan.status(&entry)?);
            if device_above != Some(device) {
                scan.refuse_kernel_file_system(&entry)?;
            }
            let names = folder.names().map_err(|error| scan.unreadable(&entry, error))?;
            let above = pending.len();
            for name in names {
                let directory = scan.visit(&At { name: &name, ..entry })?;
                pending.extend(directory.map(|node| (node, Some(device))));
                if scan.plan.nodes().is_multiple_of(PROGRESS_ENTRIES) {
                    scan.report(progress);
                }
            }
            pending[above..].reverse();
        }
        scan.report(progress);
        let Scan { plan, folders, mut names, file_reader, .. } = scan;
        names.update(file_reader.digest().as_bytes());
        if plan.moved_times() > 0 {
            log::warn!(
                "{}: {} times before 1901 or after 2446 become the nearest that ext4 has",
                path.display(),
                plan.moved_times()
            );
        }
        Ok(Self { plan, folders, digest: names.finalize() })
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
    plan: Plan,
    folders: Folders,
    names: blake3::Hasher,
    file_reader: FileReader,
    /// Files with several names, by device and inode number.
    linked: HashMap<(u64, u64), NodeId>,
}

impl Scan {
    fn new(path: &Path) -> Result<Self, SourceError> {
        let mut folders = Folders::new(path)?;
        // The root's own permissions follow when it has been opened.
        let plan = Plan::new(&Meta::default()).map_err(|refusal| refused(path.to_owned(), refusal))?;
        let root = folders.folder(&plan, NodeId::ROOT)?;
        let mut scan = Self {
            plan,
            folders,
            names: blake3::Hasher::new(),
            file_reader: FileReader::new(),
            linked: HashMap::new(),
        };
        let at = At { folder: &root, node: NodeId::ROOT, name: b"" };
        let status = scan.status(&at)?;
        let attributes = scan.attributes(&at)?;
        scan.hash_entry(NodeId::ROOT, &at, &status);
        scan.plan = Plan::new(&meta(&status, &attributes)).map_err(|refusal| scan.refused(&at, refusal))?;
        scan.folders.push(&status);
        Ok(scan)
    }

    /// Takes up one entry, and gives its node if it is a directory.
    fn visit(&mut self, at: &At<'_>) -> Result<Option<NodeId>, SourceError> {
        let status = self.status(at)?;
        let number = self.plan.node(self.plan.nodes());
        let kind = file_type(&status);
        if status.stx_nlink > 1 && kind != FileType::Directory {
            let first = *self.linked.entry((device(&status), status.stx_ino)).or_insert(number);
            if first != number {
                self.hash_entry(first, at, &status);
                self.plan.link(at.node, at.name, first).map_err(|refusal| self.refused(at, refusal))?;
                return Ok(None);
            }
        }
        self.hash_entry(number, at, &status);
        let attributes = self.attributes(at)?;
        let (major, minor) = (status.stx_rdev_major, status.stx_rdev_minor);
        let (runs, target): (Vec<DataRun>, Vec<u8>);
        let kind = match kind {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => {
                target = at.folder.target(at.name).map_err(|error| self.unreadable(at, error))?;
                hash_bytes(&mut self.names, &target);
                Kind::Symlink(&target)
            }
            FileType::BlockDevice => Kind::BlockDevice { major, minor },
            FileType::CharacterDevice => Kind::CharacterDevice { major, minor },
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            _ if status.stx_size > MOST_FILE_BYTES => return Err(self.refused(at, Refusal::FileSize)),
            _ => {
                let file = at.folder.file(at.name).map_err(|error| self.unreadable(at, error))?;
                let read = self.file_reader.read(&file, status.stx_size, &mut self.names);
                runs = read.map_err(|error| self.unreadable(at, error))?;
                Kind::File { bytes: status.stx_size, runs: &runs }
            }
        };
        let added = self.plan.add(at.node, at.name, &kind, &meta(&status, &attributes));
        let node = added.map_err(|refusal| self.refused(at, refusal))?;
        self.folders.push(&status);
        Ok(matches!(kind, Kind::Directory).then_some(node))
    }

    fn status(&self, at: &At<'_>) -> Result<Statx, SourceError> {
        at.folder.status(at.name).map_err(|error| self.unreadable(at, error))
    }

    fn attributes(&mut self, at: &At<'_>) -> Result<Box<Attributes>, SourceError> {
        let read = xattrs::read(&at.folder.path_of(at.name));
        let attributes = read.map_err(|error| self.unreadable(at, error))?;
        self.names.update(&(attributes.len() as u64).to_le_bytes());
        for (name, value) in &*attributes {
            hash_bytes(&mut self.names, name);
            hash_bytes(&mut self.names, value);
        }
        Ok(attributes)
    }

    fn hash_entry(&mut self, node: NodeId, at: &At<'_>, status: &Statx) {
        hash_bytes(&mut self.names, at.name);
        let is_file = file_type(status) == FileType::RegularFile;
        for number in [
            at.node.index() as u64,
            node.index() as u64,
            u64::from(status.stx_mode),
            u64::from(status.stx_uid),
            u64::from(status.stx_gid),
            // The size of a directory depends on the file system that it lies on.
            if is_file { status.stx_size } else { 0 },
            u64::from(status.stx_rdev_major) << 32 | u64::from(status.stx_rdev_minor),
            status.stx_mtime.tv_sec.cast_unsigned(),
            u64::from(status.stx_mtime.tv_nsec),
        ] {
            self.names.update(&number.to_le_bytes());
        }
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
        let (entries, bytes) = (self.plan.nodes() as u64, self.file_reader.bytes());
        progress(SourceProgress::Scanning { entries, bytes });
    }

    fn path(&self, at: &At<'_>) -> std::path::PathBuf {
        let folder = self.folders.path(&self.plan, at.node);
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

fn meta<'a>(status: &Statx, attributes: &'a Attributes) -> Meta<'a> {
    Meta {
        permissions: status.stx_mode & 0o7777,
        uid: status.stx_uid,
        gid: status.stx_gid,
        modified: Time { seconds: status.stx_mtime.tv_sec, nanoseconds: status.stx_mtime.tv_nsec },
        attributes,
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

/// Adds bytes with their length, so that no two sequences of calls look the same.
fn hash_bytes(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
}
