//! A mounted disk and the threads that serve it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hs_linux::LinuxError;
use hs_serve::FileAccess;

use super::abort::Abort;
use super::files::{FileView, Files, REPLAY_NAME};
use super::mount::{FuseMount, Mounter};
use super::negotiate::{Negotiated, handshake};
use super::push::Pusher;
use super::queues::Queues;
use super::reply::Disk;
use super::workers::Workers;
use crate::FuseError;

/// FUSE reads are at most this long: 256 pages, the kernel's `fs.fuse.max_pages_limit`.
const LONGEST_READ_BYTES: u32 = 1 << 20;
const LONGEST_READAHEAD_BYTES: u32 = 1 << 20;
/// The kernel starts with a window of 128 KiB and only ever takes less from INIT.
const KERNEL_READAHEAD_BYTES: u32 = 128 << 10;
/// How long an unmount waits for the workers to see it. It takes microseconds, unless a copy of the
/// mount lives on in another mount namespace.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How a disk is served.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Threads that take requests from the kernel; at least 1.
    pub threads: usize,
    /// Name of the one file.
    pub file_name: String,
    /// What `mount` and `df` show as the source, for example the image's path.
    pub source_name: String,
    /// Reads bypass the page cache: nothing is cached, nothing read ahead, nothing can be pushed.
    pub direct_io: bool,
    /// Opening the file keeps its cached pages. They can never be out of date.
    pub keep_cache: bool,
    /// The longest read, in bytes: a multiple of 4096, at most 1 MiB.
    pub max_read_bytes: u32,
    /// How far the kernel reads ahead, in bytes; at most 1 MiB.
    pub max_readahead_bytes: u32,
    /// Requests that may be under way without a reader waiting (read-ahead, asynchronous direct I/O).
    pub max_background: u16,
    /// Of these, the number from which on the kernel calls the file system congested.
    pub congestion_threshold: u16,
    /// The file's constant modification time, in seconds since 1970.
    pub mtime_s: u64,
    /// The users who may read the file.
    pub access: FileAccess,
    /// The disk takes writes.
    pub writes: bool,
    /// Agree with the kernel that the next server may ask for the requests that a dead one had taken (Linux
    /// 6.9). Otherwise they fail when the last thread of the dead one has ended.
    pub resend: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            threads: 2,
            file_name: "disk.img".into(),
            source_name: "headstart".into(),
            direct_io: false,
            keep_cache: true,
            max_read_bytes: LONGEST_READ_BYTES,
            max_readahead_bytes: KERNEL_READAHEAD_BYTES,
            max_background: 256,
            congestion_threshold: 192,
            mtime_s: 0,
            access: FileAccess::default(),
            writes: false,
            resend: true,
        }
    }
}

impl SessionOptions {
    fn check(&self) -> Result<(), LinuxError> {
        let bad = |option, value: String, needed| Err(LinuxError::Option { option, value, needed });
        let name = &self.file_name;
        if name.is_empty() || name.len() > 255 || name == "." || name == ".." || name.contains(['/', '\0']) {
            return bad("file_name", format!("{name:?}"), "it must be one file name of 1 to 255 bytes");
        }
        if self.threads == 0 {
            return bad("threads", "0".into(), "at least one thread must answer");
        }
        let read = self.max_read_bytes;
        if read == 0 || read > LONGEST_READ_BYTES || !read.is_multiple_of(4096) {
            return bad("max_read_bytes", read.to_string(), "it must be a multiple of 4096 up to 1 MiB");
        }
        if self.access.mode & !0o777 != 0 {
            let value = format!("{:o}", self.access.mode);
            return bad("access", value, "its mode must have permission bits only, at most 777");
        }
        if self.max_readahead_bytes > LONGEST_READAHEAD_BYTES {
            let value = self.max_readahead_bytes.to_string();
            return bad("max_readahead_bytes", value, "it must be at most 1 MiB");
        }
        Ok(())
    }
}

/// What a supervisor keeps of a server, so that the next one can go on.
#[derive(Debug)]
pub struct HeldSession {
    /// All of [`Session::descriptors`].
    pub descriptors: Vec<OwnedFd>,
    /// [`Session::detached`], where the mount may not be shown yet.
    pub detached: Option<OwnedFd>,
    /// What had been agreed with the kernel: [`Session::negotiated`].
    pub negotiated: Negotiated,
    /// Where the disk is shown: [`Session::mount_point`].
    pub mount_point: PathBuf,
    /// Requests that the dead server had taken fail with EIO: one of them may have crashed it.
    pub refuse_waiting: bool,
    /// [`Session::replay_memory`], where a journal was replayed.
    pub replay: Option<OwnedFd>,
}

impl HeldSession {
    /// Whether [`Session::ask_again`] changes nothing but who answers.
    #[must_use]
    pub fn can_be_asked_again(&self) -> bool {
        self.negotiated.has_resend() && self.replay.is_none() && !self.refuse_waiting
    }
}

/// A mounted disk. Dropping it unmounts.
///
/// A file system that is still in use when it is unmounted is detached, and its readers get errors.
///
/// It begins in two steps: [`prepare`](Session::prepare) makes the connection, [`show`](Session::show) lets
/// readers in. A supervisor is given the [descriptors](Session::descriptors) in between: a server that is
/// killed has then no reader whose request ends with it.
pub struct Session {
    mount: FuseMount,
    negotiated: Negotiated,
    queues: Queues,
    files: Arc<Files>,
    /// Threads that take requests.
    threads: usize,
    workers: Arc<Workers>,
}

impl Session {
    /// Mounts `disk` as one file in `directory` and starts to serve it.
    ///
    /// # Errors
    /// FUSE is missing or forbidden, the mount point is unusable, or an option is out of range.
    pub fn mount(directory: &Path, disk: Arc<dyn Disk>, options: SessionOptions) -> Result<Self, FuseError> {
        Self::mount_with(Mounter::for_this_process(), directory, disk, options)
    }

    pub(crate) fn mount_with(
        mounter: Mounter,
        directory: &Path,
        disk: Arc<dyn Disk>,
        options: SessionOptions,
    ) -> Result<Self, FuseError> {
        let mut session = Self::prepare_with(mounter, directory, disk, options)?;
        session.show()?;
        Ok(session)
    }

    /// Makes the connection for `directory`. As root nothing is seen there before [`show`](Self::show);
    /// `fusermount3` mounts at once, and readers wait.
    ///
    /// # Errors
    /// As [`mount`](Self::mount).
    pub fn prepare(
        directory: &Path,
        disk: Arc<dyn Disk>,
        options: SessionOptions,
    ) -> Result<Self, FuseError> {
        Self::prepare_with(Mounter::for_this_process(), directory, disk, options)
    }

    fn prepare_with(
        mounter: Mounter,
        directory: &Path,
        disk: Arc<dyn Disk>,
        options: SessionOptions,
    ) -> Result<Self, FuseError> {
        options.check()?;
        let (mount, device) = FuseMount::make(mounter, directory, &options)?;
        let negotiated = match handshake(&device, mount.target(), &options) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                // Without its device the mount is dead already; what remains is its name.
                drop(device);
                if let Err(unmount) = mount.unmount() {
                    log::error!("{unmount}");
                }
                return Err(error);
            }
        };
        let queues = Queues::new(device, negotiated.has_resend(), options.threads);
        let read_ahead_bytes = options.max_readahead_bytes;
        let session = Self::new(mount, negotiated, queues, disk, options);
        if read_ahead_bytes > KERNEL_READAHEAD_BYTES
            && let Err(error) = session.set_read_ahead(read_ahead_bytes / 1024)
        {
            log::warn!("read-ahead stays at 128 KiB: {error}");
        }
        Ok(session)
    }

    /// Attaches the mount and starts to answer.
    ///
    /// # Errors
    /// The kernel refuses the mount, or no thread can be started.
    pub fn show(&mut self) -> Result<(), FuseError> {
        self.start_workers()?;
        self.mount.attach()
    }

    /// Goes on with the session of a server that died, which a supervisor has held. Readers that waited for
    /// the dead server go on waiting, and are answered: the kernel sends the requests that it had taken again
    /// (Linux 6.9; before, they fail with ECONNABORTED when its last thread has ended). `disk` must be the
    /// same disk and `options` the same options.
    ///
    /// # Errors
    /// No descriptors, a mount point that is gone, or an option out of range.
    pub fn resume(
        held: HeldSession,
        disk: Arc<dyn Disk>,
        options: SessionOptions,
    ) -> Result<Self, FuseError> {
        options.check()?;
        let HeldSession { descriptors, detached, negotiated, mount_point, refuse_waiting, replay } = held;
        // Resolving the path would make a request to the very file system that has no server yet.
        let mount = FuseMount::existing(Mounter::for_this_process(), mount_point, detached);
        let queues = Queues::of_dead(descriptors, negotiated.has_resend(), options.threads)?;
        let mut session = Self::new(mount, negotiated, queues, disk, options);
        if refuse_waiting && let Some(files) = Arc::get_mut(&mut session.files) {
            files.refuse_resent();
        }
        if let Some(replay) = replay {
            let taken = session.files.take_writes(Some(replay));
            taken.map_err(LinuxError::io("go on with the writes to", session.mount.target()))?;
        }
        session.show()?;
        Ok(session)
    }

    /// Has the kernel send all requests again that have no answer, also those that this process has taken: a
    /// server that died may have taken one after [`resume`](Self::resume). Of two answers the first counts,
    /// so the disk must not be written to meanwhile ([`HeldSession::can_be_asked_again`]).
    ///
    /// # Errors
    /// The kernel cannot.
    pub fn ask_again(&self) -> Result<(), FuseError> {
        self.queues.ask_again()
    }

    fn new(
        mount: FuseMount,
        negotiated: Negotiated,
        queues: Queues,
        disk: Arc<dyn Disk>,
        options: SessionOptions,
    ) -> Self {
        let view = FileView {
            file_name: options.file_name.into_bytes(),
            direct_io: options.direct_io,
            keep_cache: options.keep_cache,
            mtime_s: options.mtime_s,
            access: options.access,
        };
        let files = Arc::new(Files::new(disk, view));
        Self { mount, negotiated, queues, files, threads: options.threads, workers: Arc::default() }
    }

    fn start_workers(&self) -> Result<(), FuseError> {
        for index in 0..self.threads {
            let device = Arc::clone(self.queues.of_thread(index));
            Workers::start_one(&self.workers, index, device, Arc::clone(&self.files)).map_err(|source| {
                let path = self.mount.target().into();
                LinuxError::Io { action: "start a thread for", path, source }
            })?;
        }
        Ok(())
    }

    /// What was agreed with the kernel, to be kept by a supervisor.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// The session's descriptors. A supervisor that holds a duplicate of every one of them keeps the
    /// mount alive when this process dies, and the requests that were taken if the kernel can resend.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.descriptors()
    }

    /// The mount, until it is [shown](Session::show). A supervisor that holds it and the
    /// [descriptors](Session::descriptors) keeps the connection when this process dies before that.
    pub fn detached(&self) -> Option<BorrowedFd<'_>> {
        self.mount.detached()
    }

    /// The mount point, absolute and without links.
    pub fn mount_point(&self) -> &Path {
        self.mount.target()
    }

    /// The file that shows the disk.
    pub fn file(&self) -> PathBuf {
        self.mount_point().join(self.files.file_name())
    }

    /// The means to end the session when it does not end by itself; none when its mount is gone.
    pub fn abort(&self) -> Option<Arc<Abort>> {
        self.mount.aborter().cloned()
    }

    /// The disk as another file, which takes writes: they stay in memory, and no other file shows them. It is
    /// for the kernel to replay the journal of the disk's file system. The file is there from now on. Needs
    /// root.
    ///
    /// # Errors
    /// There is no memory, or the kernel refuses.
    pub fn writable_file(&self) -> Result<PathBuf, LinuxError> {
        let path = self.mount_point().join(REPLAY_NAME);
        self.files.take_writes(None).map_err(LinuxError::io("make room for writes to", path.clone()))?;
        self.mount.make_writable()?;
        Ok(path)
    }

    /// The memory with what was written to [`writable_file`](Self::writable_file), to be kept by a
    /// supervisor.
    pub fn replay_memory(&self) -> Option<BorrowedFd<'_>> {
        self.files.replay().map(|replay| replay.as_fd())
    }

    /// A way to push bytes into the kernel's page cache.
    pub fn pusher(&self) -> Pusher {
        let (queue, workers) = (Arc::clone(self.queues.of_thread(0)), Arc::clone(&self.workers));
        Pusher::new(queue, self.negotiated.has_resend(), workers, self.files.bytes())
    }

    /// Sets how far the kernel reads ahead in this file system, in KiB. It counts for files opened
    /// afterwards; open ones keep what they have. Needs root.
    ///
    /// # Errors
    /// `/sys` is missing or read-only.
    pub fn set_read_ahead(&self, kib: u32) -> Result<(), LinuxError> {
        self.mount.set_read_ahead(kib)
    }

    /// Waits until the file system is unmounted, by this or another process.
    pub fn wait(&self) {
        self.workers.wait();
    }

    /// Unmounts and waits until no request can come any more. A file system that stays busy for 200 ms
    /// is detached and its readers get errors.
    ///
    /// # Errors
    /// The kernel, or `fusermount3`, refused.
    pub fn unmount(&self) -> Result<(), FuseError> {
        // Also when another process has ended the connection: the mount may still be there.
        self.mount.unmount()?;
        if !self.workers.wait_for(END_PATIENCE) {
            self.mount.abort();
            if !self.workers.wait_for(END_PATIENCE) {
                let target = self.mount.target().display();
                log::warn!("{target} is unmounted here, but in use elsewhere: it ends with this process");
            }
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            log::error!("{error}");
        }
    }
}
