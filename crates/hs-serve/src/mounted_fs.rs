//! The file system in a disk that a front end shows as a file, mounted and warmed.
//!
//! A [`MountedFs`] attaches the file to a loop device and mounts what is in it. Loop devices read the disk
//! with direct I/O, so that its pages are in memory once, in the caches of the mounted file system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use hs_disk::{ReadLimit, ServedDisk};
use hs_linux::fsmount::{FileSystem, FsMount, FsMountOptions, JournalUse};
use hs_linux::fuse2fs::Fuse2fs;
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_linux::mounts;
use hs_linux::{LinuxError, Volume};

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
#[derive(Clone, Debug)]
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
    /// The partition that is mounted, by number, label, UUID or type; the whole disk when not given. Caches
    /// of a partition are not warmed: the image's hints count from the start of the disk.
    pub partition: Option<Arc<str>>,
    /// Mount a file system whose journal was not replayed, as it was before those changes.
    pub ignore_journal: bool,
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
            partition: None,
            ignore_journal: false,
            writes: false,
        }
    }
}

/// A disk that a front end shows as a file.
pub trait ShownDisk {
    /// The file.
    fn file(&self) -> PathBuf;

    /// The same disk as a file that takes writes, which stay in memory: the kernel replays journals there.
    ///
    /// # Errors
    /// There can be none.
    fn writable_file(&self) -> Result<PathBuf, LinuxError>;
}

/// A file system mounted from a disk file, taken down in the right order when dropped.
pub struct MountedFs {
    warmer: Option<Warmer>,
    mount: Mount,
    volume: Volume,
}

/// The fields are dropped in order: the mount goes before the device that it reads.
enum Mount {
    Kernel { mount: FsMount, device: LoopDevice },
    Fuse2fs(Fuse2fs),
}

impl MountedFs {
    /// Mounts the file system in the disk `shown`, which has so many bytes and which `read_at` reads, at
    /// `target`: from a loop device, or with `fuse2fs`. `name` is the disk's name in errors.
    ///
    /// # Errors
    /// Not root, no loop device, no file system, or one that the driver refuses; `fuse2fs` is missing, or the
    /// disk is none for it, or its journal was not replayed.
    pub fn mount(
        (name, bytes): (&Path, u64),
        read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
        shown: &dyn ShownDisk,
        target: &Path,
        options: &MountFsOptions,
    ) -> Result<Self, LinuxError> {
        let volume = Volume::find(name, bytes, options.partition.as_deref(), read_at)?;
        Self::mount_volume(name, volume, shown, target, options)
    }

    fn mount_volume(
        name: &Path,
        volume: Volume,
        shown: &dyn ShownDisk,
        target: &Path,
        options: &MountFsOptions,
    ) -> Result<Self, LinuxError> {
        if options.writes {
            // Before anything is written.
            FsMount::check(volume.file_system, target)?;
        }
        let needs_replay = volume.journal == hs_volumes::Journal::NeedsReplay && !options.ignore_journal;
        if options.driver == FsDriver::Fuse2fs {
            if needs_replay {
                return Err(LinuxError::JournalNotReplayed {
                    path: name.into(),
                    file_system: volume.file_system,
                });
            }
            let mount = Fuse2fs::mount(&shown.file(), &volume, target, options.read_ahead_kib)?;
            return Ok(Self { warmer: None, mount: Mount::Fuse2fs(mount), volume });
        }
        let journal = match (needs_replay, options.ignore_journal) {
            (true, _) => JournalUse::Replay,
            (false, true) => JournalUse::Ignore,
            (false, false) => JournalUse::Clean,
        };
        if options.writes {
            return Self::mount_from_loop(volume, JournalUse::Replay, shown, target, options);
        }
        let mounted = Self::mount_from_loop(volume, journal, shown, target, options);
        let (mounted, is_replayed) = match mounted {
            // Not every log could be examined; the kernel has now done it.
            Err(LinuxError::JournalNotReplayed { .. }) => {
                (Self::mount_from_loop(volume, JournalUse::Replay, shown, target, options), true)
            }
            mounted => (mounted, needs_replay),
        };
        if is_replayed && mounted.is_ok() {
            log::warn!(
                "the {} in {} was not unmounted before it was copied: its journal was replayed in memory, as it is \
                 at each mount. An image of a clean copy needs none of that",
                volume.file_system,
                name.display()
            );
        }
        mounted
    }

    fn mount_from_loop(
        volume: Volume,
        journal: JournalUse,
        shown: &dyn ShownDisk,
        target: &Path,
        options: &MountFsOptions,
    ) -> Result<Self, LinuxError> {
        let replays = journal == JournalUse::Replay && !options.writes;
        let file = if replays { shown.writable_file()? } else { shown.file() };
        let loop_options = LoopOptions {
            // What is replayed lies in memory already.
            direct_io: options.direct_io || replays,
            read_only: !replays && !options.writes,
            sector_bytes: volume.sector_bytes,
            part: volume.partition.map(|_| volume.range),
        };
        let device = LoopDevice::attach(&file, loop_options)?;
        device.set_read_ahead(options.read_ahead_kib)?;
        if options.writes {
            // The device is the file system alone, also where that is a partition.
            FsMount::make_ready(device.path(), volume.file_system);
        }
        let mount_options = FsMountOptions {
            inode_readahead_blocks: options.inode_readahead_blocks,
            allow_suid: options.trusted,
            allow_devices: options.trusted,
            journal,
            writes: options.writes,
        };
        let mount = FsMount::mount(device.path(), volume.file_system, target, mount_options)
            .map_err(|error| volume.explain(error))?;
        Ok(Self { warmer: None, mount: Mount::Kernel { mount, device }, volume })
    }

    /// Mounts the file system in `disk`, which is `shown`, at `target`. Begins to warm its caches from the
    /// prefetch, where that is asked for: see [`MountedFs::wait_until_warming_leads`].
    ///
    /// # Errors
    /// As [`MountedFs::mount`].
    pub fn mount_disk(
        disk: &Arc<ServedDisk>,
        shown: &dyn ShownDisk,
        target: &Path,
        options: &MountFsOptions,
    ) -> Result<Self, LinuxError> {
        let volume = volume_of(disk, options)?;
        let limited = MountReads::limit(disk);
        let mounted = Self::mount_volume(Path::new(disk.image().name()), volume, shown, target, options)?;
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
        let (device, target) = match mounts::mounted_from(directory, target)? {
            Some((number, target)) => (LoopDevice::adopt(number)?, target),
            // It may have users without a name here. Mounted a second time, it would be in their way, and one
            // that is written to would be destroyed.
            None => match LoopDevice::adopt_mounted(directory)? {
                Some(device) => (device, target.to_owned()),
                None => return Ok(None),
            },
        };
        let volume = volume_of(disk, options)?;
        let mount = Mount::Kernel { mount: FsMount::adopt(target, options.writes), device };
        Self { warmer: None, mount, volume }.warmed(disk, options).map(Some)
    }

    /// Begins to warm its caches, if that is asked for and the image has hints.
    fn warmed(mut self, disk: &Arc<ServedDisk>, options: &MountFsOptions) -> Result<Self, LinuxError> {
        let hinted = disk.image().hints().next().is_some();
        if options.warm
            && hinted
            && self.volume.file_system == FileSystem::Ext4
            && self.volume.partition.is_none()
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
        self.volume.file_system
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

/// The file system in a disk that is meant.
fn volume_of(disk: &ServedDisk, options: &MountFsOptions) -> Result<Volume, LinuxError> {
    let image = disk.image();
    let read_at = |offset: u64, bytes: &mut [u8]| disk.read_at(offset, bytes).map_err(io::Error::other);
    Volume::find(Path::new(image.name()), image.exact_bytes(), options.partition.as_deref(), read_at)
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
