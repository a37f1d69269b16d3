//! A separate root for the program that runs a guest. A guest that has broken out of its VMM is then a user
//! that owns nothing, in a root that contains only what the VMM needs, each file at its usual path.
//!
//! ```text
//! tmpfs, read-only ── program, libraries, kernel   (read-only)
//!                  ├─ disk.img, or a socket        (the guest's user may open it)
//!                  ├─ scratch, memory              (the guest's user's own)
//!                  ├─ /dev/null …                  (and /dev/kvm, if it is to be used)
//!                  └─ /proc                        (of its own PID namespace)
//! ```

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use hs_linux::rootenv::{JailUser, in_user_namespace};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount};

use crate::{GuestError, libraries};

/// The first of the user ids of guests: systemd.io's list of user ids (UIDS-GIDS) leaves those from here to
/// 2³¹ − 1 unused. A process number, at most 2²², is added, so two guests never have the same id.
const FIRST_USER: u32 = 1_879_048_192;
/// Where there are no such ids, for example in a container, the last of the usual range of 2¹⁶ before
/// `nobody`.
const LAST_OF_A_RANGE: u32 = 65_533;
/// Devices that give no access to the machine.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Folders in the root, and copies of kernels that only their owner may read.
const ROOT_BYTES: u64 = 512 << 20;

/// A file of this machine that a VMM needs, at its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JailEntry {
    /// A program, with the libraries that it is linked to.
    Program(PathBuf),
    /// A file that it reads. If only its owner may read it, it is copied.
    File(PathBuf),
    /// A folder with files that it reads, if there is such a folder.
    Folder(PathBuf),
    /// The disk: a file that [`user`] may read.
    Disk(PathBuf),
    /// A socket that it connects to; the guest becomes its owner.
    Socket(PathBuf),
    /// A folder that it writes to; the guest becomes its owner.
    Own(PathBuf),
    /// A device in `/dev`.
    Device(&'static str),
}

/// The user id of the guests of this process, which no other process uses.
#[must_use]
pub fn user() -> JailUser {
    let of_its_own = FIRST_USER.checked_add(std::process::id());
    let exists = |id: &u32| ["uid_map", "gid_map"].iter().all(|map| is_mapped(map, *id));
    let id = of_its_own.into_iter().chain([LAST_OF_A_RANGE]).find(exists);
    JailUser { id, ..JailUser::default() }
}

/// The group that may use a device, if it is not root's.
#[must_use]
pub fn group_of(device: &str) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(Path::new("/dev").join(device)).ok()?;
    (metadata.mode() & 0o060 == 0o060).then(|| metadata.gid()).filter(|gid| *gid != 0)
}

fn is_mapped(map: &str, id: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/self/{map}")).unwrap_or_default();
    text.lines().any(|line| {
        let numbers: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if id.checked_sub(first).is_some_and(|behind| behind < count))
    })
}

/// The mounted root. Dropping it unmounts and removes it.
#[derive(Debug)]
pub(crate) struct Jail {
    root: PathBuf,
    user: Option<u32>,
    /// Folders of libraries, for the program's loader: its own list of them is not in the root.
    libraries: BTreeSet<PathBuf>,
}

impl Jail {
    /// Mounts a root with all of `entries` in a folder that it makes in `place`.
    pub(crate) fn new(place: &Path, user: &JailUser, entries: &[JailEntry]) -> Result<Self, GuestError> {
        let root = place.join("root");
        fs::create_dir_all(&root).map_err(failed("make", &root))?;
        let options = format!("mode=755,size={ROOT_BYTES}\0");
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap_or(c"mode=755");
        mount("headstart", &root, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options)
            .map_err(failed_to("mount", &root))?;
        // From here on, Drop removes it.
        let mut jail = Self { root, user: user.id, libraries: BTreeSet::new() };
        for folder in ["/proc", "/dev"] {
            jail.folder_for(Path::new(folder))?;
        }
        for device in DEVICES {
            jail.add(&JailEntry::Device(device))?;
        }
        for entry in entries {
            jail.add(entry)?;
        }
        read_only(&jail.root, MountFlags::empty())?;
        Ok(jail)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Further variables for the program's environment.
    pub(crate) fn environment(&self) -> Option<(OsString, OsString)> {
        let folders = std::env::join_paths(&self.libraries).ok()?;
        (!folders.is_empty()).then(|| ("LD_LIBRARY_PATH".into(), folders))
    }

    fn add(&mut self, entry: &JailEntry) -> Result<(), GuestError> {
        match entry {
            JailEntry::Program(path) => {
                self.file(path)?;
                for library in libraries::of(path) {
                    self.libraries.extend(library.parent().map(Path::to_owned));
                    self.file(&library)?;
                }
                Ok(())
            }
            JailEntry::File(path) => self.file(path),
            JailEntry::Folder(path) if path.is_dir() => {
                let inside = self.folder_for(path)?;
                bind(path, &inside)?;
                read_only(&inside, MountFlags::NODEV)
            }
            JailEntry::Folder(_) => Ok(()),
            JailEntry::Disk(path) => bind(path, &self.file_for(path)?),
            JailEntry::Socket(path) => {
                self.give(path)?;
                bind(path, &self.file_for(path)?)
            }
            JailEntry::Own(path) => {
                self.give(path)?;
                bind(path, &self.folder_for(path)?)
            }
            JailEntry::Device(name) => {
                let path = Path::new("/dev").join(name);
                if path.exists() { bind(&path, &self.file_for(&path)?) } else { Ok(()) }
            }
        }
    }

    fn file(&self, path: &Path) -> Result<(), GuestError> {
        let inside = self.file_for(path)?;
        let mode = fs::metadata(path).map_err(failed("look at", path))?.permissions().mode();
        if mode & 0o004 == 0 {
            fs::copy(path, &inside).map_err(failed("copy", path))?;
            let all = if mode & 0o100 == 0 { 0o444 } else { 0o555 };
            return fs::set_permissions(&inside, fs::Permissions::from_mode(all))
                .map_err(failed("set up", path));
        }
        bind(path, &inside)?;
        read_only(&inside, MountFlags::NODEV)
    }

    fn give(&self, path: &Path) -> Result<(), GuestError> {
        self.user.map_or(Ok(()), |id| chown(path, Some(id), Some(id)).map_err(failed("give away", path)))
    }

    /// An empty folder for what is at `path` outside.
    fn folder_for(&self, path: &Path) -> Result<PathBuf, GuestError> {
        let mut inside = self.root.clone();
        for name in path.strip_prefix("/").unwrap_or(path) {
            inside.push(name);
            match fs::create_dir(&inside) {
                // The guest's user may enter it, whatever this process's umask is.
                Ok(()) => fs::set_permissions(&inside, fs::Permissions::from_mode(0o755)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error),
            }
            .map_err(failed("make", &inside))?;
        }
        Ok(inside)
    }

    /// An empty file for what is at `path` outside.
    fn file_for(&self, path: &Path) -> Result<PathBuf, GuestError> {
        let folder = self.folder_for(path.parent().unwrap_or(Path::new("/")))?;
        let inside = folder.join(path.file_name().unwrap_or(OsStr::new("file")));
        fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&inside)
            .map_err(failed("make", &inside))?;
        Ok(inside)
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        if let Err(errno) = rustix::mount::unmount(&self.root, flags) {
            log::error!("cannot unmount {}: {errno}", self.root.display());
        }
    }
}

fn bind(path: &Path, inside: &Path) -> Result<(), GuestError> {
    mount_bind(path, inside).map_err(failed_to("bind", path))
}

/// In a user namespace the mount flags from outside may not be changed; there, the flags that the mount
/// already has are kept.
fn read_only(inside: &Path, further: MountFlags) -> Result<(), GuestError> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | further;
    match mount_remount(inside, flags, "") {
        Err(Errno::PERM) if in_user_namespace() => Ok(()),
        done => done.map_err(failed_to("protect", inside)),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GuestError {
    let path = path.to_owned();
    move |source| GuestError::Jail { action, path, source }
}

fn failed_to(action: &'static str, path: &Path) -> impl FnOnce(Errno) -> GuestError {
    let failed = failed(action, path);
    move |errno| failed(errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_a_user_that_exists_and_is_nobody_elses() {
        let JailUser { id, groups, .. } = user();
        assert!(groups.is_empty() && id != Some(0));
        // Root outside of a user namespace has all ids.
        let all = fs::read_to_string("/proc/self/uid_map").unwrap().contains("4294967295");
        assert!(!all || id.is_some_and(|id| id > FIRST_USER && id < 1 << 31), "{id:?}");
    }
}
