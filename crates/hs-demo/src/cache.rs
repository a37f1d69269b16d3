//! The folder where the root and the images are kept for the next time.
//!
//! Everything is first made under `unfinished/` and moved when it is complete, so an incomplete file never
//! has a final name. Each result has a stamp, a text that says from what and how it was made. When the wanted
//! stamp differs, the result is made again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::FlockOperation;

/// The folder, held by one demo at a time.
pub(super) struct Cache {
    dir: PathBuf,
    /// Locked as long as it is open, and freed by the kernel however this process ends.
    lock: File,
}

impl Cache {
    /// Opens `dir`, making it if need be, and clears away what an earlier demo did not finish.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let dir = dir.canonicalize().with_context(|| format!("look at {}", dir.display()))?;
        let path = dir.join("lock");
        let lock = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another demo is using {}: wait for it, or give another --cache", dir.display())
            }
            Err(error) => return Err(error).with_context(|| format!("lock {}", path.display())),
        }
        let cache = Self { dir, lock };
        let unfinished = cache.unfinished();
        remove(&unfinished).with_context(|| format!("remove {}", unfinished.display()))?;
        fs::create_dir(&unfinished).with_context(|| format!("create {}", unfinished.display()))?;
        Ok(cache)
    }

    /// Where it is.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where things lie until they are complete.
    pub(super) fn unfinished(&self) -> PathBuf {
        self.dir.join("unfinished")
    }

    /// Where `name` lies when it is complete.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Where `name` is to be made.
    pub(super) fn draft(&self, name: &str) -> PathBuf {
        self.unfinished().join(name)
    }

    /// Whether `name` is there and was made as `stamp` says.
    pub(super) fn has(&self, name: &str, stamp: &str) -> bool {
        self.path(name).exists() && self.stamp(name).is_some_and(|found| found == stamp)
    }

    /// From what and how `name` was made; `None` when it is not known.
    pub(super) fn stamp(&self, name: &str) -> Option<String> {
        stamp_in(&self.dir, name)
    }

    /// Moves the complete draft of `name` to its place, where it replaces an older one.
    pub(super) fn keep(&self, name: &str, stamp: &str) -> anyhow::Result<()> {
        let (path, stamp_path) = (self.path(name), self.stamp_path(name));
        let context = || format!("keep {}", path.display());
        // Without its stamp the old one does not count any more, wherever this stops.
        remove(&stamp_path).and_then(|()| remove(&path)).with_context(context)?;
        fs::rename(self.draft(name), &path).with_context(context)?;
        // Others may be kept at the same time.
        let draft = self.draft(&format!("{name}.stamp"));
        fs::write(&draft, stamp).and_then(|()| fs::rename(&draft, stamp_path)).with_context(context)
    }

    /// Free bytes for results that are still to be made.
    pub(super) fn free_bytes(&self) -> anyhow::Result<u64> {
        let found =
            rustix::fs::statvfs(&self.dir).with_context(|| format!("ask about {}", self.dir.display()))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn stamp_path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.stamp"))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.unfinished()) {
            log::warn!("cannot remove {}: {error}", self.unfinished().display());
        }
        // Closing alone would leave it to any child that is between its fork and its exec.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

/// As [`Cache::stamp`], of a cache in `dir` that another process may hold.
pub(super) fn stamp_in(dir: &Path, name: &str) -> Option<String> {
    fs::read_to_string(dir.join(format!("{name}.stamp"))).ok()
}

/// Removes a file or a whole folder; one that is not there is removed already.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_complete_and_made_as_wanted_counts() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        assert!(!cache.has("a", "v1"));
        fs::write(cache.draft("a"), "old").unwrap();
        assert!(!cache.has("a", "v1"));
        cache.keep("a", "v1").unwrap();
        assert!(cache.has("a", "v1") && !cache.has("a", "v2"));
        fs::create_dir(cache.draft("a")).unwrap();
        cache.keep("a", "v2").unwrap();
        assert!(cache.has("a", "v2") && cache.path("a").is_dir());
    }

    #[test]
    fn a_cache_is_held_by_one_and_leftovers_go() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("unfinished/root")).unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        assert!(!cache.draft("root").exists());
        let error = Cache::open(folder.path()).err().expect("it is held").to_string();
        assert!(error.contains("another demo"), "{error}");
        drop(cache);
        assert!(!folder.path().join("unfinished").exists());
        assert!(Cache::open(folder.path()).is_ok());
    }
}
