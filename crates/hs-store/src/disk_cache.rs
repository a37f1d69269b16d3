//! Bytes that were fetched once, kept on disk by their digest: [`DiskCache`].
//!
//! One folder serves all images and processes of a machine. An entry is a file that is named by the digest of
//! its bytes, in one of 256 folders, so equal chunks of different images are one entry and nobody needs a
//! lock:
//!
//! - It is written under another name and then renamed. Nothing is synced: after a crash an entry may be
//!   short or full of zeros. **Who reads an entry verifies it**, and says when it is
//!   [`spoiled`](DiskCache::spoiled). So a bad entry is a miss.
//! - It is bounded: whoever has written a sixteenth of the limit looks at all entries, and removes those that
//!   were used least recently until seven eighths of the limit are left. Several writers may exceed it by a
//!   sixteenth each until then.
//! - It leaves the last twentieth of its file system free, of a large one the last GiB. A disk that is full
//!   is no error: what cannot be written is fetched again the next time.
//!
//! Files are written by a [thread of its own](writer), so that whoever fetched the bytes waits neither for
//! the disk nor for the processor.

mod writer;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hs_units::Digest;
use parking_lot::Mutex;

use self::writer::{Entry, Writer};

/// How old the mark of an entry's last use may be before it is renewed. Finer marks would cost a write for
/// each read.
const MARK_EVERY: Duration = Duration::from_secs(600);
/// What a writer that was killed has left may be removed after so long.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Bytes that stay free on a large file system.
const RESERVE_BYTES: u64 = 1 << 30;
/// What unfinished files are called.
const UNFINISHED: &str = ".new-";

/// What lies in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskCacheUsage {
    /// Entries.
    pub entries: u64,
    /// Bytes that they take on disk.
    pub bytes: u64,
}

/// What a cache did for this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskCacheCounts {
    /// Entries that were asked for and there.
    pub hits: u64,
    /// Entries that were asked for and not there.
    pub misses: u64,
    /// Entries that were not what their names say.
    pub spoiled: u64,
}

/// A cache on disk. When it is dropped, what waits to be written is.
pub struct DiskCache {
    folder: Arc<Folder>,
    hits: AtomicU64,
    misses: AtomicU64,
    spoiled: AtomicU64,
    writer: Writer,
}

struct Folder {
    path: PathBuf,
    limit_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Entries that this process has seen there.
    known: HashSet<Digest>,
    /// Bytes written since all entries were looked at; none yet at first.
    written_bytes: Option<u64>,
    unfinished: u64,
    has_complained: bool,
}

impl DiskCache {
    /// The cache in this folder, which is made when it is not there, of `limit_bytes` at most.
    ///
    /// # Errors
    /// When the folder cannot be made, or no thread started.
    pub fn open(path: &Path, limit_bytes: u64) -> io::Result<Arc<Self>> {
        make_private(path)?;
        let folder = Arc::new(Folder { path: path.to_owned(), limit_bytes, state: Mutex::default() });
        let writer = Writer::start(&folder)?;
        Ok(Arc::new(Self {
            folder,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            spoiled: AtomicU64::new(0),
            writer,
        }))
    }

    /// Whether there is an entry of this name. It may be spoiled, or gone in a moment.
    #[must_use]
    pub fn has(&self, digest: &Digest) -> bool {
        self.folder.state.lock().known.contains(digest) || self.folder.entry(digest).exists()
    }

    /// The entry of this name, if it is there and has `len` bytes. **They are not verified.**
    #[must_use]
    pub fn get(&self, digest: &Digest, len: u64) -> Option<Vec<u8>> {
        let found = self.folder.read(digest, len);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Relaxed);
        let mut state = self.folder.state.lock();
        if found.is_some() {
            state.known.insert(*digest);
        } else {
            state.known.remove(digest);
        }
        drop(state);
        found
    }

    /// The entry that [`get`](Self::get) gave is not what its name says: it goes.
    pub fn spoiled(&self, digest: &Digest) {
        self.spoiled.fetch_add(1, Relaxed);
        self.folder.state.lock().known.remove(digest);
        let path = self.folder.entry(digest);
        log::warn!("{}: it is not what its name says, and is fetched again", path.display());
        let _ = fs::remove_file(path);
    }

    /// Keeps verified bytes under their name.
    pub fn put(&self, digest: &Digest, bytes: Bytes) {
        if !self.folder.state.lock().known.insert(*digest) {
            return;
        }
        self.writer.put(Entry { digest: *digest, bytes });
    }

    /// What this process asked for.
    #[must_use]
    pub fn counts(&self) -> DiskCacheCounts {
        DiskCacheCounts {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            spoiled: self.spoiled.load(Relaxed),
        }
    }

    /// What lies in the folder; looks at every entry.
    #[must_use]
    pub fn usage_of(path: &Path) -> DiskCacheUsage {
        let found = entries(path);
        DiskCacheUsage { entries: found.len() as u64, bytes: found.iter().map(|entry| entry.bytes).sum() }
    }

    /// Removes entries, those that were used least recently first, until `limit_bytes` are left. Gives what
    /// is left.
    pub fn shrink(path: &Path, limit_bytes: u64) -> DiskCacheUsage {
        let mut found = entries(path);
        found.sort_by_key(|entry| entry.used);
        let mut usage = DiskCacheUsage {
            entries: found.len() as u64,
            bytes: found.iter().map(|entry| entry.bytes).sum(),
        };
        for entry in found {
            if usage.bytes <= limit_bytes {
                break;
            }
            // Somebody else may have been quicker.
            if fs::remove_file(&entry.path).is_ok() {
                usage.entries -= 1;
                usage.bytes -= entry.bytes;
            }
        }
        usage
    }
}

impl Folder {
    fn entry(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        self.path.join(&name[..2]).join(name)
    }

    fn read(&self, digest: &Digest, len: u64) -> Option<Vec<u8>> {
        let mut file = File::open(self.entry(digest)).ok()?;
        let metadata = file.metadata().ok()?;
        if metadata.len() != len {
            return None;
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact(&mut bytes).ok()?;
        let now = SystemTime::now();
        let age = metadata.modified().ok().and_then(|used| now.duration_since(used).ok());
        if age.is_some_and(|age| age > MARK_EVERY) {
            // Somebody else's entry cannot be marked, and is none the worse for it.
            let _ = file.set_modified(now);
        }
        Some(bytes)
    }

    fn write(&self, entry: &Entry) {
        if self.limit_bytes == 0 {
            return;
        }
        match self.try_write(entry) {
            Ok(()) => self.written(entry.bytes.len() as u64),
            Err(error) => {
                let mut state = self.state.lock();
                state.known.remove(&entry.digest);
                if !std::mem::replace(&mut state.has_complained, true) {
                    log::warn!("{}: {error}: what is fetched is not kept", self.path.display());
                }
            }
        }
    }

    fn try_write(&self, entry: &Entry) -> io::Result<()> {
        let place = self.entry(&entry.digest);
        if fs::metadata(&place).is_ok_and(|there| there.len() == entry.bytes.len() as u64) {
            return Ok(());
        }
        let (mut file, unfinished) = self.begin(place.parent().unwrap_or(&self.path))?;
        file.write_all(&entry.bytes).and_then(|()| fs::rename(&unfinished, &place)).inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        })
    }

    /// A new file in `folder`. Its name is nobody else's: caches of this process, and processes with the same
    /// number in other namespaces, may write there as well, and what a killed one has left may lie there.
    fn begin(&self, folder: &Path) -> io::Result<(File, PathBuf)> {
        let mut made = false;
        loop {
            let number = {
                let mut state = self.state.lock();
                state.unfinished += 1;
                state.unfinished
            };
            if number % 64 == 1 {
                self.leave_room()?;
            }
            let path = folder.join(format!("{UNFINISHED}{}-{number}", std::process::id()));
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok((file, path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && !made => {
                    make_private(folder)?;
                    made = true;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Refuses to take the last bytes of the file system.
    fn leave_room(&self) -> io::Result<()> {
        let system = rustix::fs::statvfs(&self.path)?;
        let [size, free] =
            [system.f_blocks, system.f_bavail].map(|blocks| blocks.saturating_mul(system.f_frsize));
        if free < reserve_bytes(size) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// Looks at all entries when so much was written that they may be too many.
    fn written(&self, bytes: u64) {
        let is_due = {
            let mut state = self.state.lock();
            let written = state.written_bytes.map(|written| written + bytes);
            let is_due = written.is_none_or(|written| written > self.limit_bytes / 16);
            state.written_bytes = Some(if is_due { 0 } else { written.unwrap_or(0) });
            is_due
        };
        if is_due && DiskCache::usage_of(&self.path).bytes > self.limit_bytes {
            DiskCache::shrink(&self.path, self.limit_bytes / 8 * 7);
            self.state.lock().known.clear();
        }
    }
}

/// Bytes that stay free on a file system of this size: a twentieth, and of a large one no more than others
/// need to go on.
fn reserve_bytes(size_bytes: u64) -> u64 {
    (size_bytes / 20).min(RESERVE_BYTES)
}

/// Makes a folder that is closed to others: what is kept may have been fetched with a login.
fn make_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

struct Found {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// All entries. What a writer that died has left is removed.
fn entries(path: &Path) -> Vec<Found> {
    let list = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let is_ours = |name: &str| name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let folders = list(path).filter(|folder| folder.file_name().to_str().is_some_and(is_ours));
    let mut found = Vec::new();
    for file in folders.flat_map(|folder| list(&folder.path())) {
        let Ok(metadata) = file.metadata() else { continue };
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let is_old = SystemTime::now().duration_since(used).is_ok_and(|age| age > ABANDONED);
        if file.file_name().to_str().is_some_and(|name| name.starts_with(UNFINISHED)) {
            if is_old {
                let _ = fs::remove_file(file.path());
            }
        } else if metadata.is_file() {
            found.push(Found { path: file.path(), bytes: metadata.blocks() * 512, used });
        }
    }
    found
}

#[cfg(test)]
mod tests;
