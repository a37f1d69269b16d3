//! A cache of fetched bytes on disk, by their digest: [`DiskCache`].
//!
//! One folder serves all images and processes of a machine. An entry is a file that is named by the digest of
//! its bytes, in one of 256 folders. So equal chunks of different images are one entry, and no lock is
//! needed:
//!
//! - It is written under another name and then renamed. Nothing is synced: after a crash an entry may be
//!   short or full of zeros. **The reader of an entry verifies it**, and reports a bad one with
//!   [`spoiled`](DiskCache::spoiled). So a bad entry is a miss.
//! - It is bounded: a process that has written a sixteenth of the limit examines all entries, and removes
//!   those that were used least recently until seven eighths of the limit are left. Until then each writer
//!   may exceed the limit by a sixteenth.
//! - It leaves the last twentieth of its file system free, of a large one the last GiB. A full disk is no
//!   error: what cannot be written is fetched again the next time.
//!
//! A [separate thread](writer) writes the files, so that the reader that fetched the bytes waits neither for
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
/// Files that a killed writer has left may be removed after this time.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Bytes that stay free on a large file system.
const RESERVE_BYTES: u64 = 1 << 30;
/// The prefix of unfinished files.
const UNFINISHED: &str = ".new-";

/// The contents of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskCacheUsage {
    /// Entries.
    pub entries: u64,
    /// Bytes that they take on disk.
    pub bytes: u64,
}

/// Counters of a cache for this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskCacheCounts {
    /// Requested entries that were there.
    pub hits: u64,
    /// Requested entries that were not there.
    pub misses: u64,
    /// Entries whose bytes do not have the digest of their name.
    pub spoiled: u64,
}

/// A cache on disk. Dropping it writes what waits to be written.
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
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    /// Entries that this process has seen in the folder.
    known: HashSet<Digest>,
    /// Bytes written since all entries were examined; `None` before the first time.
    written_bytes: Option<u64>,
    unfinished: u64,
    has_complained: bool,
}

impl DiskCache {
    /// Opens the cache in this folder, of at most `limit_bytes`, and makes the folder when it is missing.
    ///
    /// # Errors
    /// When the folder cannot be made, or no thread can be started.
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

    /// Whether there is an entry of this name. It may be bad, or removed in a moment.
    #[must_use]
    pub fn has(&self, digest: &Digest) -> bool {
        self.folder.state.lock().known.contains(digest) || self.folder.entry(digest).exists()
    }

    /// The same of the cache in this folder, which need not be opened.
    #[must_use]
    pub fn is_in(path: &Path, digest: &Digest) -> bool {
        entry_in(path, digest).exists()
    }

    /// Whether there is an entry of this name and length. A crash may have left a shorter one.
    #[must_use]
    pub fn has_whole(&self, digest: &Digest, len: u64) -> bool {
        self.folder.state.lock().known.contains(digest)
            || fs::metadata(self.folder.entry(digest)).is_ok_and(|found| found.len() == len)
    }

    /// The entry of this name, if it is there and has `len` bytes. **They are not verified.**
    #[must_use]
    pub fn get(&self, digest: &Digest, len: u64) -> Option<Vec<u8>> {
        // What waits to be written is there as well: a busy machine writes it late. A wrong entry must not
        // hide behind it, since one that is there is not written again.
        let found = self.folder.read(digest, len).or_else(|| self.writer.find(digest, len));
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

    /// Removes the entry that [`get`](Self::get) returned, because its bytes do not have the digest.
    pub fn spoiled(&self, digest: &Digest) {
        self.spoiled.fetch_add(1, Relaxed);
        self.folder.state.lock().known.remove(digest);
        let path = self.folder.entry(digest);
        log::warn!("{}: it is not what its name says, and is fetched again", path.display());
        let _ = fs::remove_file(path);
    }

    /// Stores verified bytes under their name.
    pub fn put(&self, digest: &Digest, bytes: Bytes) {
        if !self.folder.state.lock().known.insert(*digest) {
            return;
        }
        self.writer.put(Entry { digest: *digest, bytes });
    }

    /// Counters of this process.
    #[must_use]
    pub fn counts(&self) -> DiskCacheCounts {
        DiskCacheCounts {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            spoiled: self.spoiled.load(Relaxed),
        }
    }

    /// The contents of the folder; examines every entry.
    #[must_use]
    pub fn usage_of(path: &Path) -> DiskCacheUsage {
        let found = entries(path);
        DiskCacheUsage { entries: found.len() as u64, bytes: found.iter().map(|entry| entry.bytes).sum() }
    }

    /// Removes entries, those that were used least recently first, until `limit_bytes` are left. Returns what
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
            // Another process may have removed it first.
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
        entry_in(&self.path, digest)
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
            // The entry of another user cannot be marked, which does no harm.
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

    /// A new file in `folder`, with a unique name: caches of this process, and processes with the same number
    /// in other namespaces, may write there as well, and files of a killed process may lie there.
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

    /// Examines all entries when enough was written that they may exceed the limit.
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

/// Where an entry lies.
fn entry_in(folder: &Path, digest: &Digest) -> PathBuf {
    let name = digest.to_string();
    folder.join(&name[..2]).join(name)
}

/// Bytes that stay free on a file system of this size: a twentieth, and on a large one no more than other
/// programs need.
fn reserve_bytes(size_bytes: u64) -> u64 {
    (size_bytes / 20).min(RESERVE_BYTES)
}

/// Makes a folder that is closed to other users: its contents may have been fetched with a login.
fn make_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

struct CachedFile {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// All entries. Removes files that a dead writer has left.
fn entries(path: &Path) -> Vec<CachedFile> {
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
            found.push(CachedFile { path: file.path(), bytes: metadata.blocks() * 512, used });
        }
    }
    found
}

#[cfg(test)]
mod tests;
