//! The file system in a disk: recognised by its magic, and mounted.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::LinuxError;
use crate::descriptors::without_descriptors;
use crate::mounts::{self, Unmounted};

/// A file system that Linux can mount and headstart recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileSystem {
    /// ext2, ext3 or ext4: one driver mounts all of them.
    Ext4,
    /// SquashFS 4.
    Squashfs,
    /// EROFS.
    Erofs,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// ISO 9660.
    Iso9660,
}

/// Where each format has its magic number: file system, offset in bytes, magic. The order matters: a hybrid
/// ISO counts as an ISO before anything else, and a partition table is only looked for when nothing here
/// fits.
const MAGICS: [(FileSystem, u64, &[u8]); 6] = [
    (FileSystem::Iso9660, 0x8001, b"CD001"),
    (FileSystem::Ext4, 0x438, &[0x53, 0xef]),
    (FileSystem::Squashfs, 0, b"hsqs"),
    (FileSystem::Erofs, 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    (FileSystem::Xfs, 0, b"XFSB"),
    (FileSystem::Btrfs, 0x1_0040, b"_BHRfS_M"),
];

impl FileSystem {
    /// The name `mount(2)` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Squashfs => "squashfs",
            Self::Erofs => "erofs",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Iso9660 => "iso9660",
        }
    }

    /// Recognises what is in `disk`, a file or a block device.
    ///
    /// # Errors
    /// [`LinuxError::Partitioned`] for a disk cut into partitions, [`LinuxError::FileSystemUnknown`] when
    /// nothing is recognised, [`LinuxError::Io`] when the disk cannot be read.
    pub fn detect(disk: &Path) -> Result<Self, LinuxError> {
        let io = |action| move |source| LinuxError::Io { action, path: disk.into(), source };
        let file = File::open(disk).map_err(io("open"))?;
        Self::detect_with(disk, |offset, bytes| file.read_exact_at(bytes, offset))
    }

    /// As [`FileSystem::detect`], for a disk that is read with `read_at`, which fills the buffer from
    /// the offset; `disk` is its name in errors.
    ///
    /// # Errors
    /// As [`FileSystem::detect`].
    pub fn detect_with(
        disk: &Path,
        mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Self, LinuxError> {
        let mut matches = |offset: u64, magic: &[u8]| -> Result<bool, LinuxError> {
            let mut bytes = [0; 8];
            let bytes = &mut bytes[..magic.len()];
            match read_at(offset, bytes) {
                Ok(()) => Ok(bytes == magic),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
                Err(source) => Err(LinuxError::Io { action: "read", path: disk.into(), source }),
            }
        };
        for (file_system, offset, magic) in MAGICS {
            if matches(offset, magic)? {
                return Ok(file_system);
            }
        }
        for (table, offset, magic) in [("GPT", 512, &b"EFI PART"[..]), ("MBR", 510, &[0x55, 0xaa])] {
            if matches(offset, magic)? {
                return Err(LinuxError::Partitioned { path: disk.into(), table });
            }
        }
        Err(LinuxError::FileSystemUnknown { path: disk.into() })
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a file system is mounted: read-only and without touching a journal, if nothing else is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsMountOptions {
    /// ext4: how many blocks of inode tables are read ahead (a power of two, or 0; the kernel's own
    /// choice is 32). Other file systems ignore it.
    pub inode_readahead_blocks: Option<u32>,
    /// Honour set-user-id programs. Off, because an image is not trusted by being mountable.
    pub allow_suid: bool,
    /// Honour device nodes. Off, for the same reason.
    pub allow_devices: bool,
    /// For writing. A journal is replayed, and discards are passed on.
    pub writes: bool,
}

/// A mounted file system. Dropping it unmounts; when it is still in use, its name goes at once and the
/// rest with its last user.
#[derive(Debug)]
pub struct FsMount {
    target: PathBuf,
    mounted: bool,
}

impl FsMount {
    /// Mounts the `file_system` on block device `device` at `target`.
    ///
    /// # Errors
    /// Not root, no driver, an unusable mount point, or a disk the driver refuses.
    pub fn mount(
        device: &Path,
        file_system: FileSystem,
        target: &Path,
        options: FsMountOptions,
    ) -> Result<Self, LinuxError> {
        let target = mounts::check_mount_point(target)?;
        if options.writes && !matches!(file_system, FileSystem::Ext4 | FileSystem::Xfs | FileSystem::Btrfs) {
            return Err(LinuxError::NotWritable { file_system });
        }
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, !options.writes);
        flags.set(MountFlags::NOSUID, !options.allow_suid);
        flags.set(MountFlags::NODEV, !options.allow_devices);
        // A read-only disk cannot replay a journal, and the kernel would refuse a disk that needs it.
        let mut data = match file_system {
            FileSystem::Ext4 if options.writes => String::from("discard,errors=remount-ro"),
            FileSystem::Xfs if options.writes => String::from("discard,nouuid"),
            FileSystem::Btrfs if options.writes => String::from("discard=async"),
            FileSystem::Ext4 => String::from("noload"),
            FileSystem::Xfs => String::from("norecovery,nouuid"),
            _ => String::new(),
        };
        if let (FileSystem::Ext4, Some(blocks)) = (file_system, options.inode_readahead_blocks) {
            data.push_str(&format!(",inode_readahead_blks={blocks}"));
        }
        let data = std::ffi::CString::new(data).ok();
        // The disk may be one that this process serves.
        let mount = || rustix::mount::mount(device, &target, file_system.name(), flags, data.as_deref());
        without_descriptors("mounting", mount)?.map_err(|errno| match errno {
            Errno::NODEV => LinuxError::FileSystemUnsupported { file_system },
            Errno::PERM => LinuxError::NeedsRoot { what: "mounting a file system" },
            errno => LinuxError::Mount {
                what: format!("{file_system} from {}", device.display()),
                target: target.clone(),
                source: errno.into(),
            },
        })?;
        Ok(Self { target, mounted: true })
    }

    /// Makes the file system in `disk`, a file that takes writes, ready to be mounted for writing.
    pub fn make_ready(disk: &Path, file_system: FileSystem) {
        if file_system == FileSystem::Ext4 {
            crate::ext4_tools::make_ready(disk);
        }
    }

    /// Takes over what a server that died had mounted at `target`, an absolute path without links.
    pub fn adopt(target: PathBuf) -> Self {
        Self { target, mounted: true }
    }

    /// The mount point, without links.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Unmounts now, and says what went wrong.
    ///
    /// # Errors
    /// The kernel refused for another reason than users.
    pub fn unmount(mut self) -> Result<(), LinuxError> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), LinuxError> {
        if !std::mem::take(&mut self.mounted) {
            return Ok(());
        }
        let unmount = || mounts::unmount(&self.target, UnmountFlags::empty());
        if without_descriptors("unmounting", unmount).unwrap_or_else(|_| unmount())? == Unmounted::Detached {
            log::warn!("{} is in use: it goes away with its last user", self.target.display());
        }
        Ok(())
    }
}

impl Drop for FsMount {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            log::error!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(offset: u64, magic: &[u8]) -> Result<FileSystem, LinuxError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(magic, offset).unwrap();
        FileSystem::detect(file.path())
    }

    #[test]
    fn magics_are_recognised_in_files_that_end_right_there() {
        for (file_system, offset, magic) in MAGICS {
            assert_eq!(detect(offset, magic).unwrap(), file_system);
        }
        assert!(matches!(detect(0, b""), Err(LinuxError::FileSystemUnknown { .. })));
        assert!(matches!(detect(0, &[7; 5000]), Err(LinuxError::FileSystemUnknown { .. })));
        assert!(matches!(detect(510, &[0x55, 0xaa]), Err(LinuxError::Partitioned { table: "MBR", .. })));
        assert!(matches!(detect(512, b"EFI PART"), Err(LinuxError::Partitioned { table: "GPT", .. })));
    }
}
