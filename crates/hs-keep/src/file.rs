//! The file of an overlay: opened, locked, read and written.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hs_overlay::{Checked, Checking, Failed, FailedStep, Job, Limits, Needed, Opening, Overlay, Step};
use hs_units::{BLOCK_BYTES, Digest};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, fadvise, fallocate, flock};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::control::Control;
use crate::error::KeepError;
use crate::place;
use crate::unflushed::Unflushed;

/// Between two attempts to lock a file whose process has just died.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// So often a file is opened again when it was replaced meanwhile; some file systems do not tell files apart.
const REOPENINGS: u32 = 3;
/// What both slots of the superblock take.
const SLOTS_BYTES: u64 = 2 * BLOCK_BYTES;
/// So often the map of a file is read that another process writes to; each time one was stored meanwhile.
const MOST_READINGS: u32 = 100;
/// From so many bytes on the medium begins with a write while the next one is copied.
const EARLY_BYTES: usize = 256 << 10;
/// Zeros that are written at once where space cannot be taken otherwise.
const ZEROS: usize = 1 << 20;

/// What a file is opened as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedAs {
    /// Writable; it is made where there is none.
    Keeping,
    /// Writable; it has to be there.
    Existing,
    /// Read only; it has to be there.
    ReadOnly,
}

/// A name that no other overlay has. The keys of hash maps are what the standard library has of chance.
fn random_id() -> [u8; 16] {
    let halves = [(); 2].map(|()| RandomState::new().build_hasher().finish().to_le_bytes());
    let mut id = [0; 16];
    halves.iter().flatten().zip(&mut id).for_each(|(byte, into)| *into = *byte);
    id
}

/// A file that this process alone uses as an overlay.
#[derive(Debug)]
pub struct KeepFile {
    /// Where this process has made the file. It is dropped while the lock is held.
    made: Option<Made>,
    file: File,
    path: PathBuf,
    /// Whether writes are unflushed, for a supervisor.
    pub(crate) unflushed: Option<Unflushed>,
    /// Where its disk is asked for snapshots.
    pub(crate) control: Option<Control>,
    /// That there is no space was said, and there was none since.
    is_full: AtomicBool,
}

/// A new file, which is removed when this is dropped, unless it is to stay.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    identity: (u64, u64),
    stays: AtomicBool,
}

impl Drop for Made {
    fn drop(&mut self) {
        if !*self.stays.get_mut() && identity_at(&self.path) == Some(self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of the file that is there now.
fn identity_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

impl KeepFile {
    /// How long a command waits for a process that is about to let go of the file: a server writes its map
    /// after it was unmounted.
    pub const PATIENCE: Duration = Duration::from_secs(3);

    /// Opens and locks the file. A process that has it may take so long to die.
    ///
    /// # Errors
    /// When it cannot be opened, is no regular file, or another process has it.
    pub fn open(path: &Path, opened: OpenedAs, patience: Duration) -> Result<Self, KeepError> {
        let end = Instant::now() + patience;
        let mut file = Self::locked(path, opened, end)?;
        // Another file may have taken its place before it could be locked: see `NewFile`.
        for _ in 0..REOPENINGS {
            if file.is_at(path)? {
                break;
            }
            drop(file);
            file = Self::locked(path, opened, end)?;
        }
        if opened != OpenedAs::ReadOnly {
            place::warn(&file.file, path);
        }
        Ok(file)
    }

    /// Opens and locks the file that is there now.
    pub(crate) fn locked(path: &Path, opened: OpenedAs, end: Instant) -> Result<Self, KeepError> {
        let own = Self::unlocked(path, opened)?;
        let file = &own.file;
        let operation = if opened != OpenedAs::ReadOnly {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        loop {
            match flock(file, operation) {
                Ok(()) => {
                    own.set_stays(false);
                    return Ok(own);
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOCK_PAUSE),
                Err(Errno::WOULDBLOCK) => return Err(KeepError::InUse { path: path.to_owned() }),
                Err(error) => return Err(KeepError::io("lock", path)(error.into())),
            }
        }
    }

    /// Opens the file, which another process may be using.
    pub(crate) fn unlocked(path: &Path, opened: OpenedAs) -> Result<Self, KeepError> {
        let mut options = OpenOptions::new();
        // A FIFO without a writer is refused, not waited for.
        options.read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK);
        options.write(opened != OpenedAs::ReadOnly).create(opened == OpenedAs::Keeping).mode(0o600);
        let (file, is_made) = match options.clone().create_new(opened == OpenedAs::Keeping).open(path) {
            Ok(file) => (file, opened == OpenedAs::Keeping),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                (options.open(path).map_err(KeepError::io("open", path))?, false)
            }
            Err(error) => return Err(KeepError::io("open", path)(error)),
        };
        let about = file.metadata().map_err(KeepError::io("look at", path))?;
        if !about.is_file() {
            return Err(KeepError::NotAFile { path: path.to_owned() });
        }
        // It stays until it is locked: another process may be the first to do that.
        let (identity, stays) = ((about.dev(), about.ino()), AtomicBool::new(true));
        let absolute = std::path::absolute(path).ok().filter(|_| is_made);
        let made = absolute.map(|path| Made { path, identity, stays });
        let (path, is_full) = (path.to_owned(), AtomicBool::new(false));
        Ok(Self { made, file, path, unflushed: None, control: None, is_full })
    }

    /// The file stays, also where this process has made it and nothing is written to its disk. Else it is
    /// removed when this is dropped: of a start that fails nothing is left.
    pub fn stay(&self) {
        self.set_stays(true);
    }

    fn set_stays(&self, stays: bool) {
        if let Some(made) = &self.made {
            made.stays.store(stays, Relaxed);
        }
    }

    /// Whether this file is the one at `path`.
    fn is_at(&self, path: &Path) -> Result<bool, KeepError> {
        let own = self.file.metadata().map_err(KeepError::io("look at", path))?;
        Ok(identity_at(path) == Some((own.dev(), own.ino())))
    }

    /// The same file, which lies at `path` now.
    pub(crate) fn moved_to(self, path: &Path) -> Self {
        self.stay();
        Self { path: path.to_owned(), ..self }
    }

    /// The same file, whose disk tells a supervisor whether writes are unflushed. Where they were when the
    /// process before this one died, the disk takes none any more.
    #[must_use]
    pub fn telling(self, unflushed: Unflushed) -> Self {
        Self { unflushed: Some(unflushed), ..self }
    }

    /// The same file, whose disk is asked for snapshots in this folder, by [`ask`](crate::ask()). Those who
    /// may write to the folder may ask.
    #[must_use]
    pub fn asked_in(self, folder: &Path) -> Self {
        let control = self.file.metadata().and_then(|about| Control::listen(folder, &about));
        let control = control.inspect_err(|error| {
            log::warn!("{}: no snapshots can be taken meanwhile: {error}", self.path.display());
        });
        Self { control: control.ok(), ..self }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes.
    ///
    /// # Errors
    /// When the system does not tell them.
    pub fn len(&self) -> Result<u64, KeepError> {
        Ok(self.file.metadata().map_err(KeepError::io("look at", &self.path))?.len())
    }

    /// Whether it has none.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn is_empty(&self) -> Result<bool, KeepError> {
        self.len().map(|len| len == 0)
    }

    /// Whether no overlay was begun in it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_new(&self) -> Result<bool, KeepError> {
        Ok(self.is_empty()? || self.is_unfinished()?)
    }

    /// The overlay in it. With a disk it has to belong to that one, and is begun where the file is empty.
    ///
    /// # Errors
    /// When there is none, it is damaged, or belongs to another disk.
    pub fn overlay(&self, disk: Option<(Digest, u64)>, writes: bool) -> Result<Overlay, KeepError> {
        let limits = Limits::default();
        if let Some((disk_digest, disk_bytes)) = disk.filter(|_| writes)
            && self.is_new()?
        {
            let identity = hs_overlay::Identity { id: random_id(), disk_digest, disk_bytes };
            let (overlay, job) = Overlay::create(identity, limits);
            self.begin(&job).map_err(KeepError::io("begin", &self.path))?;
            return Ok(overlay);
        }
        if writes {
            // What a process that was killed had written may be in the kernel's memory alone.
            rustix::fs::fdatasync(&self.file)
                .map_err(|error| KeepError::io("write back", &self.path)(error.into()))?;
        }
        // What the kernel could not write once is in its memory too, and not on the medium: it is read anew.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        self.opened(Opening::new(disk, self.len()?, limits))
    }

    /// The overlay in the file at `path`, which another process may be writing to, as it was a moment ago:
    /// what can be said of it. Its blocks may be others already.
    ///
    /// # Errors
    /// As for [`Self::overlay`].
    pub fn glance(path: &Path) -> Result<(Self, Overlay), KeepError> {
        let file = Self::unlocked(path, OpenedAs::ReadOnly)?;
        let opening = |file_bytes| Opening::new(None, file_bytes, Limits::default());
        let overlay = file.overlay_meanwhile(opening)?;
        Ok((file, overlay))
    }

    pub(crate) fn overlay_meanwhile(&self, opening: impl Fn(u64) -> Opening) -> Result<Overlay, KeepError> {
        let slots = || self.read_some(0, SLOTS_BYTES).map_err(KeepError::io("read", &self.path));
        let mut before = slots()?;
        for _ in 0..MOST_READINGS {
            let opened = self.opened(opening(self.len()?));
            let after = slots()?;
            // Else a map was stored meanwhile, and what was read may be parts of two.
            if opened.is_ok() || std::mem::replace(&mut before, after.clone()) == after {
                return opened;
            }
        }
        Err(KeepError::InUse { path: self.path.clone() })
    }

    fn opened(&self, mut opening: Opening) -> Result<Overlay, KeepError> {
        while let Needed::Bytes(range) = opening.poll() {
            let bytes = self.read_some(range.offset, range.len).map_err(KeepError::io("read", &self.path))?;
            opening.handle_bytes(&bytes).map_err(KeepError::overlay(&self.path))?;
        }
        opening.finish().map_err(KeepError::overlay(&self.path))
    }

    /// Whether a process died while it began the file: it has a beginning's length and only zeros.
    fn is_unfinished(&self) -> Result<bool, KeepError> {
        let len = self.len()?;
        if len > hs_overlay::FIRST_SEGMENT_BYTE + 2 * hs_overlay::SEGMENT_BYTES {
            return Ok(false);
        }
        let bytes = self.read_some(0, len).map_err(KeepError::io("read", &self.path))?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// Writes what a new file consists of, so that it is there after a power cut.
    fn begin(&self, job: &Job) -> io::Result<()> {
        for step in &job.steps {
            self.step(step)?;
        }
        self.file.sync_all()?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // A folder that cannot be synced loses the name at worst, and most do that by themselves.
        let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// As many bytes as there are.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read_some(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Fills `buffer` with what lies at `offset`.
    ///
    /// # Errors
    /// When there are not so many bytes, or they cannot be read.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Reads what the kernel has in memory: false where it has not all of it.
    pub(crate) fn read_cached(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let len = buffer.len();
        let read = preadv2(&self.file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
        read == Ok(len)
    }

    /// Does what a job says, but for [`Step::Quiesce`], which `quiesce` does.
    pub(crate) fn run(&self, job: &Job, quiesce: impl Fn()) -> Result<(), Failed> {
        self.stay();
        for step in &job.steps {
            if *step == Step::Quiesce {
                quiesce();
                continue;
            }
            if let Err(error) = self.step(step) {
                let no_space =
                    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG));
                // Said once while it lasts: each write that is refused tries again.
                if !no_space || !self.is_full.swap(true, Relaxed) {
                    log::error!("{}: {step:?}: {error}", self.path.display());
                }
                let step = if *step == Step::Sync { FailedStep::Sync } else { FailedStep::Write };
                return Err(Failed { step, no_space });
            }
        }
        // All of its space was there, not only what the first of several steps takes.
        if job.steps.iter().any(|step| matches!(step, Step::Allocate { .. })) {
            self.is_full.store(false, Relaxed);
        }
        Ok(())
    }

    /// Bytes that it takes on the medium.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn space_bytes(&self) -> Result<u64, KeepError> {
        Ok(self.file.metadata().map_err(KeepError::io("look at", &self.path))?.blocks() * 512)
    }

    /// Whether it has no name any more. Some file systems count no names.
    pub(crate) fn is_removed(&self) -> bool {
        let Ok(own) = self.file.metadata() else { return false };
        let is_it = |there: std::fs::Metadata| (there.dev(), there.ino()) == (own.dev(), own.ino());
        own.nlink() == 0 && !std::fs::metadata(&self.path).is_ok_and(is_it)
    }

    /// Takes the space that so many blocks need.
    pub(crate) fn take_space(&self, overlay: &mut Overlay, data: u64) -> Result<(), KeepError> {
        let Some(job) = overlay.space_needed(data) else { return Ok(()) };
        self.take(overlay, &job)
    }

    /// Takes the space that a snapshot needs, so that it can be deleted when there is none left.
    pub(crate) fn take_snapshot_space(&self, overlay: &mut Overlay) -> Result<(), KeepError> {
        let Some(job) = overlay.snapshot_space_needed() else { return Ok(()) };
        self.take(overlay, &job)
    }

    fn take(&self, overlay: &mut Overlay, job: &Job) -> Result<(), KeepError> {
        for step in &job.steps {
            if let Err(error) = self.step(step) {
                overlay.handle_failed(Failed { step: FailedStep::Write, no_space: true });
                return Err(KeepError::io("take space for", &self.path)(error));
            }
        }
        overlay.handle_done();
        Ok(())
    }

    /// Compares each block of its overlay with the sum that it was written with.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn check(&self, overlay: &Overlay) -> Result<Checked, KeepError> {
        let mut checking = Checking::new(overlay);
        self.feed(&mut checking)?;
        Ok(checking.finish())
    }

    /// Reads what a check needs.
    pub(crate) fn feed(&self, checking: &mut Checking<'_>) -> Result<(), KeepError> {
        while let Some(range) = checking.poll() {
            let bytes = self.read_some(range.offset, range.len).map_err(KeepError::io("read", &self.path))?;
            checking.handle_bytes(&bytes);
        }
        Ok(())
    }

    /// Does a job of an overlay that no other thread uses.
    ///
    /// # Errors
    /// When a step of it fails.
    pub fn run_alone(&self, overlay: &mut Overlay) -> Result<(), KeepError> {
        self.stay();
        while let Some(job) = overlay.poll() {
            for step in &job.steps {
                if let Err(error) = self.step(step) {
                    overlay.handle_failed(Failed { step: FailedStep::Write, no_space: false });
                    return Err(KeepError::io("write", &self.path)(error));
                }
            }
            overlay.handle_done();
        }
        Ok(())
    }

    fn step(&self, step: &Step) -> io::Result<()> {
        match step {
            Step::Write { offset, bytes } => {
                self.file.write_all_at(bytes, *offset)?;
                if bytes.len() >= EARLY_BYTES {
                    hs_linux::begin_write_back(&self.file, *offset, bytes.len() as u64);
                }
                Ok(())
            }
            Step::Sync => Ok(rustix::fs::fdatasync(&self.file)?),
            Step::Allocate { offset, len } => self.allocate(*offset, *len),
            Step::Punch { offset, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                if let Err(error) = fallocate(&self.file, flags, *offset, *len) {
                    // The space is given back some other time.
                    log::debug!("{}: {step:?}: {error}", self.path.display());
                }
                Ok(())
            }
            Step::Quiesce => Ok(()),
        }
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        loop {
            match fallocate(&self.file, FallocateFlags::empty(), offset, len) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let zeros = vec![0; ZEROS];
        for at in (0..len).step_by(ZEROS) {
            self.file.write_all_at(&zeros[..ZEROS.min((len - at) as usize)], offset + at)?;
        }
        Ok(())
    }
}
