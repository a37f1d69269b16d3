//! A file whose device may go and come back: a stick is pulled out and put in again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_units::BLOCK_BYTES;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{Advice, major, minor};
use rustix::io::Errno;

/// How long a device may be away before reads fail: as long as a server.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the path is tried meanwhile.
const LOOK: Duration = Duration::from_millis(200);
/// What reads of a device say that is not there any more.
const GONE: [Errno; 3] = [Errno::IO, Errno::NXIO, Errno::NODEV];

/// The two open files of a path. Advice belongs to an open file, so streams have one of their own.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) random: File,
    pub(crate) sequential: File,
    /// Where the kernel shows the device below the file, if there is one.
    device: Option<PathBuf>,
}

impl Handles {
    fn open(path: &Path) -> io::Result<Self> {
        let random = File::open(path)?;
        let sequential = open_again(path, &random)?;
        // Only advice: a file system that knows no advice is not an error.
        let _ = rustix::fs::fadvise(&sequential, 0, None, Advice::Sequential);
        let metadata = random.metadata()?;
        let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        let shown = PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
        Ok(Self { random, sequential, device: Some(shown).filter(|shown| shown.exists()) })
    }
}

/// An open file that is opened again at its path when its device was gone.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    len: u64,
    /// The first block, by which the file is known again.
    head: Vec<u8>,
    handles: RwLock<Arc<Handles>>,
    /// Since when the device is away. Held by the one that looks for it.
    away: Mutex<Option<Instant>>,
}

impl OpenFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let handles = Handles::open(path)?;
        let len = measure(&handles.random)?;
        let head = if handles.device.is_some() { head(&handles.random, len)? } else { Vec::new() };
        let (handles, away) = (RwLock::new(Arc::new(handles)), Mutex::new(None));
        Ok(Self { path: path.to_owned(), len, head, handles, away })
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn handles(&self) -> Arc<Handles> {
        Arc::clone(&self.handles.read())
    }

    /// After a failed read by `used`: whether it is to be made again, since the device was away and the same
    /// file is there again. Waits for it, at most [`PATIENCE`] from when it was missed.
    pub(crate) fn is_back(&self, used: &Arc<Handles>, error: &io::Error) -> bool {
        let is_gone = |handles: &Handles| handles.device.as_ref().is_some_and(|shown| !shown.exists());
        if !GONE.iter().any(|gone| error.raw_os_error() == Some(gone.raw_os_error())) || !is_gone(used) {
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
        loop {
            if let Some(handles) = self.open_same() {
                log::warn!(
                    "{}: its device is back after {} s",
                    self.path.display(),
                    since.elapsed().as_secs()
                );
                *self.handles.write() = Arc::new(handles);
                *away = None;
                return true;
            }
            if since.elapsed() >= PATIENCE {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The file at the path, when it is this one and its device is there.
    fn open_same(&self) -> Option<Handles> {
        let handles = Handles::open(&self.path).ok().filter(|handles| handles.device.is_some())?;
        let is_same =
            measure(&handles.random).ok()? == self.len && head(&handles.random, self.len).ok()? == self.head;
        is_same.then_some(handles)
    }
}

fn head(file: &File, len: u64) -> io::Result<Vec<u8>> {
    let mut head = vec![0; len.min(BLOCK_BYTES) as usize];
    file.read_exact_at(&mut head, 0)?;
    Ok(head)
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
