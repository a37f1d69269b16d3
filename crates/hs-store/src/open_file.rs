//! A file whose device may go and come back: a stick is pulled out and put in again.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hs_units::BLOCK_BYTES;
use parking_lot::{Mutex, RwLock};
use rustix::fs::Advice;
use rustix::io::Errno;

use crate::ShownDevice;

/// How long a device may be away before reads fail: as long as a server.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the path is tried meanwhile.
const LOOK: Duration = Duration::from_millis(200);
/// Commands to a device that is pulled out fail before the kernel stops showing it. Looks are so far apart.
const VANISHES: Duration = Duration::from_millis(50);
/// The most looks at a device that answers nothing. A hub says after up to 256 ms what was pulled out, and
/// the kernel waits for its readers several times before it takes the device away.
const MOST_LOOKS: u32 = 40;
/// What reads of a device say that is not there any more.
const GONE: [Errno; 3] = [Errno::IO, Errno::NXIO, Errno::NODEV];

/// The two open files of a path. Advice belongs to an open file, so streams have one of their own.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) random: File,
    pub(crate) sequential: File,
    /// The device below the file, if there is one.
    device: Option<ShownDevice>,
}

impl Handles {
    fn open(path: &Path) -> io::Result<Self> {
        let random = File::open(path)?;
        let sequential = open_again(path, &random)?;
        // Only advice: a file system that knows no advice is not an error.
        let _ = rustix::fs::fadvise(&sequential, 0, None, Advice::Sequential);
        let metadata = random.metadata()?;
        let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        Ok(Self { random, sequential, device: ShownDevice::of(number) })
    }

    /// Whether the kernel does not show the device any more, or another of its number.
    pub(crate) fn is_gone(&self) -> bool {
        self.device.as_ref().is_some_and(ShownDevice::is_gone)
    }

    /// The same after a read that failed, and a moment later.
    fn is_gone_soon(&self) -> bool {
        self.device.is_some()
            && vanishes(|| self.is_gone(), || self.answers(), || std::thread::sleep(VANISHES))
    }

    /// Whether the first block comes; from the device, unless the kernel cannot drop what it has of it.
    fn answers(&self) -> bool {
        let _ = rustix::fs::fadvise(&self.random, 0, NonZeroU64::new(BLOCK_BYTES), Advice::DontNeed);
        self.random.read_at(&mut [0; BLOCK_BYTES as usize], 0).is_ok_and(|bytes| bytes > 0)
    }
}

/// Whether a device goes that has just failed to read a place. One that still answers has a bad place there,
/// and is given one more look.
fn vanishes(is_gone: impl Fn() -> bool, answers: impl Fn() -> bool, pause: impl Fn()) -> bool {
    for _ in 0..MOST_LOOKS {
        if is_gone() {
            return true;
        }
        let has_answered = answers();
        pause();
        if has_answered {
            break;
        }
    }
    is_gone()
}

/// An open file that is opened again at its path when its device was gone.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    len: u64,
    /// The first block, by which the file is known again; empty when it could not be read.
    head: Vec<u8>,
    handles: RwLock<Arc<Handles>>,
    /// Since when the device is away. Held by the one that looks for it.
    away: Mutex<Option<Instant>>,
    is_closed: AtomicBool,
}

impl OpenFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let handles = Handles::open(path)?;
        let len = measure(&handles.random)?;
        // An image has its first block twice: that this one cannot be read is for its reader to say.
        let head = if handles.device.is_some() { head(&handles.random, len) } else { Vec::new() };
        let (handles, away) = (RwLock::new(Arc::new(handles)), Mutex::new(None));
        Ok(Self { path: path.to_owned(), len, head, handles, away, is_closed: AtomicBool::new(false) })
    }

    /// Ends waits for the device, now and later.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Relaxed);
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn handles(&self) -> Arc<Handles> {
        Arc::clone(&self.handles.read())
    }

    /// After a failed read by `used`: whether it is to be made again, since the device was away and the same
    /// file is there again. Waits for it, at most [`PATIENCE`] from when it was missed, and not after
    /// [`Self::close`].
    pub(crate) fn is_back(&self, used: &Arc<Handles>, error: Errno) -> bool {
        if !GONE.contains(&error) || self.head.is_empty() || !used.is_gone_soon() {
            return false;
        }
        let mut away = self.away.lock();
        if !Arc::ptr_eq(used, &self.handles()) {
            // Another thread has found it.
            return true;
        }
        let since = *away.get_or_insert_with(|| {
            log::warn!("{}: its device is gone; waiting for it", self.path.display());
            Instant::now()
        });
        while !self.is_closed.load(Relaxed) {
            match self.open_same() {
                Ok(Some(handles)) => {
                    let (path, seconds) = (self.path.display(), since.elapsed().as_secs());
                    log::warn!("{path}: its device is back after {seconds} s");
                    *self.handles.write() = Arc::new(handles);
                    *away = None;
                    return true;
                }
                // A confined server may open what it opened before, and nothing else.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return false,
                _ if since.elapsed() >= PATIENCE => return false,
                _ => std::thread::sleep(LOOK),
            }
        }
        false
    }

    /// The file at the path, when it is this one and its device is there.
    fn open_same(&self) -> io::Result<Option<Handles>> {
        let handles = Handles::open(&self.path)?;
        let is_same = handles.device.is_some()
            && measure(&handles.random)? == self.len
            && head(&handles.random, self.len) == self.head;
        Ok(is_same.then_some(handles))
    }
}

/// The first block; nothing when it cannot be read.
fn head(file: &File, len: u64) -> Vec<u8> {
    let mut head = vec![0; len.min(BLOCK_BYTES) as usize];
    file.read_exact_at(&mut head, 0).map(|()| head).unwrap_or_default()
}

/// Size of a file or block device. A block device's metadata say zero; its end says how long it is,
/// as does a file's. No other code uses the position that this moves.
pub(crate) fn measure(mut file: &File) -> io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::End(0))
}

/// A second open file of what `first` is, or a duplicate of `first` if the path has come to mean
/// another file since: then the advice is shared, which costs a little time and no correctness.
fn open_again(path: &Path, first: &File) -> io::Result<File> {
    let second = File::open(path)?;
    let (one, two) = (first.metadata()?, second.metadata()?);
    if (one.dev(), one.ino()) == (two.dev(), two.ino()) { Ok(second) } else { first.try_clone() }
}

/// What a file is that is neither a regular file nor a block device.
pub(crate) fn describe(kind: fs::FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a named pipe",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_char_device() => "a character device",
        _ => "a special file",
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use super::*;

    /// What is found of a device that is shown for so many looks, and how often was waited.
    fn found(shown: u32, answers: bool) -> (bool, u32) {
        let pauses = Cell::new(0);
        let gone = vanishes(|| pauses.get() >= shown, || answers, || pauses.set(pauses.get() + 1));
        (gone, pauses.get())
    }

    #[test]
    fn a_device_that_answers_nothing_is_given_time_to_vanish() {
        assert_eq!(found(0, false), (true, 0));
        assert_eq!(found(10, false), (true, 10));
        assert_eq!(found(u32::MAX, false), (false, MOST_LOOKS));
        // Places that cannot be read must not cost more than they do.
        assert_eq!((found(u32::MAX, true), found(1, true)), ((false, 1), (true, 1)));
    }

    /// A file on a device that the kernel shows in `folder`, if this one's is shown at all.
    fn shown_in(folder: &Path, path: &Path) -> Option<OpenFile> {
        fs::write(path, vec![7; 5000]).expect("written");
        let file = OpenFile::open(path).expect("opened");
        let mut handles = Arc::into_inner(file.handles.into_inner()).expect("nothing has it");
        handles.device.take()?;
        handles.device = ShownDevice::at(folder.to_owned());
        let handles = RwLock::new(Arc::new(handles));
        Some(OpenFile { handles, ..file })
    }

    #[test]
    fn a_file_is_back_when_it_is_there_again_and_the_same() {
        let scene = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let [shown, path, away] = ["shown", "file", "away"].map(|name| scene.path().join(name));
        fs::create_dir(&shown).expect("made");
        let Some(file) = shown_in(&shown, &path) else {
            return hs_testing::skip("the kernel shows no device of this file system");
        };
        let used = file.handles();
        assert!(!used.is_gone());
        fs::remove_dir(&shown).expect("removed");
        assert!(used.is_gone());
        assert!(!file.is_back(&used, Errno::INVAL), "no error of a device that is gone");
        // Nothing is there at first, then another file, then this one.
        fs::rename(&path, &away).expect("moved");
        thread::scope(|scope| {
            let waits = scope.spawn(|| file.is_back(&used, Errno::IO));
            thread::sleep(2 * LOOK);
            fs::write(&path, vec![8; 5000]).expect("written");
            thread::sleep(2 * LOOK);
            assert!(!waits.is_finished(), "another file");
            fs::rename(&away, &path).expect("moved");
            assert!(waits.join().expect("no panic"));
        });
        assert!(!Arc::ptr_eq(&used, &file.handles()), "it was opened again");
        assert!(file.is_back(&used, Errno::IO), "who comes later is told at once");
    }

    #[test]
    fn what_is_no_file_is_called_what_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let kind = |path: &Path| describe(fs::metadata(path).expect("it is there").file_type());
        assert_eq!((kind(folder.path()), kind(&socket)), ("a directory", "a socket"));
        assert_eq!(kind(Path::new("/dev/null")), "a character device");
    }
}
