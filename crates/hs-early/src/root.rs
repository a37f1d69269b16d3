//! The mounted file system whose starts are accelerated.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use hs_accelerate::{FileIdentity, FsIdentity};
use hs_linux::mounts::{self, MountEntry};
use hs_linux::{FileHandle, LinuxError};
use hs_observe::PageInTargets;
use rustix::fs::{Mode, OFlags};

use crate::EarlyError;

/// Where the superblock of ext4, and that of XFS, has the UUID.
const EXT4_UUID_OFFSET: u64 = 1024 + 0x68;
const XFS_UUID_OFFSET: u64 = 32;

/// Which file system it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RootKind {
    /// ext2, ext3 or ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

/// A mounted file system, held open.
#[derive(Debug)]
pub struct Root {
    /// Where it is mounted.
    pub path: PathBuf,
    /// Which one it is.
    pub identity: FsIdentity,
    /// Of what kind.
    pub kind: RootKind,
    folder: OwnedFd,
    /// The block device, and its number: metadata of ext4 is in its page cache.
    device: Option<(File, (u32, u32))>,
    file_system: (u32, u32),
}

impl Root {
    /// Opens the file system that is mounted at `path`.
    ///
    /// # Errors
    /// [`EarlyError::NotMounted`], and [`EarlyError::FileSystem`] for one that cannot be helped: an overlay,
    /// a file system in memory or of another machine.
    pub fn open(path: &Path) -> Result<Self, EarlyError> {
        let path = path.canonicalize().map_err(LinuxError::io("look at", path))?;
        let entry =
            mounts::mounted_at(&path)?.ok_or_else(|| EarlyError::NotMounted { path: path.clone() })?;
        let kind = match entry.kind.as_str() {
            "ext2" | "ext3" | "ext4" => RootKind::Ext4,
            "xfs" => RootKind::Xfs,
            "btrfs" => RootKind::Btrfs,
            other => return Err(EarlyError::FileSystem { path, what: other.to_owned() }),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&path, flags, Mode::empty()).map_err(LinuxError::io("open", &path))?;
        let file_system = (entry.major, entry.minor);
        let (identity, device) = match kind {
            RootKind::Btrfs => (btrfs_identity(&folder).map_err(LinuxError::io("examine", &path))?, None),
            RootKind::Ext4 | RootKind::Xfs => {
                let (device, name) = open_device(&entry)?;
                let offset = if kind == RootKind::Xfs { XFS_UUID_OFFSET } else { EXT4_UUID_OFFSET };
                let mut uuid = [0; 16];
                device.read_exact_at(&mut uuid, offset).map_err(LinuxError::io("read", name))?;
                (FsIdentity { uuid, subvolume: 0 }, Some((device, file_system)))
            }
        };
        Ok(Self { path, identity, kind, folder, device, file_system })
    }

    /// The folder on which it is mounted.
    #[must_use]
    pub fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// The block device, whose pages are metadata; Btrfs keeps its own elsewhere.
    #[must_use]
    pub fn device(&self) -> Option<&File> {
        self.device.as_ref().map(|(device, _)| device)
    }

    /// The numbers by which the kernel's trace knows it.
    #[must_use]
    pub fn targets(&self) -> PageInTargets {
        let device = self.device.as_ref().map(|(_, number)| *number);
        PageInTargets { file_system: self.file_system, device }
    }

    /// Opens a file by its inode number, of which the trace speaks.
    pub(crate) fn open_inode(&self, inode: u64) -> io::Result<OwnedFd> {
        Ok(match self.kind {
            RootKind::Ext4 => hs_linux::open_by_inode(&self.folder, inode),
            RootKind::Xfs => hs_linux::open_by_xfs_inode(&self.folder, inode),
            RootKind::Btrfs => hs_linux::open_by_btrfs_inode(&self.folder, inode),
        }?)
    }

    /// Opens a file of a list.
    pub(crate) fn open_listed(&self, identity: &FileIdentity) -> io::Result<OwnedFd> {
        let handle = FileHandle { kind: identity.kind, bytes: identity.handle.clone() };
        Ok(hs_linux::open_by_handle(&self.folder, &handle)?)
    }

    /// The identity as text: the UUID, and the subvolume.
    #[must_use]
    pub fn name(&self) -> String {
        let hex: String = self.identity.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        let subvolume = self.identity.subvolume;
        let uuid = parts.join("-");
        if subvolume == 0 { uuid } else { format!("{uuid}-{subvolume}") }
    }
}

fn btrfs_identity(folder: &OwnedFd) -> io::Result<FsIdentity> {
    let uuid = hs_linux::btrfs_uuid(folder)?;
    Ok(FsIdentity { uuid, subvolume: hs_linux::btrfs_subvolume(folder)? })
}

/// Opens the block device by its number: names differ from boot to boot, and early there are few.
fn open_device(entry: &MountEntry) -> Result<(File, PathBuf), EarlyError> {
    let number = rustix::fs::makedev(entry.major, entry.minor);
    let is_it = |path: &Path| {
        path.metadata().is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == number)
    };
    let by_number = PathBuf::from(format!("/dev/block/{}:{}", entry.major, entry.minor));
    let known = [entry.source.clone(), by_number];
    let listed = || std::fs::read_dir("/dev").into_iter().flatten().flatten().map(|found| found.path());
    let path = known.into_iter().find(|path| is_it(path)).or_else(|| listed().find(|path| is_it(path)));
    let path = path.ok_or_else(|| {
        let path = PathBuf::from(format!("/dev/block/{}:{}", entry.major, entry.minor));
        LinuxError::Io { action: "find", path, source: io::ErrorKind::NotFound.into() }
    })?;
    let device = File::open(&path).map_err(LinuxError::io("open", &path))?;
    // Looked at without the kernel's own read-ahead: exactly what is asked for.
    let _ = rustix::fs::fadvise(device.as_fd(), 0, None, rustix::fs::Advice::Random);
    Ok((device, path))
}
