//! A mount namespace for a server, whose mounts in one folder are seen outside as well.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, mount_change, mount_move};
use rustix::process::{chdir, chroot};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::LinuxError;
use crate::mounts::MountTable;

/// This process is in a mount namespace of its own, with one folder as its root, and so is what it starts.
/// What is mounted there appears in the folder outside too, until systemd makes that private when it switches
/// to the real root.
///
/// After [`OwnMounts::leave`], what happens outside does not reach it. When systemd 254 and later switch to
/// the real root, they unmount all of an initramfs, bind copies of what lay below `/run`, and remove the
/// folders. A mount whose folder is removed is gone in every namespace, so here the mount of this folder is
/// moved to `/`, which nothing can remove.
#[derive(Debug)]
pub struct OwnMounts {
    outside: File,
    folder: PathBuf,
}

impl OwnMounts {
    /// Enters a new one. `folder` is a mount point, without links in its path.
    ///
    /// # Errors
    /// When the kernel refuses a namespace, or to change the mount.
    pub fn enter(folder: &Path) -> Result<Self, LinuxError> {
        change(folder, MountPropagationFlags::SHARED)?;
        let place = "/proc/self/ns/mnt";
        let failed = |action, path: &str| {
            let path = path.into();
            move |source| LinuxError::Io { action, path, source }
        };
        let outside = File::open(place).map_err(failed("open", place))?;
        // SAFETY: CLONE_NEWNS changes this thread's view of mounts only; no descriptor or memory is affected.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            let source = std::io::Error::last_os_error();
            return Err(LinuxError::Namespace { what: "a mount namespace", source });
        }
        for entry in MountTable::open()?.entries()? {
            // One that lies under another at the same place cannot be named.
            if entry.target != folder
                && let Err(error) = change(&entry.target, MountPropagationFlags::PRIVATE)
            {
                log::debug!("{error}");
            }
        }
        chdir(folder)
            .and_then(|()| mount_move(folder, "/"))
            .and_then(|()| chroot("."))
            .map_err(|errno| failed("make a root of", &folder.to_string_lossy())(errno.into()))?;
        Ok(Self { outside, folder: folder.to_owned() })
    }

    /// Goes back, to the root of the namespace outside. From now on nothing that happens to the mounts there
    /// reaches those within.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn leave(self) -> Result<(), LinuxError> {
        let what = "the mount namespace before";
        move_into_link_name_space(self.outside.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(|errno| LinuxError::Namespace { what, source: errno.into() })?;
        change(&self.folder, MountPropagationFlags::DOWNSTREAM)
    }
}

fn change(target: &Path, to: MountPropagationFlags) -> Result<(), LinuxError> {
    mount_change(target, to).map_err(|errno| LinuxError::Io {
        action: "change what is shared of",
        path: target.into(),
        source: errno.into(),
    })
}
