//! The file system in a disk: recognised by its magic, and mounted.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hs_volumes::FsKind;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::LinuxError;
use crate::descriptors::without_descriptors;
use crate::kernel_log::KernelLog;
use crate::mounts::{self, Unmounted};
use crate::volume::Volume;

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
    /// FAT.
    Fat,
}

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
            Self::Fat => "vfat",
        }
    }

    /// The one that mounts this kind, if there is one that headstart uses.
    pub fn of_kind(kind: FsKind) -> Option<Self> {
        Some(match kind {
            FsKind::Ext => Self::Ext4,
            FsKind::Squashfs => Self::Squashfs,
            FsKind::Erofs => Self::Erofs,
            FsKind::Xfs => Self::Xfs,
            FsKind::Btrfs => Self::Btrfs,
            FsKind::Iso9660 => Self::Iso9660,
            FsKind::Fat => Self::Fat,
            _ => return None,
        })
    }

    /// Recognises what is in `disk`, a file or a block device.
    ///
    /// # Errors
    /// As [`Volume::find`].
    pub fn detect(disk: &Path) -> Result<Self, LinuxError> {
        let io = |action| move |source| LinuxError::Io { action, path: disk.into(), source };
        let mut file = File::open(disk).map_err(io("open"))?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(io("look at"))?;
        Self::detect_with(disk, bytes, |offset, bytes| file.read_exact_at(bytes, offset))
    }

    /// As [`FileSystem::detect`], for a disk of so many bytes that is read with `read_at`, which fills the
    /// buffer from the offset; `disk` is its name in errors.
    ///
    /// # Errors
    /// As [`Volume::find`].
    pub fn detect_with(
        disk: &Path,
        bytes: u64,
        read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Self, LinuxError> {
        Volume::find(disk, bytes, None, read_at).map(|volume| volume.file_system)
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a file system is mounted: read-only, if nothing else is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsMountOptions {
    /// ext4: how many blocks of inode tables are read ahead (a power of two, or 0; the kernel's own
    /// choice is 32). Other file systems ignore it.
    pub inode_readahead_blocks: Option<u32>,
    /// Honour set-user-id programs. Off, because an image is not trusted by being mountable.
    pub allow_suid: bool,
    /// Honour device nodes. Off, for the same reason.
    pub allow_devices: bool,
    /// What becomes of a journal.
    pub journal: JournalUse,
    /// For writing. A journal is replayed, and discards are passed on.
    pub writes: bool,
}

/// What becomes of a journal when its file system is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalUse {
    /// All changes should be in place. The kernel refuses a log of XFS or btrfs of which that is not so;
    /// ext4's is not looked at.
    #[default]
    Clean,
    /// The kernel replays it, on a device that can be written to.
    Replay,
    /// Mount the file system as it was before the changes that only its journal holds.
    Ignore,
}

/// A mounted file system. Dropping it unmounts; when it is still in use, its name goes at once and the
/// rest with its last user.
#[derive(Debug)]
pub struct FsMount {
    target: PathBuf,
    /// What the table of mounts names as its source: by then something else may be mounted there.
    source: Option<PathBuf>,
    mounted: bool,
    writes: bool,
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
        let target = if options.writes {
            Self::check(file_system, target)?
        } else {
            mounts::check_mount_point(target)?
        };
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, !options.writes);
        flags.set(MountFlags::NOSUID, !options.allow_suid);
        flags.set(MountFlags::NODEV, !options.allow_devices);
        let data = std::ffi::CString::new(mount_data(file_system, options)).ok();
        let kernel_log = KernelLog::from_now();
        // The disk may be one that this process serves.
        let mount = || rustix::mount::mount(device, &target, file_system.name(), flags, data.as_deref());
        without_descriptors("mounting", mount)?.map_err(|errno| match errno {
            Errno::NODEV => LinuxError::FileSystemUnsupported { file_system },
            Errno::PERM => LinuxError::NeedsRoot { what: "mounting a file system" },
            // The kernel says so of a log that it would have to write to.
            Errno::ROFS if options.journal == JournalUse::Clean => {
                LinuxError::JournalNotReplayed { path: device.into(), file_system }
            }
            errno => LinuxError::Mount {
                what: format!("{file_system} from {}", device.display()),
                target: target.clone(),
                source: errno.into(),
                said: kernel_log.map(|log| log.about(device)).unwrap_or_default(),
            },
        })?;
        Ok(Self { source: source_at(&target), target, mounted: true, writes: options.writes })
    }

    /// Checks that this file system can be mounted for writing at `target`; gives its path without links.
    ///
    /// # Errors
    /// An unusable mount point, or a file system that is not written to.
    pub fn check(file_system: FileSystem, target: &Path) -> Result<PathBuf, LinuxError> {
        if !matches!(file_system, FileSystem::Ext4 | FileSystem::Xfs | FileSystem::Btrfs) {
            return Err(LinuxError::NotWritable { file_system });
        }
        mounts::check_mount_point(target)
    }

    /// Makes the file system on `device`, which takes writes, ready to be mounted for writing.
    pub fn make_ready(device: &Path, file_system: FileSystem) {
        if file_system == FileSystem::Ext4 {
            crate::ext4_tools::make_ready(device);
        }
    }

    /// Takes over what a server that died had mounted at `target`, an absolute path without links, and for
    /// writing where it `writes`.
    pub fn adopt(target: PathBuf, writes: bool) -> Self {
        Self { source: source_at(&target), target, mounted: true, writes }
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

    /// Where it has other users, unmounting it does not write what they have written.
    fn sync(&self) {
        let opened = rustix::fs::open(&self.target, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        if let Err(errno) = opened.and_then(rustix::fs::syncfs) {
            log::warn!("{} is not synced: {errno}", self.target.display());
        }
    }

    fn take_down(&mut self) -> Result<(), LinuxError> {
        if !std::mem::take(&mut self.mounted) || source_at(&self.target) != self.source {
            return Ok(());
        }
        let unmount = || {
            if self.writes {
                self.sync();
            }
            mounts::unmount(&self.target, UnmountFlags::empty())
        };
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

/// What is mounted at `target` from, if something is.
fn source_at(target: &Path) -> Option<PathBuf> {
    mounts::mounted_at(target).ok().flatten().map(|entry| entry.source)
}

/// The driver's own options.
fn mount_data(file_system: FileSystem, options: FsMountOptions) -> String {
    let mut data = String::from(match (file_system, options.journal) {
        (FileSystem::Ext4, _) if options.writes => "discard,errors=remount-ro",
        (FileSystem::Xfs, _) if options.writes => "discard,nouuid",
        (FileSystem::Btrfs, _) if options.writes => "discard=async",
        (FileSystem::Ext4, JournalUse::Clean | JournalUse::Ignore) => "noload",
        (FileSystem::Xfs, JournalUse::Clean | JournalUse::Replay) => "nouuid",
        (FileSystem::Xfs, JournalUse::Ignore) => "norecovery,nouuid",
        (FileSystem::Btrfs, JournalUse::Ignore) => "rescue=nologreplay",
        _ => "",
    });
    if let (FileSystem::Ext4, Some(blocks)) = (file_system, options.inode_readahead_blocks) {
        let comma = if data.is_empty() { "" } else { "," };
        data.push_str(&format!("{comma}inode_readahead_blks={blocks}"));
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(offset: u64, magic: &[u8]) -> Result<FileSystem, LinuxError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(magic, offset).unwrap();
        file.as_file().set_len(file.as_file().metadata().unwrap().len().max(0x1_1000)).unwrap();
        FileSystem::detect(file.path())
    }

    #[test]
    fn what_the_kernel_mounts_is_told_from_what_it_does_not() {
        for (file_system, offset, magic) in [
            (FileSystem::Iso9660, 0x8001, &b"CD001"[..]),
            (FileSystem::Ext4, 0x438, &[0x53, 0xef]),
            (FileSystem::Squashfs, 0, b"hsqs"),
            (FileSystem::Erofs, 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
            (FileSystem::Xfs, 0, b"XFSB"),
            (FileSystem::Btrfs, 0x1_0040, b"_BHRfS_M"),
        ] {
            assert_eq!(detect(offset, magic).unwrap(), file_system);
        }
        assert!(matches!(detect(0, &[7; 5000]), Err(LinuxError::FileSystemUnknown { .. })));
        for (magic, word) in [(&b"LUKS\xba\xbe\0\x01"[..], "cryptsetup"), (b"LABELONE", "vgchange")] {
            let error = detect(if word == "vgchange" { 512 } else { 0 }, magic).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
