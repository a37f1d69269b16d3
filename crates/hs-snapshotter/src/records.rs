//! The folder of a snapshotter, and the file in it that has the snapshots.
//!
//! ```text
//! FOLDER/lock               locked while a snapshotter uses the folder
//!        snapshots.json     all snapshots
//!        reserve            room for the next removal, should the disk be full
//!        images.json        which image has which layers: the table
//!        snapshots/ID/fs    files of a snapshot, and work for overlayfs
//!        images/KEY/disk    where an image is mounted: its disk, and its tree
//!                   tree
//!        built/ID.hsi       an image of the layers of one snapshot, which another image has too
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::snapshots::Snapshots;

/// The version of the files in the folder.
const VERSION: u32 = 1;
/// Room that is kept for writing the snapshots, at least.
const RESERVE_BYTES: u64 = 64 << 10;
/// The most bytes of one of these files.
const MOST_BYTES: u64 = 256 << 20;

/// How often, and how long apart, a locked folder is tried.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// The folder, locked.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    content: T,
}

impl Folder {
    /// Makes it where it is missing, and locks it.
    pub(crate) fn lock(path: &Path) -> anyhow::Result<Self> {
        let make = |path: &Path| {
            let made = fs::DirBuilder::new().recursive(true).mode(0o711).create(path);
            made.with_context(|| format!("make {}", path.display()))
        };
        make(path)?;
        let path = path.canonicalize().with_context(|| format!("look at {}", path.display()))?;
        let name = path.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&name);
        let lock = lock.with_context(|| format!("open {}", name.display()))?;
        match lock_soon(&lock) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another snapshotter uses {}: end it, or choose another --root", path.display())
            }
            Err(error) => return Err(error).with_context(|| format!("lock {}", name.display())),
        }
        make(&path.join("snapshots"))?;
        make(&path.join("images"))?;
        make(&path.join("built"))?;
        let folder = Self { path, _lock: lock };
        folder.make_reserve();
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of snapshots' folders.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.path.join("snapshots")
    }

    /// The folder of one snapshot.
    pub(crate) fn snapshot(&self, id: u64) -> PathBuf {
        self.snapshots().join(id.to_string())
    }

    /// The image that is built for the layers of one snapshot.
    pub(crate) fn built(&self, id: u64) -> PathBuf {
        self.path.join("built").join(format!("{id}.hsi"))
    }

    /// All that are there.
    pub(crate) fn all_built(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path.join("built")).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "hsi"))
            .collect()
    }

    /// The snapshots, as they were when the file was last written.
    pub(crate) fn load(&self) -> anyhow::Result<Snapshots> {
        let path = self.file();
        let snapshots: Snapshots = read(&path)?.unwrap_or_default();
        snapshots.check().map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        Ok(snapshots)
    }

    /// Writes them: after a crash the file has either these or those before.
    pub(crate) fn store(&self, snapshots: &Snapshots) -> anyhow::Result<()> {
        write(&self.file(), snapshots)
    }

    /// Writes them when some were removed, on a full disk too: their files go only afterwards.
    pub(crate) fn store_removal(&self, snapshots: &Snapshots) -> anyhow::Result<()> {
        let Err(error) = self.store(snapshots) else { return Ok(()) };
        log::debug!("{error:#}; the reserve is used");
        if let Err(missing) = fs::remove_file(self.reserve()) {
            log::debug!("there is no reserve: {missing}");
        }
        self.store(snapshots)
    }

    /// Takes room for the next removal, where there is any.
    pub(crate) fn make_reserve(&self) {
        let length = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        let (path, bytes) = (self.reserve(), RESERVE_BYTES.max(2 * length(&self.file())));
        if length(&path) >= bytes {
            return;
        }
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let made = file.and_then(|file| Ok(fallocate(&file, FallocateFlags::empty(), 0, bytes)?));
        if let Err(error) = made {
            log::debug!("{}: no room is kept: {error}", path.display());
            let _ = fs::remove_file(&path);
        }
    }

    fn reserve(&self) -> PathBuf {
        self.path.join("reserve")
    }

    fn file(&self) -> PathBuf {
        self.path.join("snapshots.json")
    }
}

/// What a file has, if there is one.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    let shown = || format!("read {}", path.display());
    let length = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found.with_context(shown)?.len(),
    };
    if length > MOST_BYTES {
        bail!("{} has {length} bytes, more than a snapshotter writes", path.display());
    }
    let bytes = fs::read(path).with_context(shown)?;
    let read: Versioned<T> = serde_json::from_slice(&bytes).with_context(shown)?;
    if read.version != VERSION {
        bail!("{} is of version {}, which this program does not read", path.display(), read.version);
    }
    Ok(Some(read.content))
}

/// Writes a file so that it has the new content or the old, also after a power cut.
pub(crate) fn write<T: Serialize>(path: &Path, content: &T) -> anyhow::Result<()> {
    let bytes = serde_json::to_vec(&Versioned { version: VERSION, content })?;
    hs_output::whole_file::write_private(path, &bytes)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| format!("sync {}", folder.display()))
}

/// Locks it, if that can be done soon: the kernel may still take down one that was killed.
fn lock_soon(file: &File) -> rustix::io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::{Asked, Kind, Labels};

    #[test]
    fn what_was_stored_is_loaded_and_two_do_not_share_a_folder() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::lock(&place.path().join("a")).expect("locked");
        let mut snapshots = folder.load().expect("nothing yet");
        let labels = Labels::new();
        let asked = Asked { name: "n", labels: &labels, now_ns: 7 };
        snapshots.prepare(Kind::Active, None, &asked).expect("one");
        folder.store(&snapshots).expect("stored");
        assert_eq!(folder.load().expect("loaded"), snapshots);
        let refused = Folder::lock(&place.path().join("a")).err().expect("refused").to_string();
        assert!(refused.contains("another snapshotter uses"), "{refused}");
    }

    #[test]
    fn files_that_were_damaged_are_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::lock(place.path()).expect("locked");
        for text in [
            "",
            "{",
            r#"{"version":2,"content":{"last_id":0,"by_name":{}}}"#,
            r#"{"version":1,"content":{"last_id":0,"by_name":{"a":{"id":1}}}}"#,
            // A snapshot that is its own parent.
            r#"{"version":1,"content":{"last_id":1,"by_name":{"a":{"id":1,"parent":"a","kind":"committed",
                "content":"files","created_ns":0,"updated_ns":0,"labels":{},
                "usage":{"size_bytes":0,"inodes":0}}}}}"#,
        ] {
            fs::write(folder.file(), text).expect("written");
            assert!(folder.load().is_err(), "{text}");
        }
    }
}
