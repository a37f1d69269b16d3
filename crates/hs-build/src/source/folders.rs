//! The tree that is read, by descriptors: a folder is opened from its parent, never by a path, so that paths
//! may have any length and no link that takes the place of a folder is followed.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_ext4::{NodeId, Plan};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::SourceError;
use super::tree_disk::TreeFiles;

/// Folders that are kept open: most of the next ones lie in one of them.
const MOST_OPEN: usize = 16;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// The name may have become a FIFO, which would block, or a link.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What the kernel says of an entry, as far as it must still say it when the entry is read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp([u8; 8]);

impl Stamp {
    pub(super) fn of(status: &Statx) -> Self {
        let mut hasher = blake3::Hasher::new();
        for number in [
            u64::from(status.stx_mode),
            u64::from(status.stx_uid) << 32 | u64::from(status.stx_gid),
            status.stx_ino,
            u64::from(status.stx_dev_major) << 32 | u64::from(status.stx_dev_minor),
            u64::from(status.stx_rdev_major) << 32 | u64::from(status.stx_rdev_minor),
            u64::from(status.stx_nlink),
            status.stx_size,
            status.stx_mtime.tv_sec.cast_unsigned(),
            status.stx_ctime.tv_sec.cast_unsigned(),
            u64::from(status.stx_mtime.tv_nsec) << 32 | u64::from(status.stx_ctime.tv_nsec),
        ] {
            hasher.update(&number.to_le_bytes());
        }
        let mut stamp = [0; 8];
        hasher.finalize_xof().fill(&mut stamp);
        Self(stamp)
    }
}

/// An open folder.
#[derive(Clone, Debug)]
pub(super) struct Folder(Arc<OwnedFd>);

impl Folder {
    /// What the kernel says of an entry, or of the folder itself for no name.
    pub(super) fn status(&self, name: &[u8]) -> Result<Statx, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        rustix::fs::statx(&*self.0, OsStr::from_bytes(name), flags, StatxFlags::BASIC_STATS)
    }

    /// Opens a regular file for reading.
    pub(super) fn file(&self, name: &[u8]) -> Result<File, Errno> {
        Ok(rustix::fs::openat(&*self.0, OsStr::from_bytes(name), FILE, Mode::empty())?.into())
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        Ok(rustix::fs::readlinkat(&*self.0, OsStr::from_bytes(name), Vec::new())?.into_bytes())
    }

    /// All names but `.` and `..`, sorted.
    pub(super) fn names(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&*self.0)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The type of its file system, one of the kernel's magic numbers.
    pub(super) fn file_system(&self) -> Result<u64, Errno> {
        Ok(rustix::fs::fstatfs(&*self.0)?.f_type.cast_unsigned() & 0xffff_ffff)
    }

    /// A short path that leads to an entry, for calls that take no descriptor. It follows no link but the
    /// kernel's own to this folder.
    pub(super) fn path_of(&self, name: &[u8]) -> PathBuf {
        let folder = PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        folder.join(OsStr::from_bytes(if name.is_empty() { b"." } else { name }))
    }
}

/// A tree whose nodes are those of a [`Plan`].
#[derive(Debug)]
pub(super) struct Folders {
    path: PathBuf,
    root: Folder,
    stamps: Vec<Stamp>,
    open: VecDeque<(NodeId, Folder)>,
}

impl Folders {
    /// A tree of which nothing is known yet.
    pub(super) fn new(path: &Path) -> Result<Self, SourceError> {
        let root = rustix::fs::openat(CWD, path, FOLDER, Mode::empty());
        let root = Folder(Arc::new(root.map_err(|error| unreadable(path.to_owned(), error))?));
        Ok(Self { path: path.to_owned(), root, stamps: Vec::new(), open: VecDeque::new() })
    }

    /// The root.
    pub(super) fn root(&self) -> Folder {
        self.root.clone()
    }

    /// Remembers what the kernel says of the next node of the plan.
    pub(super) fn push(&mut self, status: &Statx) {
        self.stamps.push(Stamp::of(status));
    }

    /// The path of a node, for messages.
    pub(super) fn path(&self, plan: &Plan, node: NodeId) -> PathBuf {
        match plan.path(node) {
            path if path.is_empty() => self.path.clone(),
            path => self.path.join(OsStr::from_bytes(&path)),
        }
    }

    /// Opens a folder, by way of those above it.
    pub(super) fn folder(&mut self, plan: &Plan, node: NodeId) -> Result<Folder, SourceError> {
        let mut missing = Vec::new();
        let mut at = node;
        let mut folder = loop {
            if let Some((_, folder)) = self.open.iter().find(|(open, _)| *open == at) {
                break folder.clone();
            }
            let Some((parent, name)) = plan.first_name(at) else { break self.root.clone() };
            missing.push((at, name));
            at = parent;
        };
        for (node, name) in missing.into_iter().rev() {
            let flags = FOLDER | OFlags::NOFOLLOW;
            let opened = rustix::fs::openat(&*folder.0, OsStr::from_bytes(name), flags, Mode::empty())
                .map(|descriptor| Folder(Arc::new(descriptor)))
                .and_then(|folder| folder.status(b"").map(|status| (folder, status)));
            let (opened, status) = opened.map_err(|error| self.unreadable(plan, node, error))?;
            self.must_be_as_before(plan, node, &status)?;
            folder = opened;
            self.open.push_back((node, folder.clone()));
            if self.open.len() > MOST_OPEN {
                self.open.pop_front();
            }
        }
        Ok(folder)
    }

    /// Opens a file that is still as it was.
    pub(super) fn file(&mut self, plan: &Plan, node: NodeId) -> Result<File, SourceError> {
        let (parent, name) = plan.first_name(node).expect("the root is no file");
        let folder = self.folder(plan, parent)?;
        let file = folder.file(name).map_err(|error| self.unreadable(plan, node, error))?;
        let status = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        let status = status.map_err(|error| self.unreadable(plan, node, error))?;
        self.must_be_as_before(plan, node, &status)?;
        Ok(file)
    }

    /// Fails with the first entry that is no longer as it was. New names in a folder show in its own times.
    pub(super) fn verify_unchanged(&mut self, plan: &Plan) -> Result<(), SourceError> {
        for number in 0..plan.nodes() {
            let node = plan.node(number);
            let (folder, name) = match plan.first_name(node) {
                Some((parent, name)) => (self.folder(plan, parent)?, name),
                None => (self.root.clone(), &b""[..]),
            };
            let status = folder.status(name).map_err(|error| self.unreadable(plan, node, error))?;
            self.must_be_as_before(plan, node, &status)?;
        }
        Ok(())
    }

    fn must_be_as_before(&self, plan: &Plan, node: NodeId, status: &Statx) -> Result<(), SourceError> {
        if self.stamps[node.index()] == Stamp::of(status) {
            return Ok(());
        }
        Err(SourceError::Changed { path: self.path(plan, node) })
    }

    fn unreadable(&self, plan: &Plan, node: NodeId, error: Errno) -> SourceError {
        unreadable(self.path(plan, node), error)
    }
}

/// The files of a tree, and the one of them that was read last.
#[derive(Debug)]
pub(super) struct FolderFiles {
    folders: Folders,
    last: Option<(NodeId, File)>,
}

impl FolderFiles {
    pub(super) const fn new(folders: Folders) -> Self {
        Self { folders, last: None }
    }
}

impl TreeFiles for FolderFiles {
    fn read_at(&mut self, plan: &Plan, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let Self { folders, last } = self;
        if last.as_ref().is_none_or(|(open, _)| *open != node) {
            *last = Some((node, folders.file(plan, node)?));
        }
        let Some((_, file)) = last else { unreachable!("it has just been opened") };
        file.read_exact_at(buf, offset).map_err(|error| unreadable(folders.path(plan, node), error))
    }

    fn verify_unchanged(&mut self, plan: &Plan) -> Result<(), SourceError> {
        self.folders.verify_unchanged(plan)
    }
}

/// What a failed call on an entry means: one that has just been listed and is gone, shorter, or of another
/// kind, has changed.
pub(super) fn unreadable(path: PathBuf, error: impl Into<std::io::Error>) -> SourceError {
    let error = error.into();
    let has_changed = error.kind() == std::io::ErrorKind::UnexpectedEof
        || [Errno::NOENT, Errno::LOOP, Errno::NOTDIR]
            .iter()
            .any(|changed| error.raw_os_error() == Some(changed.raw_os_error()));
    if has_changed { SourceError::Changed { path } } else { SourceError::Unreadable { path, error } }
}
