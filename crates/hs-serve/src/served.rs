//! A served image: opened, prefetched, shown as a disk, and its file system mounted.
//!
//! Both [`ServedImage`] and [`ServedFile`] show a disk as `DIR/disk.img`; a [`MountedFs`] attaches
//! that to a loop device and mounts what is in it. Loop devices read the disk with direct I/O, so
//! that its pages are in memory once, in the caches of the mounted file system.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use hs_disk::{Deliver, DiskOptions, ReadLimit, ReadOptions, ServedDisk, UseVisibility, Watch, parts};
use hs_engine::PrefetchConfig;
use hs_image::{ImageError, OpenOptions};
use hs_linux::LinuxError;
use hs_linux::fsmount::{FileSystem, FsMount, FsMountOptions};
use hs_linux::fuse2fs::Fuse2fs;
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_linux::mounts;
use hs_store::Store;
use hs_units::{BLOCK_BYTES, BlockRange};

use crate::ServeError;
use crate::fuse::{Disk, FileAccess, HeldSession, PushError, Pusher, Session, SessionOptions};
use crate::image_disk::{FileDisk, FileReads, ImageDisk};
use crate::warm::Warmer;

/// Where prefetched blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Prefetching {
    /// Nothing is prefetched.
    Off,
    /// They wait in this process's memory until they are read; the caches of a mounted file system are warmed
    /// from there.
    #[default]
    Hold,
    /// They are pushed into the page cache of `disk.img`, for programs that read it without direct I/O.
    Push,
}

/// How an image is served.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The name that the image must have, and the cache on disk.
    pub image: OpenOptions,
    /// Where prefetched blocks go.
    pub prefetching: Prefetching,
    /// Limits of the prefetch.
    pub prefetch: PrefetchConfig,
    /// Where the kernel keeps delivered blocks, a block of some hot chunks is left out, so that use of them
    /// is seen. docs/ENGINE.md says what that costs a start.
    pub markers: bool,
    /// Threads and caches. The front end sets whether readers keep what they are given.
    pub read: ReadOptions,
    /// How far the kernel reads ahead in `disk.img`, in KiB; at most 1024.
    pub disk_read_ahead_kib: u32,
    /// The same where the image has a hot region that is prefetched.
    pub hot_disk_read_ahead_kib: u32,
    /// What `mount` shows as the source.
    pub source_name: String,
    /// Who may read `disk.img`.
    pub access: FileAccess,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            image: OpenOptions::default(),
            prefetching: Prefetching::default(),
            prefetch: PrefetchConfig::default(),
            markers: true,
            read: ReadOptions::default(),
            disk_read_ahead_kib: 128,
            hot_disk_read_ahead_kib: 128,
            source_name: "headstart".to_owned(),
            access: FileAccess::default(),
        }
    }
}

impl ServeConfig {
    /// How the image is opened and read.
    pub(crate) fn disk_options(&self) -> DiskOptions {
        DiskOptions {
            image: self.image.clone(),
            prefetch: (self.prefetching != Prefetching::Off).then_some(self.prefetch),
            tripwires: self.markers,
            read: self.read,
        }
    }

    /// Opens the image in `store` and begins its prefetch into this process's memory: there is no kernel
    /// cache to push to.
    ///
    /// # Errors
    /// When the image is not one, or a thread cannot be started.
    pub fn open(
        &self,
        store: Arc<dyn Store>,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Arc<ServedDisk>, ImageError> {
        let disk = ServedDisk::open(store, &self.disk_options(), watch)?;
        disk.begin_prefetch(None)?;
        Ok(disk)
    }
}

/// Hands a session to a process that outlives this one, before there are readers: see [`Session::prepare`].
pub type Hold<'a> = &'a dyn Fn(&Session, &ServedDisk) -> io::Result<()>;

/// An image shown as `DIR/disk.img`.
///
/// The fields are dropped in order: the mount goes before the reader that answers it.
pub struct ServedImage {
    session: Session,
    disk: Arc<ServedDisk>,
    /// Whether it has a hot region that is prefetched.
    has_hot: bool,
}

impl ServedImage {
    /// Opens the image in `store`, begins its prefetch and shows its disk in `directory`.
    ///
    /// # Errors
    /// When the image is not one, or FUSE cannot be used.
    pub fn start(
        store: Arc<dyn Store>,
        directory: &Path,
        config: &ServeConfig,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Self, ServeError> {
        Self::start_held(store, directory, config, watch, &|_, _| Ok(()))
    }

    /// As [`start`](Self::start), with a supervisor that gets the session before there are readers.
    ///
    /// # Errors
    /// As [`start`](Self::start), and when `hold` fails.
    pub fn start_held(
        store: Arc<dyn Store>,
        directory: &Path,
        config: &ServeConfig,
        watch: Option<Arc<dyn Watch>>,
        hold: Hold<'_>,
    ) -> Result<Self, ServeError> {
        Self::show(store, config, watch, |disk, options, reader| {
            let mut session = Session::prepare(directory, disk, options)?;
            hold(&session, reader).map_err(|source| LinuxError::Io {
                action: "hand over",
                path: directory.into(),
                source,
            })?;
            session.show()?;
            Ok(session)
        })
    }

    /// Goes on where a server that died was: requests that waited for it go on waiting and are answered.
    /// `store` must hold the same image, and `config` be the same.
    ///
    /// # Errors
    /// When the image is not one, or the session cannot be gone on with.
    pub fn resume(
        store: Arc<dyn Store>,
        held: HeldSession,
        config: &ServeConfig,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Self, ServeError> {
        Self::show(store, config, watch, |disk, options, _| Session::resume(held, disk, options))
    }

    /// Opens the image, and shows its disk by `session`.
    fn show(
        store: Arc<dyn Store>,
        config: &ServeConfig,
        watch: Option<Arc<dyn Watch>>,
        session: impl FnOnce(Arc<dyn Disk>, SessionOptions, &ServedDisk) -> Result<Session, ServeError>,
    ) -> Result<Self, ServeError> {
        // The kernel keeps what it reads: in the cache of disk.img, or, past direct I/O, in those of a
        // mounted file system.
        let read = ReadOptions { readers_keep: true, ..config.read };
        let options = DiskOptions { read, ..config.disk_options() };
        let disk = ServedDisk::open(store, &options, watch)?;
        let push = config.prefetching == Prefetching::Push;
        // Blocks that stay in this process do not go to the kernel, so the stream need not wait for the
        // mount.
        if !push {
            disk.begin_prefetch(None)?;
        }
        let has_hot = config.prefetching != Prefetching::Off && disk.image().hot_chunk_count() > 0;
        let read_ahead_kib =
            if has_hot { config.hot_disk_read_ahead_kib } else { config.disk_read_ahead_kib };
        let options = SessionOptions {
            source_name: config.source_name.clone(),
            max_readahead_bytes: read_ahead_kib << 10,
            access: config.access,
            ..SessionOptions::default()
        };
        let shown = Arc::new(ImageDisk::new(Arc::clone(&disk)));
        let session = session(shown, options, &disk)?;
        if push {
            // The kernel takes pushed pages only for a file that it has looked up.
            let file = session.mount_point().join("disk.img");
            std::fs::metadata(&file).map_err(|source| LinuxError::Io {
                action: "look up",
                path: file,
                source,
            })?;
            disk.begin_prefetch(Some(Arc::new(PushPages { pusher: session.pusher() })))?;
        }
        Ok(Self { session, disk, has_hot })
    }

    /// The disk, without its front end.
    #[must_use]
    pub const fn disk(&self) -> &Arc<ServedDisk> {
        &self.disk
    }

    /// The FUSE session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// Waits until the prefetch has ended.
    pub fn wait_prefetch(&self) {
        self.disk.wait_prefetch();
    }

    /// Mounts the file system in the disk at `target`, and begins to warm its caches from the prefetch: see
    /// [`MountedFs::wait_until_warming_leads`].
    ///
    /// # Errors
    /// When there is no file system that the kernel knows, or it cannot be mounted.
    pub fn mount_fs(&self, target: &Path, options: &MountFsOptions) -> Result<MountedFs, ServeError> {
        let file_system = self.detect()?;
        let file = self.session.mount_point().join("disk.img");
        let mut options = *options;
        if options.driver == FsDriver::Fuse2fs && self.has_hot {
            options.read_ahead_kib = options.hot_fuse2fs_read_ahead_kib;
        }
        let limited = MountReads::limit(&self.disk);
        let mounted = MountedFs::mount(&file, file_system, target, &options)?;
        drop(limited);
        self.warmed(mounted, &options)
    }

    /// Takes over the file system that a dead server had mounted at `target` from this disk; `None` when
    /// there is none.
    ///
    /// # Errors
    /// As [`mount_fs`](Self::mount_fs).
    pub fn adopt_fs(&self, target: &Path, options: &MountFsOptions) -> Result<Option<MountedFs>, ServeError> {
        let Some((number, target)) = mounts::mounted_from(self.session.mount_point(), target)? else {
            return Ok(None);
        };
        let (device, file_system) = (LoopDevice::adopt(number)?, self.detect()?);
        let mount = Mount::Kernel { mount: FsMount::adopt(target), device };
        self.warmed(MountedFs { warmer: None, mount, file_system }, options).map(Some)
    }

    /// The file system in the disk.
    fn detect(&self) -> Result<FileSystem, LinuxError> {
        let read_at = |offset: u64, bytes: &mut [u8]| {
            let end = offset + bytes.len() as u64;
            if end > self.disk.image().disk_bytes() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.disk.read_at(offset, bytes).map_err(io::Error::other)
        };
        FileSystem::detect_with(Path::new(self.disk.image().name()), read_at)
    }

    /// Begins to warm the caches of a mounted file system, if that is asked for and the image has hints.
    fn warmed(&self, mut mounted: MountedFs, options: &MountFsOptions) -> Result<MountedFs, ServeError> {
        let hinted = self.disk.image().hints().next().is_some();
        if options.warm
            && hinted
            && mounted.file_system == FileSystem::Ext4
            && let Some(device) = mounted.device()
        {
            let (device, target) = (device.path().to_owned(), mounted.target());
            mounted.warmer = Some(Warmer::start(&self.disk, &target, &device, options.read_ahead_kib)?);
        }
        Ok(mounted)
    }
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

/// A plain disk file shown as `DIR/disk.img`, for foreign systems on an emulated medium.
pub struct ServedFile {
    session: Session,
    store: Arc<dyn Store>,
    reads: Arc<FileReads>,
}

impl ServedFile {
    /// Shows the file in `store` in `directory`.
    ///
    /// # Errors
    /// When FUSE cannot be used.
    pub fn start(
        store: Arc<dyn Store>,
        directory: &Path,
        file_name: &str,
        access: FileAccess,
    ) -> Result<Self, ServeError> {
        let options = SessionOptions { access, ..SessionOptions::default() };
        Self::with_options(store, directory, file_name, options)
    }

    /// The same for a reader that reads ahead itself: the kernel does not read ahead below it as well.
    ///
    /// # Errors
    /// When FUSE cannot be used.
    pub fn without_read_ahead(
        store: Arc<dyn Store>,
        directory: &Path,
        file_name: &str,
        access: FileAccess,
    ) -> Result<Self, ServeError> {
        let options = SessionOptions { max_readahead_bytes: 0, access, ..SessionOptions::default() };
        Self::with_options(store, directory, file_name, options)
    }

    fn with_options(
        store: Arc<dyn Store>,
        directory: &Path,
        file_name: &str,
        options: SessionOptions,
    ) -> Result<Self, ServeError> {
        let options = SessionOptions {
            source_name: store.name().to_owned(),
            file_name: file_name.to_owned(),
            ..options
        };
        let disk = FileDisk::new(Arc::clone(&store))?;
        let reads = disk.reads();
        let disk: Arc<dyn Disk> = Arc::new(disk);
        Ok(Self { session: Session::mount(directory, disk, options)?, store, reads })
    }

    /// The reads of the file that wait now.
    #[must_use]
    pub const fn reads(&self) -> &Arc<FileReads> {
        &self.reads
    }

    /// As [`ServedDisk::close`].
    pub fn close(&self) {
        self.store.close();
    }

    /// The FUSE session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }
}

/// The driver that reads the file system in a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FsDriver {
    /// The kernel, from a loop device. Needs root.
    #[default]
    Kernel,
    /// The program `fuse2fs`, from the disk file, through its page cache: only [`Prefetching::Push`] brings
    /// blocks there early. Works in a user namespace; ext4 only.
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
    /// Honour set-user-id programs and device nodes.
    pub trusted: bool,
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
            trusted: false,
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
    ) -> Result<Self, ServeError> {
        if options.driver == FsDriver::Fuse2fs {
            let mount = Fuse2fs::mount(file, file_system, target, options.read_ahead_kib)?;
            let mount = Mount::Fuse2fs(mount);
            return Ok(Self { warmer: None, mount, file_system });
        }
        let sector_bytes = if file_system == FileSystem::Iso9660 { 512 } else { 4096 };
        let device = LoopDevice::attach(
            file,
            LoopOptions { direct_io: options.direct_io, sector_bytes, ..LoopOptions::default() },
        )?;
        device.set_read_ahead(options.read_ahead_kib)?;
        let mount_options = FsMountOptions {
            inode_readahead_blocks: options.inode_readahead_blocks,
            allow_suid: options.trusted,
            allow_devices: options.trusted,
        };
        let mount = FsMount::mount(device.path(), file_system, target, mount_options)?;
        Ok(Self { warmer: None, mount: Mount::Kernel { mount, device }, file_system })
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

/// Pushes hot blocks into the page cache of `disk.img`.
struct PushPages {
    pusher: Pusher,
}

impl Deliver for PushPages {
    fn visibility(&self) -> UseVisibility {
        UseVisibility::Tripwires
    }

    fn comes_before_answers(&self) -> bool {
        true
    }

    fn deliver(&self, extents: &[BlockRange], raw: &[u8], left_out: &[Range<u32>]) -> bool {
        parts(extents, left_out).into_iter().all(|(part, first)| {
            let at = (u64::from(first) * BLOCK_BYTES) as usize;
            let bytes = &raw[at..at + part.bytes() as usize];
            match self.pusher.push(part.start.byte_offset(), &[bytes]) {
                Ok(()) => true,
                Err(PushError::NotLookedUp) => false,
                Err(error) => {
                    log::debug!("blocks {part} stay in memory: {error}");
                    false
                }
            }
        })
    }
}
