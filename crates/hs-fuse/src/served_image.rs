//! An image, opened, prefetched, and shown as `DIR/disk.img`.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_disk::{Deliver, DiskOptions, ReadOptions, ServedDisk, UseVisibility, Watch, parts};
use hs_keep::{KeepFile, KeptDisk};
use hs_linux::LinuxError;
use hs_serve::{FsDriver, MountFsOptions, MountedFs, Prefetching, ServeConfig, ShownDisk};
use hs_store::Store;
use hs_units::{BLOCK_BYTES, BlockRange};

use crate::{Disk, FuseError, HeldSession, PushError, Pusher, Session, SessionOptions};

/// Hands a session to a process that outlives this one, before there are readers: see [`Session::prepare`].
pub type Hold<'a> = &'a dyn Fn(&Session, &ServedDisk) -> io::Result<()>;

/// Hands the memory with what a journal's replay writes to a process that outlives this one.
pub type HoldReplay<'a> = &'a dyn Fn(BorrowedFd<'_>) -> io::Result<()>;

/// The files of a session.
pub(crate) struct Shown<'a> {
    pub(crate) session: &'a Session,
    pub(crate) hold: HoldReplay<'a>,
}

impl ShownDisk for Shown<'_> {
    fn file(&self) -> PathBuf {
        self.session.file()
    }

    fn writable_file(&self) -> Result<PathBuf, LinuxError> {
        let path = self.session.writable_file()?;
        let held = self.session.replay_memory().map_or(Ok(()), self.hold);
        held.map_err(LinuxError::io("hand over", path.clone()))?;
        Ok(path)
    }
}

/// An image shown as `DIR/disk.img`.
///
/// The fields are dropped in order: the mount goes before the reader that answers it.
pub struct ServedImage {
    session: Session,
    kept: Option<Arc<KeptDisk>>,
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
    ) -> Result<Self, FuseError> {
        Self::start_held(store, directory, config, watch, None, &|_, _| Ok(()))
    }

    /// As [`start`](Self::start), and what is written to `disk.img` lasts, in this file.
    ///
    /// # Errors
    /// As [`start`](Self::start), and when the file is no overlay of this disk.
    pub fn start_keeping(
        store: Arc<dyn Store>,
        directory: &Path,
        config: &ServeConfig,
        watch: Option<Arc<dyn Watch>>,
        keep: KeepFile,
    ) -> Result<Self, FuseError> {
        Self::start_held(store, directory, config, watch, Some(keep), &|_, _| Ok(()))
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
        keep: Option<KeepFile>,
        hold: Hold<'_>,
    ) -> Result<Self, FuseError> {
        Self::show(store, config, watch, keep, |disk, options, reader| {
            let mut session = Session::prepare(directory, disk, options)?;
            hold(&session, reader).map_err(LinuxError::io("hand over", directory))?;
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
        keep: Option<KeepFile>,
    ) -> Result<Self, FuseError> {
        Self::show(store, config, watch, keep, |disk, options, _| Session::resume(held, disk, options))
    }

    /// Opens the image, and shows its disk by `session`.
    fn show(
        store: Arc<dyn Store>,
        config: &ServeConfig,
        watch: Option<Arc<dyn Watch>>,
        keep: Option<KeepFile>,
        session: impl FnOnce(Arc<dyn Disk>, SessionOptions, &ServedDisk) -> Result<Session, FuseError>,
    ) -> Result<Self, FuseError> {
        // The kernel keeps what it reads: in the cache of disk.img, or, past direct I/O, in those of a
        // mounted file system.
        let read = ReadOptions { readers_keep: true, ..config.read };
        let options = DiskOptions { read, ..config.disk_options() };
        let disk = ServedDisk::open(store, &options, watch)?;
        // Pushed blocks of the image would cover what was written.
        let push = config.prefetching == Prefetching::Push && keep.is_none();
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
            writes: keep.is_some(),
            ..SessionOptions::default()
        };
        let kept = keep.map(|file| KeptDisk::new(disk.clone(), file).map(Arc::new)).transpose()?;
        let shown: Arc<dyn Disk> = match &kept {
            Some(kept) => kept.clone(),
            None => disk.clone(),
        };
        let session = session(shown, options, &disk)?;
        if push {
            // The kernel takes pushed pages only for a file that it has looked up.
            let file = session.mount_point().join("disk.img");
            std::fs::metadata(&file).map_err(LinuxError::io("look up", file))?;
            disk.begin_prefetch(Some(Arc::new(PushPages { pusher: session.pusher() })))?;
        }
        Ok(Self { session, kept, disk, has_hot })
    }

    /// The disk, without its front end.
    #[must_use]
    pub const fn disk(&self) -> &Arc<ServedDisk> {
        &self.disk
    }

    /// The disk with what is written to it, where that is kept.
    #[must_use]
    pub const fn kept(&self) -> Option<&Arc<KeptDisk>> {
        self.kept.as_ref()
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

    /// Mounts the file system in the disk at `target`; see [`MountedFs::mount_disk`].
    ///
    /// # Errors
    /// As there.
    pub fn mount_fs(&self, target: &Path, options: &MountFsOptions) -> Result<MountedFs, LinuxError> {
        self.mount_fs_held(target, options, &|_| Ok(()))
    }

    /// As [`mount_fs`](Self::mount_fs), with a supervisor that gets the memory with what a journal's replay
    /// writes, before anything is written.
    ///
    /// # Errors
    /// As there, and when `hold` fails.
    pub fn mount_fs_held(
        &self,
        target: &Path,
        options: &MountFsOptions,
        hold: HoldReplay<'_>,
    ) -> Result<MountedFs, LinuxError> {
        let mut options = options.clone();
        if options.driver == FsDriver::Fuse2fs && self.has_hot {
            options.read_ahead_kib = options.hot_fuse2fs_read_ahead_kib;
        }
        MountedFs::mount_disk(&self.disk, &Shown { session: &self.session, hold }, target, &options)
    }

    /// Takes over the file system that a dead server had mounted at `target` from this disk; `None` when
    /// there is none.
    ///
    /// # Errors
    /// As [`mount_fs`](Self::mount_fs).
    pub fn adopt_fs(&self, target: &Path, options: &MountFsOptions) -> Result<Option<MountedFs>, LinuxError> {
        MountedFs::adopt(&self.disk, self.session.mount_point(), target, options)
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
