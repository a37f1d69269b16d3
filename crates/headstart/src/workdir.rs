//! A place for mounts that nobody else sees.

use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::mount::{MountFlags, UnmountFlags};

/// Folders that every system has and that a start does not need; the first that exists is covered,
/// in this process's own mount namespace only.
const PLACES: [&str; 4] = ["/mnt", "/media", "/srv", "/opt"];

/// A tmpfs in this process's own mount namespace. It has no name that anybody else sees, so nothing
/// of it is left behind, however the process ends.
pub(crate) struct Workdir {
    path: PathBuf,
}

impl Workdir {
    /// Covers a folder with a tmpfs. Only after `enter_private_mounts`.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let place = PLACES.iter().map(Path::new).find(|place| place.is_dir());
        let path = place.context("none of /mnt, /media, /srv and /opt exists to mount on")?.to_owned();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("headstart", &path, "tmpfs", flags, None)
            .with_context(|| format!("mount a tmpfs at {}", path.display()))?;
        Ok(Self { path })
    }

    /// Makes a folder in it.
    pub(crate) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
    }
}
