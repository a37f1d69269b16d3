//! A place for mounts that no other process sees.

use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::mount::{MountFlags, UnmountFlags};

/// Folders that every system has and that a start does not need; one is covered, in this process's own mount
/// namespace only.
const PLACES: [&str; 4] = ["/mnt", "/media", "/srv", "/opt"];

/// A tmpfs in this process's own mount namespace. No other process sees a name of it, so nothing of it is
/// left behind, however the process ends.
pub struct Workdir {
    path: PathBuf,
}

impl Workdir {
    /// Covers a folder with a tmpfs, one in which nothing of `needed` lies: what is covered cannot be opened
    /// any more. Only after `enter_private_mounts`.
    pub fn new(needed: &[PathBuf]) -> anyhow::Result<Self> {
        let place = PLACES.iter().map(Path::new).find(|place| place.is_dir() && is_free(place, needed));
        let path = place
            .context("each of /mnt, /media, /srv and /opt is missing, or holds something that is needed: one is mounted on")?
            .to_owned();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("headstart", &path, "tmpfs", flags, None)
            .with_context(|| format!("mount a tmpfs at {}", path.display()))?;
        Ok(Self { path })
    }

    /// Makes a folder in it.
    pub fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
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

/// Whether nothing of `needed` lies in `place`, by its name or by where its links lead.
fn is_free(place: &Path, needed: &[PathBuf]) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let place = (place, real(place));
    needed.iter().all(|path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        !path.starts_with(place.0) && !real(&path).starts_with(&place.1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_not_covered() {
        let folder = tempfile::tempdir().expect("a folder");
        let (place, other) = (folder.path().join("place"), folder.path().join("other"));
        std::fs::create_dir(&place).expect("a folder");
        std::fs::create_dir(&other).expect("a folder");
        std::fs::write(place.join("file"), "").expect("written");
        std::os::unix::fs::symlink(place.join("file"), other.join("link")).expect("a link");
        std::os::unix::fs::symlink(&place, folder.path().join("alias")).expect("a link");
        let is_free = |needed: &[&Path]| {
            super::is_free(&place, &needed.iter().map(|path| path.to_path_buf()).collect::<Vec<_>>())
        };
        assert!(is_free(&[]));
        assert!(is_free(&[&other, &folder.path().join("place2"), Path::new("x")]));
        assert!(!is_free(&[&other, &place.join("file")]));
        assert!(!is_free(&[&place.join("not yet")]));
        assert!(!is_free(&[&other.join("link")]));
        assert!(!is_free(&[&folder.path().join("alias/file")]));
    }
}
