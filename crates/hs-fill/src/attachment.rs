//! The file, made or found again, with its mark, its sidecar, and a descriptor that writes without events.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_format::ImageDigest;
use hs_image::Image;
use hs_serve::FileAccess;
use hs_units::{BLOCK_BYTES, Digest};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::error::FillError;
use super::group::{Access, Group};
use super::ledger::Ledger;
use super::marker::{self, Marker};
use super::sidecar::{FileTime, Header, Sidecar, SidecarError, sidecar_path};
use super::uncovered;
use super::withheld;

/// Types of file systems with pre-content events: statfs(2).
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
/// The disk that a file is filled with.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Digest of the disk, as the image claims it.
    pub disk_digest: Digest,
    /// The image's name, which is certain.
    pub image_name: ImageDigest,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// The image, for a later process that completes the file.
    pub image: PathBuf,
    /// The modification time that the file gets and keeps.
    pub mtime: FileTime,
    /// The access rights of a new file; an existing one keeps its own.
    pub access: FileAccess,
}

impl Subject {
    /// The disk of the image at `path`, which has been opened. The file gets its modification time.
    ///
    /// # Errors
    /// When the file cannot be looked at.
    pub fn of(image: &Image, path: &Path) -> io::Result<Self> {
        let image_path = fs::canonicalize(path)?;
        let metadata = fs::metadata(&image_path)?;
        let mtime = FileTime { seconds: metadata.mtime(), nanos: metadata.mtime_nsec() as u32 };
        Ok(Self {
            disk_digest: image.disk_digest(),
            image_name: image.image_digest(),
            disk_bytes: image.exact_bytes(),
            image: image_path,
            mtime,
            access: FileAccess::default(),
        })
    }

    /// Refuses a file with this header when it was begun from another image.
    ///
    /// # Errors
    /// [`FillError::OtherDisk`] or [`FillError::OtherImage`].
    pub fn refuse_another(&self, path: &Path, header: &Header) -> Result<(), FillError> {
        let (path, begun, found) = (path.to_owned(), header.image_name, self.image_name);
        if header.disk_digest != self.disk_digest {
            return Err(FillError::OtherDisk { path });
        }
        if begun == found { Ok(()) } else { Err(FillError::OtherImage { path, begun, found }) }
    }

    /// The disk of a remote image; `word` is its address.
    #[must_use]
    pub fn of_remote(image: &Image, word: &Path) -> Self {
        // A server's time is not trusted. The beginning of 2000 is as good as any other time that never
        // changes.
        let mtime = FileTime { seconds: 946_684_800, nanos: 0 };
        Self {
            disk_digest: image.disk_digest(),
            image_name: image.image_digest(),
            disk_bytes: image.exact_bytes(),
            image: word.to_owned(),
            mtime,
            access: FileAccess::default(),
        }
    }
}

/// The state of a file that was opened.
#[derive(Debug)]
pub enum OpenedFile {
    /// It holds all of the disk: nothing is to be done.
    Complete,
    /// Blocks are missing.
    Incomplete(Attachment),
}

/// A marked file that is not complete. While any process holds its group, no program reads missing blocks.
#[derive(Debug)]
pub struct Attachment {
    pub(super) path: PathBuf,
    pub(super) group: Option<Arc<Group>>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) writer: File,
    pub(super) sidecar: Sidecar,
    was_made: bool,
}

/// The descriptors of an [`Attachment`], for a process that goes on with it.
#[derive(Debug)]
pub struct Handover {
    /// The group.
    pub group: OwnedFd,
    /// The file, open for writing without events.
    pub writer: OwnedFd,
    /// The sidecar, which is locked through this descriptor.
    pub sidecar: OwnedFd,
    /// Memory in which a server notes the reads that wait.
    pub ledger: OwnedFd,
}

impl Attachment {
    /// Makes the file at `path`, or goes on with one of the same disk; marks it.
    ///
    /// # Errors
    /// See [`FillError`].
    pub fn open(path: &Path, subject: &Subject) -> Result<OpenedFile, FillError> {
        let group = Group::new(Access::Read).map_err(no_group)?;
        Self::open_with(path, subject, Some(Arc::new(group)))
    }

    /// The same without a mark: a program that reads the file meanwhile sees zeros where blocks are missing.
    /// Only for completing a file that no process fills on demand.
    ///
    /// # Errors
    /// See [`FillError`].
    pub fn open_unguarded(path: &Path, subject: &Subject) -> Result<OpenedFile, FillError> {
        Self::open_with(path, subject, None)
    }

    fn open_with(path: &Path, subject: &Subject, group: Option<Arc<Group>>) -> Result<OpenedFile, FillError> {
        let path = &absolute(path)?;
        let lock = lock(path)?;
        let opened = match OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)
        {
            Ok(file) => {
                existing(path, file, subject, group, lock.try_clone().map_err(FillError::io("use", path))?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let lock = lock.try_clone().map_err(FillError::io("use", path))?;
                create(path, subject, group, lock).map(OpenedFile::Incomplete)
            }
            Err(error) => Err(FillError::io("open", path)(error)),
        };
        let was_for_its_lock = || lock.metadata().is_ok_and(|found| found.len() == 0);
        let is_left_over = match &opened {
            Ok(OpenedFile::Incomplete(_)) => false,
            Ok(OpenedFile::Complete) => true,
            Err(_) => was_for_its_lock(),
        };
        if is_left_over {
            let _ = fs::remove_file(sidecar_path(path));
        }
        opened
    }

    /// Goes on with the descriptors of another process.
    ///
    /// # Errors
    /// When the sidecar is none any more.
    pub fn resume(path: &Path, handover: Handover) -> Result<Self, FillError> {
        let path = &absolute(path)?;
        let read = Sidecar::read(handover.sidecar.into());
        let sidecar = read.map_err(|(_, error)| {
            FillError::io("read", sidecar_path(path))(io::Error::new(io::ErrorKind::InvalidData, error))
        })?;
        let group = Some(Arc::new(Group::from_fd(handover.group)));
        let ledger = Arc::new(Ledger::open(handover.ledger).map_err(FillError::io("go on with", path))?);
        Ok(Self {
            ledger,
            path: path.to_owned(),
            group,
            writer: handover.writer.into(),
            sidecar,
            was_made: false,
        })
    }

    /// Whether this is still the file at its path, of this subject.
    ///
    /// # Errors
    /// [`FillError::OtherDisk`] when it is not.
    pub fn check(&self, subject: &Subject) -> Result<(), FillError> {
        let header = self.sidecar.header();
        let of_path = fs::metadata(&self.path).map_err(FillError::io("look at", &self.path))?;
        let is_same = (header.disk_digest, header.image_name) == (subject.disk_digest, subject.image_name)
            && header.inode == of_path.ino();
        if !is_same {
            return Err(FillError::OtherDisk { path: self.path.clone() });
        }
        Ok(())
    }

    /// Descriptors for another process, in the order of [`Handover`]; they are still this process's own.
    ///
    /// # Panics
    /// Without a group.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        let group = self.group.as_ref().expect("it was opened with a group");
        [group.as_fd(), self.writer.as_fd(), self.sidecar.file().as_fd(), self.ledger.as_fd()]
    }

    /// The group, for the process that guards the file.
    ///
    /// # Panics
    /// Without a group.
    #[must_use]
    pub fn group(&self) -> &Arc<Group> {
        self.group.as_ref().expect("it was opened with a group")
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn disk_blocks(&self) -> u64 {
        self.sidecar.header().disk_bytes.div_ceil(BLOCK_BYTES)
    }

    /// Removes the file, and its sidecar, when it has been made just now and no client was told of it. True
    /// when it was removed.
    pub fn discard_if_made(&self) -> bool {
        if self.was_made {
            let _ = fs::remove_file(&self.path).and_then(|()| fs::remove_file(sidecar_path(&self.path)));
        }
        self.was_made
    }

    /// Takes all rights to read the file away while it is not complete and has no server. A file that is
    /// opened incomplete has none from the beginning.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn withhold(&self) -> io::Result<()> {
        withheld::withhold(&self.writer, None)
    }

    /// Undoes [`Attachment::withhold`]: from now on a process guards the file.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn allow_reading(&self) -> io::Result<()> {
        withheld::give_back(&self.writer)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The marker in the file now.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn marker(&self) -> io::Result<Option<Marker>> {
        marker::read(&self.writer)
    }
}

/// The file's own marks, and the contents of its sidecar; the file need not be attached.
///
/// # Errors
/// When it cannot be opened, or is none of ours.
pub fn look_at(path: &Path) -> Result<(Marker, Option<Header>), FillError> {
    let file = File::open(path).map_err(FillError::io("open", path))?;
    let foreign = || FillError::Foreign { path: path.to_owned() };
    let marker = marker::read(&file).ok().flatten().ok_or_else(foreign)?;
    let sidecar = fs::read(sidecar_path(path)).unwrap_or_default();
    Ok((marker, Header::decode(&sidecar).ok()))
}

/// Whether a file in `folder` could fill itself.
///
/// # Errors
/// Why not.
pub fn probe(folder: &Path) -> Result<(), FillError> {
    let group = Group::new(Access::Read).map_err(no_group)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder, flags, Mode::RUSR).map_err(FillError::io("write in", folder))?;
    group.mark(file.as_fd()).map_err(|source| no_mark(folder, &file, source))
}

fn no_group(source: io::Error) -> FillError {
    match source.raw_os_error() {
        Some(libc::EPERM) => FillError::NeedsRoot,
        _ => FillError::KernelLacksEvents { source },
    }
}

fn no_mark(path: &Path, file: impl AsFd, source: io::Error) -> FillError {
    match source.raw_os_error() {
        Some(libc::EINVAL) => FillError::KernelLacksEvents { source },
        Some(libc::EOPNOTSUPP) => FillError::FileSystem { path: path.to_owned(), kind: file_system(file) },
        _ => FillError::io("mark", path)(source),
    }
}

fn file_system(file: impl AsFd) -> u64 {
    rustix::fs::fstatfs(file).map_or(0, |found| found.f_type as u64)
}

/// The path with links of its folder resolved.
fn absolute(path: &Path) -> Result<PathBuf, FillError> {
    let name = path.file_name().ok_or_else(|| FillError::Foreign { path: path.to_owned() })?;
    let folder = folder_of(path);
    Ok(fs::canonicalize(folder).map_err(FillError::io("look at", folder))?.join(name))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens the sidecar, made if need be, and locks it: two processes that fill one file would not know each
/// other's blocks.
fn lock(path: &Path) -> Result<File, FillError> {
    let place = sidecar_path(path);
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file =
            options.custom_flags(libc::O_NOFOLLOW).open(&place).map_err(FillError::io("open", &place))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Err(FillError::Attached { path: path.to_owned() }),
            Err(errno) => return Err(FillError::io("lock", &place)(errno)),
        }
        // A process that completed the file just now has removed the sidecar.
        let is_it =
            fs::metadata(&place).is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()));
        if is_it {
            return Ok(file);
        }
    }
}

fn check_file_system(path: &Path, file: impl AsFd) -> Result<(), FillError> {
    match file_system(&file) {
        EXT4 | XFS | BTRFS => Ok(()),
        kind => Err(FillError::FileSystem { path: path.to_owned(), kind }),
    }
}

fn existing(
    path: &Path,
    file: File,
    subject: &Subject,
    group: Option<Arc<Group>>,
    lock: File,
) -> Result<OpenedFile, FillError> {
    let metadata = file.metadata().map_err(FillError::io("look at", path))?;
    let path_of = || path.to_owned();
    let marker = if metadata.is_file() { marker::read(&file).ok().flatten() } else { None };
    match marker {
        None => return Err(FillError::Foreign { path: path_of() }),
        Some(Marker::Changed) => return Err(FillError::Changed { path: path_of() }),
        Some(Marker::Contradicted(found)) => return Err(FillError::Contradicted { path: path_of(), found }),
        Some(Marker::Complete(digest) | Marker::Incomplete(digest)) if digest != subject.disk_digest => {
            return Err(FillError::OtherDisk { path: path_of() });
        }
        Some(_) if metadata.len() != subject.disk_bytes => {
            return Err(FillError::Changed { path: path_of() });
        }
        Some(Marker::Complete(_)) => return Ok(OpenedFile::Complete),
        Some(Marker::Incomplete(_)) => {}
    }
    check_file_system(path, &file)?;
    uncovered::refuse(path, &metadata)?;
    let identity = header(path, &file, subject)?;
    let writer = silent_writer(path, file, group.is_some())?;
    if let Some(group) = &group {
        group.mark(writer.as_fd()).map_err(|source| no_mark(path, &writer, source))?;
    }
    let sidecar = known(path, lock, identity)?;
    // Also where it was not withheld: all its guards were killed, and it has no new guard yet.
    withheld::withhold(&writer, Some(subject.access.mode)).map_err(FillError::io("withhold", path))?;
    Ok(OpenedFile::Incomplete(Attachment {
        path: path_of(),
        group,
        ledger: ledger(path)?,
        writer,
        sidecar,
        was_made: false,
    }))
}

/// The sidecar of an existing file, or a new one where the old one is not of this file.
fn known(path: &Path, file: File, identity: Header) -> Result<Sidecar, FillError> {
    let io = |action| FillError::io(action, sidecar_path(path));
    let (begun, wanted) = (|sidecar: &Sidecar| sidecar.header().image_name, identity.image_name);
    let begin = |file, why: &str| {
        log::warn!("{}: {why}: everything is filled again", sidecar_path(path).display());
        Sidecar::begin(file, identity.clone()).map_err(io("write"))
    };
    match Sidecar::read(file) {
        Err((file, error)) => begin(file, &error.to_string()),
        Ok(sidecar) => {
            let found = sidecar.header();
            let is_same = (found.inode, found.born) == (identity.inode, identity.born)
                && (found.disk_digest, found.disk_bytes) == (identity.disk_digest, identity.disk_bytes);
            if is_same && begun(&sidecar) == wanted {
                return Ok(sidecar);
            }
            let (filled, damaged) = sidecar.filled().map_err(io("read"))?;
            if is_same && (filled.filled() > 0 || damaged > 0) {
                let begun = begun(&sidecar);
                return Err(FillError::OtherImage { path: path.to_owned(), begun, found: wanted });
            }
            begin(sidecar.into_file(), "it is of another file")
        }
    }
}

/// Makes a file that gets its name when it is marked.
fn create(
    path: &Path,
    subject: &Subject,
    group: Option<Arc<Group>>,
    lock: File,
) -> Result<Attachment, FillError> {
    let lock = match Sidecar::read(lock) {
        Err((file, SidecarError::Foreign)) if file.metadata().is_ok_and(|found| found.len() > 0) => {
            return Err(FillError::Foreign { path: sidecar_path(path) });
        }
        Err((file, _)) => file,
        Ok(of_a_file_that_is_gone) => of_a_file_that_is_gone.into_file(),
    };
    let folder = folder_of(path);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::open(folder, flags, Mode::RUSR) {
        Ok(file) => File::from(file),
        Err(Errno::ROFS) => return Err(FillError::ReadOnly { path: path.to_owned() }),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let kind = rustix::fs::statfs(folder).map_or(0, |found| found.f_type as u64);
            return Err(FillError::FileSystem { path: path.to_owned(), kind });
        }
        Err(errno) => return Err(FillError::io("create", path)(errno)),
    };
    check_file_system(path, &file)?;
    let io = |action| FillError::io(action, path);
    give_to(&file, subject.access).map_err(FillError::io("set the owner of", path))?;
    file.set_len(subject.disk_bytes).map_err(io("make room for"))?;
    marker::write(&file, Marker::Incomplete(subject.disk_digest)).map_err(io("mark"))?;
    marker::write_image(&file, subject.image_name).map_err(io("mark"))?;
    let writer = silent_writer(path, file, group.is_some())?;
    keep_mtime(&writer, subject.mtime).map_err(io("set the time of"))?;
    if let Some(group) = &group {
        group.mark(writer.as_fd()).map_err(|source| no_mark(path, &writer, source))?;
    }
    let identity = header(path, &writer, subject)?;
    let sidecar = Sidecar::begin(lock, identity).map_err(FillError::io("write", sidecar_path(path)))?;
    writer.sync_all().map_err(io("write"))?;
    let own = format!("/proc/self/fd/{}", writer.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, own, rustix::fs::CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(
        |errno| match errno {
            Errno::EXIST => FillError::Foreign { path: path.to_owned() },
            errno => FillError::io("create", path)(errno),
        },
    )?;
    Ok(Attachment { path: path.to_owned(), group, ledger: ledger(path)?, writer, sidecar, was_made: true })
}

/// The file cannot be read before, because it is made with the narrowest mode.
fn give_to(file: &File, access: FileAccess) -> io::Result<()> {
    let FileAccess { uid, gid, mode } = access;
    std::os::unix::fs::fchown(file, Some(uid), Some(gid))?;
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
}

fn ledger(path: &Path) -> Result<Arc<Ledger>, FillError> {
    Ledger::new().map(Arc::new).map_err(FillError::io("get memory for", path))
}

fn header(path: &Path, file: &File, subject: &Subject) -> Result<Header, FillError> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found =
        rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted).map_err(FillError::io("look at", path))?;
    Ok(Header {
        disk_digest: subject.disk_digest,
        image_name: subject.image_name,
        disk_bytes: subject.disk_bytes,
        inode: found.stx_ino,
        born: FileTime { seconds: found.stx_btime.tv_sec, nanos: found.stx_btime.tv_nsec },
        mtime: subject.mtime,
        image: subject.image.clone(),
    })
}

/// Gives the file the modification time that it is to keep: User-mode Linux refuses a backing file whose time
/// is not the one in the header of its copy-on-write file.
pub(super) fn keep_mtime(file: &File, time: FileTime) -> io::Result<()> {
    let last_access = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let last_modification = Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access, last_modification })?)
}

/// A descriptor for writing that causes no events: a descriptor that comes with an event is one. To get an
/// event, a thread of our own reads a byte. When not `needed`, the file is returned as it was opened.
fn silent_writer(path: &Path, file: File, needed: bool) -> Result<File, FillError> {
    if !needed {
        return Ok(file);
    }
    let group = Arc::new(Group::new(Access::Write).map_err(no_group)?);
    group.mark(file.as_fd()).map_err(|source| no_mark(path, &file, source))?;
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let asking = File::open(own).map_err(FillError::io("open", path))?;
    let asks = std::thread::Builder::new()
        .name("hs-fill-ask".to_owned())
        .spawn(move || asking.read_at(&mut [0], 0))
        .map_err(FillError::io("start a thread for", path))?;
    let io = |action| FillError::io::<io::Error>(action, path);
    loop {
        poll(&mut [PollFd::from_borrowed_fd(group.as_fd(), PollFlags::IN)], None)
            .map_err(|errno| io("wait for")(errno.into()))?;
        for message in group.read().map_err(io("be asked about"))? {
            let is_own = message.event.asks() && message.event.pid == std::process::id().cast_signed();
            let writer = message.fd.as_ref().filter(|_| is_own).map(OwnedFd::try_clone);
            // Other programs may read as well, and get what the file has: no client was told of the file yet.
            if let Some(question) = message.question(&group) {
                question.allow();
            }
            if let Some(writer) = writer {
                let writer = writer.map_err(io("use"))?;
                drop(asks.join());
                group.unmark(file.as_fd()).map_err(io("unmark"))?;
                return Ok(writer.into());
            }
        }
    }
}
