//! The file system in a disk that a front end shows as a file, mounted and warmed.
//!
//! A [`MountedFs`] attaches the file to a loop device and mounts what is in it. Loop devices read the disk
//! with direct I/O, so that its pages are in memory once, in the caches of the mounted file system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use hs_disk::{ReadLimit, ServedDisk};
use hs_linux::LinuxError;
use hs_linux::fsmount::{FileSystem, FsMount, FsMountOptions};
use hs_linux::fuse2fs::Fuse2fs;
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_linux::mounts;

use crate::Warmer;

/// The driver that reads the file system in a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FsDriver {
    /// The kernel, from a loop device. Needs root.
    #[default]
    Kernel,
    /// The program `fuse2fs`, from the disk file, through its page cache: only
    /// [`Prefetching::Push`](crate::Prefetching::Push) brings blocks there early. Works in a user namespace;
    /// ext4 only.
    Fuse2fs,
}

impl FsDriver {
    /// The driver that this process can use: in a user namespace the kernel mounts no disks. Call it after
    /// [`hs_linux::rootenv::enter_private_mounts`], which may enter one.
    #[must_use]
    pub fn for_this_process() -> Self {
        if hs_linux::rootenv::in_user_namespace() { Self::Fuse2fs } else { Self::Kernel }
    }
}

/// How the file system in a disk is mounted.
#[derive(Clone, Copy, Debug)]
pub struct MountFsOptions {
    /// The driver of the file system. What follows about loop devices and ext4 is for the kernel, as is
    /// `warm`. The read-ahead is for both; `fuse2fs` never trusts the image.
    pub driver: FsDriver,
    /// Loop devices read the disk with direct I/O.
    pub direct_io: bool,
    /// Kernel read-ahead of the loop device, in KiB. The kernel's own value is twice the largest request, 2.5
    /// MiB on Linux 6.18, where disks have 128 KiB.
    pub read_ahead_kib: u32,
    /// The same of `fuse2fs` where the image has a hot region that is prefetched: its files' pages cannot be
    /// warmed, and each first touch would bring neighbours that are not in the profile.
    pub hot_fuse2fs_read_ahead_kib: u32,
    /// ext4: blocks of inode tables read ahead; the kernel's own choice (32) when not given.
    pub inode_readahead_blocks: Option<u32>,
    /// Warm the file system's caches from the prefetch, as the image's hints say.
    pub warm: bool,
    /// A thread without descriptors of this process makes the calls that warm the caches. Where the next
    /// server cannot ask for what this one has taken (before Linux 6.9), those reads fail when this one is
    /// killed; else a call that waits for one of them would keep them from failing.
    pub calls_apart: bool,
    /// Honour set-user-id programs and device nodes.
    pub trusted: bool,
    /// Mount it for writing: the disk file takes writes.
    pub writes: bool,
}

impl Default for MountFsOptions {
    fn default() -> Self {
        Self {
            driver: FsDriver::default(),
            direct_io: true,
            read_ahead_kib: 128,
            hot_fuse2fs_read_ahead_kib: 0,
            inode_readahead_blocks: None,
            warm: true,
            calls_apart: false,
            trusted: false,
            writes: false,
        }
    }
}

/// A file system mounted from a disk file, taken down in the right order when dropped.
pub struct MountedFs {
    warmer: Option<Warmer>,
    mount: Mount,
    file_system: FileSystem,
}

/// The fields are dropped in order: the mount goes before the device that it reads.
enum Mount {
    Kernel { mount: FsMount, device: LoopDevice },
    Fuse2fs(Fuse2fs),
}

impl MountedFs {
    /// Mounts the `file_system` in `file` at `target`: from a loop device, or with `fuse2fs`.
    ///
    /// # Errors
    /// Not root, no loop device, or a disk that the driver refuses; `fuse2fs` is missing, or the disk is
    /// none for it.
    pub fn mount(
        file: &Path,
        file_system: FileSystem,
        target: &Path,
        options: &MountFsOptions,
    ) -> Result<Self, LinuxError> {
        if options.driver == FsDriver::Fuse2fs {
            let mount = Fuse2fs::mount(file, file_system, target, options.read_ahead_kib)?;
            let mount = Mount::Fuse2fs(mount);
            return Ok(Self { warmer: None, mount, file_system });
        }
        if options.writes {
            FsMount::make_ready(file, file_system);
        }
        let sector_bytes = if file_system == FileSystem::Iso9660 { 512 } else { 4096 };
        let device = LoopDevice::attach(
            file,
            LoopOptions { direct_io: options.direct_io, read_only: !options.writes, sector_bytes },
        )?;
        device.set_read_ahead(options.read_ahead_kib)?;
        let mount_options = FsMountOptions {
            inode_readahead_blocks: options.inode_readahead_blocks,
            allow_suid: options.trusted,
            allow_devices: options.trusted,
            writes: options.writes,
        };
        let mount = FsMount::mount(device.path(), file_system, target, mount_options)?;
        Ok(Self { warmer: None, mount: Mount::Kernel { mount, device }, file_system })
    }

    /// Mounts the file system in `disk`, which is shown as `file`, at `target`. Begins to warm its caches
    /// from the prefetch, where that is asked for: see [`MountedFs::wait_until_warming_leads`].
    ///
    /// # Errors
    /// As [`MountedFs::mount`], and when there is no file system that the kernel knows.
    pub fn mount_disk(
        disk: &Arc<ServedDisk>,
        file: &Path,
        target: &Path,
        options: &MountFsOptions,
    ) -> Result<Self, LinuxError> {
        let file_system = detect(disk)?;
        let limited = MountReads::limit(disk);
        let mounted = Self::mount(file, file_system, target, options)?;
        drop(limited);
        mounted.warmed(disk, options)
    }

    /// Takes over what a dead server had mounted at `target` from a file in `directory` that shows `disk`;
    /// `None` when there is nothing of it.
    ///
    /// # Errors
    /// As [`MountedFs::mount_disk`].
    pub fn adopt(
        disk: &Arc<ServedDisk>,
        directory: &Path,
        target: &Path,
        options: &MountFsOptions,
    ) -> Result<Option<Self>, LinuxError> {
        let Some((number, target)) = mounts::mounted_from(directory, target)? else { return Ok(None) };
        let (device, file_system) = (LoopDevice::adopt(number)?, detect(disk)?);
        let mount = Mount::Kernel { mount: FsMount::adopt(target), device };
        Self { warmer: None, mount, file_system }.warmed(disk, options).map(Some)
    }

    /// Begins to warm its caches, if that is asked for and the image has hints.
    fn warmed(mut self, disk: &Arc<ServedDisk>, options: &MountFsOptions) -> Result<Self, LinuxError> {
        let hinted = disk.image().hints().next().is_some();
        if options.warm
            && hinted
            && self.file_system == FileSystem::Ext4
            && let Some(device) = self.device()
        {
            let (device, target) = (device.path().to_owned(), self.target());
            let (read_ahead_kib, calls_apart) = (options.read_ahead_kib, options.calls_apart);
            self.warmer = Some(Warmer::start(disk, &target, &device, read_ahead_kib, calls_apart)?);
        }
        Ok(self)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn target(&self) -> PathBuf {
        match &self.mount {
            Mount::Kernel { mount, .. } => mount.target().to_owned(),
            Mount::Fuse2fs(mount) => mount.target().to_owned(),
        }
    }

    /// The loop device; `fuse2fs` needs none.
    #[must_use]
    pub const fn device(&self) -> Option<&LoopDevice> {
        match &self.mount {
            Mount::Kernel { device, .. } => Some(device),
            Mount::Fuse2fs(_) => None,
        }
    }

    /// The file system that is mounted.
    #[must_use]
    pub const fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Waits until the pages that a start needs first are being fetched. A program that reads earlier touches
    /// pages that are not, and the kernel fetches their neighbours with them.
    pub fn wait_until_warming_leads(&self) {
        if let Some(warmer) = &self.warmer {
            warmer.wait_until_it_leads();
        }
    }

    /// Whether all hints have been given.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.warmer.as_ref().is_none_or(Warmer::is_done)
    }
}

/// The file system in a disk.
fn detect(disk: &ServedDisk) -> Result<FileSystem, LinuxError> {
    let read_at = |offset: u64, bytes: &mut [u8]| {
        let end = offset + bytes.len() as u64;
        if end > disk.image().disk_bytes() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        disk.read_at(offset, bytes).map_err(io::Error::other)
    };
    FileSystem::detect_with(Path::new(disk.image().name()), read_at)
}

/// While a file system is being mounted, reads of its disk have a shorter time limit. No signal ends
/// mount(2), and `sync` of the whole machine waits for it.
struct MountReads<'a>(&'a ServedDisk);

impl<'a> MountReads<'a> {
    /// Each read may take a third of the usual limit, and all of the mount as much as one read otherwise.
    fn limit(disk: &'a ServedDisk) -> Self {
        let limit = disk
            .read_timeout()
            .map(|timeout| ReadLimit { each: timeout / 3, until: Instant::now() + timeout });
        disk.limit_reads(limit);
        Self(disk)
    }
}

impl Drop for MountReads<'_> {
    fn drop(&mut self) {
        self.0.limit_reads(None);
    }
}
