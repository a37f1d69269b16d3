//! Mount points: looking them up, checking them, taking them down.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::LinuxError;

/// How often, and how long in all, a busy file system is asked to go before it is detached: what
/// keeps it busy for a moment is the kernel letting go of a loop device.
const BUSY_TRIES: u32 = 40;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// One line of `/proc/self/mountinfo`, as far as it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Major number of the device, 0 for FUSE.
    pub major: u32,
    /// Minor number of the device; for FUSE the number of the connection.
    pub minor: u32,
    /// Where it is mounted.
    pub target: PathBuf,
    /// Type of the file system, with its subtype (`fuse.headstart`).
    pub kind: String,
    /// What it was mounted from: a device, a file, or a word.
    pub source: PathBuf,
    /// Whether the file system may be written to, by any of its mounts.
    pub is_writable: bool,
}

/// This process's table of mounts, and notification of its changes. Paths in it are bytes: a mount whose name
/// is not UTF-8 must not make other mounts fail.
#[derive(Debug)]
pub struct MountTable(fs::File);

impl MountTable {
    const PATH: &str = "/proc/self/mountinfo";

    /// Opens it. From then on the kernel notifies of every change.
    ///
    /// # Errors
    /// When there is no /proc.
    pub fn open() -> Result<Self, LinuxError> {
        fs::File::open(Self::PATH).map(Self).map_err(Self::failed("open"))
    }

    /// Whether something is mounted on exactly `target` (an absolute path without links).
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn has(&mut self, target: &Path) -> Result<bool, LinuxError> {
        Ok(self.entries()?.iter().any(|entry| entry.target == target))
    }

    /// The kernel raises an error condition here when the table has changed since it was read.
    #[must_use]
    pub fn changes(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::PRI)
    }

    /// All mounts, what is on top last.
    pub fn entries(&mut self) -> Result<Vec<MountEntry>, LinuxError> {
        let mut text = Vec::new();
        self.0.rewind().and_then(|()| self.0.read_to_end(&mut text)).map_err(Self::failed("read"))?;
        Ok(text.split(|&byte| byte == b'\n').filter_map(parse_entry).collect())
    }

    /// Waits until nothing is mounted on `target` any more; false when something still is after `patience`.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn wait_until_gone(&mut self, target: &Path, patience: Duration) -> Result<bool, LinuxError> {
        let end = Instant::now() + patience;
        while self.has(target)? {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(timeout) = Timespec::try_from(left) else { return Ok(false) };
            if left.is_zero() {
                return Ok(false);
            }
            match poll(&mut [self.changes()], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(LinuxError::io("wait for a change of", Self::PATH)(errno)),
            }
        }
        Ok(true)
    }

    fn failed(action: &'static str) -> impl FnOnce(io::Error) -> LinuxError {
        LinuxError::io(action, Self::PATH)
    }
}

/// What is mounted on exactly `target` (an absolute path without links), topmost.
pub fn mounted_at(target: &Path) -> Result<Option<MountEntry>, LinuxError> {
    let entries = MountTable::open()?.entries()?;
    Ok(entries.into_iter().rfind(|entry| entry.target == target))
}

/// Checks that `directory` can be mounted on, and returns its path without links.
pub fn check_mount_point(directory: &Path) -> Result<PathBuf, LinuxError> {
    let path = directory.to_path_buf();
    let target = match fs::canonicalize(directory) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(LinuxError::MountPointMissing { path });
        }
        // What a dead FUSE mount says.
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            return Err(LinuxError::MountPointDead { path });
        }
        Err(source) => return Err(LinuxError::Io { action: "look at", path, source }),
    };
    if let Some(entry) = mounted_at(&target)? {
        // Requests to a dead mount fail with ENOTCONN, except those that the kernel answers itself.
        return match fs::metadata(&target) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                Err(LinuxError::MountPointDead { path })
            }
            _ => Err(LinuxError::MountPointTaken { path, file_system: entry.kind }),
        };
    }
    match fs::metadata(&target) {
        Ok(metadata) if metadata.is_dir() => match fs::read_dir(&target).map(|mut entries| entries.next()) {
            Ok(None) => Ok(target),
            Ok(Some(_)) => Err(LinuxError::MountPointNotEmpty { path }),
            Err(source) => Err(LinuxError::Io { action: "look at", path, source }),
        },
        Ok(_) => Err(LinuxError::MountPointNotDirectory { path }),
        Err(source) => Err(LinuxError::Io { action: "look at", path, source }),
    }
}

/// Unmounts what a killed server has left: the disk at `dir`, if it has no server any more, and, before it,
/// the file system at `fs`, if a loop device reads it from there. True when there was something. Other mounts
/// there stay.
///
/// # Errors
/// When the table of mounts cannot be read, or the kernel keeps them (only root may).
pub fn clear_dead(dir: &Path, fs: Option<&Path>) -> Result<bool, LinuxError> {
    if !is_dead(dir) {
        return Ok(false);
    }
    let dir = absolute(dir)?;
    if mounted_at(&dir)?.is_none_or(|entry| entry.kind != "fuse.headstart") {
        return Ok(false);
    }
    if let Some(fs) = fs {
        let fs = absolute(fs)?;
        if mounted_at(&fs)?.is_some_and(|entry| loop_device_in(&entry, &dir).is_some()) {
            detach(&fs)?;
        }
    }
    detach(&dir)?;
    Ok(true)
}

/// Whether a FUSE mount at `dir` has lost its server. What the kernel still has in its caches it would tell
/// all the same, so the folder is opened, which only a server can allow.
fn is_dead(dir: &Path) -> bool {
    fs::File::open(dir).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}

/// The path without links, of something that may be a dead mount, which answers no question about itself.
fn absolute(path: &Path) -> Result<PathBuf, LinuxError> {
    let failed = |source| LinuxError::Io { action: "look at", path: path.into(), source };
    let path = std::path::absolute(path).map_err(failed)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent).map_err(failed)?.join(name)),
        _ => Ok(path),
    }
}

/// What is mounted at `target` from a loop device that reads a file in `dir`: the number of the device and
/// the path of the mount, without links.
///
/// # Errors
/// When the table of mounts cannot be read, or nothing can be found out about the folder of `target`.
pub fn mounted_from(dir: &Path, target: &Path) -> Result<Option<(u32, PathBuf)>, LinuxError> {
    let target = absolute(target)?;
    let number = mounted_at(&target)?.and_then(|entry| loop_device_in(&entry, dir));
    Ok(number.map(|number| (number, target)))
}

/// The number of the loop device that `entry` lies on, if it reads a file in `dir`.
fn loop_device_in(entry: &MountEntry, dir: &Path) -> Option<u32> {
    let (major, minor) = match entry.major {
        // Btrfs has numbers of its own; where it lies is its source.
        0 => {
            let device = fs::metadata(&entry.source).ok()?.rdev();
            (rustix::fs::major(device), rustix::fs::minor(device))
        }
        major => (major, entry.minor),
    };
    let file = fs::read(format!("/sys/dev/block/{major}:{minor}/loop/backing_file")).ok()?;
    Path::new(std::ffi::OsStr::from_bytes(&file)).starts_with(dir).then_some(minor)
}

fn detach(target: &Path) -> Result<(), LinuxError> {
    rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(|errno| LinuxError::Unmount { target: target.into(), source: errno.into() })
}

/// How a file system went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Nothing used it any more.
    Clean,
    /// It was busy: its name is gone, and `last_resort` was applied to it.
    Detached,
    /// Nothing was mounted there (any more).
    Absent,
}

/// Unmounts `target`. When it stays busy, detaches it, with `last_resort` added to the flags.
pub fn unmount(target: &Path, last_resort: UnmountFlags) -> Result<Unmounted, LinuxError> {
    let failed = |errno: Errno| LinuxError::Unmount { target: target.into(), source: errno.into() };
    for _ in 0..BUSY_TRIES {
        match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW) {
            Ok(()) => return Ok(Unmounted::Clean),
            // EINVAL: not a mount point. ENOENT: not even a path.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(Unmounted::Absent),
            Err(Errno::BUSY) => std::thread::sleep(BUSY_PAUSE),
            Err(errno) => return Err(failed(errno)),
        }
    }
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW | last_resort;
    rustix::mount::unmount(target, flags).map_err(failed)?;
    Ok(Unmounted::Detached)
}

/// Unmounts `target` (an absolute path without links), unless what is mounted there has users: in this mount
/// namespace, or mounted in another one, as the root of a container is. False then, and it stays.
///
/// # Errors
/// When the kernel refuses for another reason, or processes cannot be listed.
pub fn unmount_unused(target: &Path) -> Result<bool, LinuxError> {
    let Some(mounted) = mounted_at(target)? else { return Ok(true) };
    let failed = |errno: Errno| LinuxError::Unmount { target: target.into(), source: errno.into() };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // Namespaces that only follow this one lose it with this one; what still has it then is a user.
    let kept = rustix::mount::open_tree(CWD, target, flags).map_err(failed)?;
    match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW) {
        Ok(()) => {}
        Err(Errno::INVAL | Errno::NOENT) => return Ok(true),
        Err(Errno::BUSY) => return Ok(false),
        Err(errno) => return Err(failed(errno)),
    }
    if !is_mounted_anywhere((mounted.major, mounted.minor))? {
        return Ok(true);
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(&kept, "", CWD, target, flags).map_err(failed)?;
    Ok(false)
}

/// Whether a file system with this device number is mounted in the mount namespace of any process.
fn is_mounted_anywhere(device: (u32, u32)) -> Result<bool, LinuxError> {
    let processes = fs::read_dir("/proc").map_err(LinuxError::io("list", "/proc"))?;
    let mut seen = BTreeSet::new();
    for process in processes.flatten() {
        // One that ends meanwhile has no namespace any more.
        let Ok(namespace) = fs::read_link(process.path().join("ns/mnt")) else { continue };
        if seen.contains(&namespace) {
            continue;
        }
        let Ok(text) = fs::read(process.path().join("mountinfo")) else { continue };
        seen.insert(namespace);
        let mut entries = text.split(|&byte| byte == b'\n').filter_map(parse_entry);
        if entries.any(|entry| (entry.major, entry.minor) == device) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `36 35 98:0 /root /target options shared:1 - type source options`: proc_pid_mountinfo(5).
fn parse_entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let target = unescape(fields.nth(1)?);
    let mut fields = fields.skip_while(|&field| field != b"-").skip(1);
    let (kind, source) = (fields.next()?, unescape(fields.next()?));
    let options = fields.next().unwrap_or_default();
    Some(MountEntry {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        target: PathBuf::from(OsString::from_vec(target)),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: PathBuf::from(OsString::from_vec(source)),
        is_writable: options.split(|&byte| byte == b',').any(|option| option == b"rw"),
    })
}

/// The kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        bytes.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

/// Bytes of a path as one value of a comma-separated mount option string. A backslash protects the
/// comma, and the characters in `also` (`:` between the layers of an overlay).
pub fn escape_option(path: &Path, also: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte == b',' || byte == b'\\' || also.contains(&byte) {
            bytes.push(b'\\');
        }
        bytes.push(byte);
    }
    bytes
}

/// The options of an overlay of one lower layer.
pub fn overlay_options(lower: &Path, upper: &Path, work: &Path) -> Vec<u8> {
    let mut options = b"lowerdir=".to_vec();
    options.extend(escape_option(lower, b":"));
    options.extend(b",upperdir=");
    options.extend(escape_option(upper, b""));
    options.extend(b",workdir=");
    options.extend(escape_option(work, b""));
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_read() {
        let line = br"43 27 0:39 / /tmp/a\040b\134c rw,nosuid shared:3 - fuse.headstart none rw,uid=5";
        let entry = parse_entry(line).unwrap();
        assert_eq!((entry.major, entry.minor), (0, 39));
        assert_eq!(entry.target, Path::new(r"/tmp/a b\c"));
        assert_eq!((&*entry.kind, &*entry.source), ("fuse.headstart", Path::new("none")));
        let entry = parse_entry(b"99 28 0:53 / /\xff ro shared:5 - erofs /srv/a\\040b.img ro").unwrap();
        assert_eq!(entry.target.as_os_str().as_bytes(), b"/\xff");
        assert_eq!((entry.source.as_path(), entry.is_writable), (Path::new("/srv/a b.img"), false));
        assert!(parse_entry(b"1 2 7:0 / /m ro - ext4 /dev/loop0 rw,x").unwrap().is_writable);
        assert_eq!(parse_entry(b""), None);
        assert_eq!(parse_entry(b"1 2 x:y / / rw - ext4 a b"), None);
    }

    #[test]
    fn mount_points_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(check_mount_point(&file), Err(LinuxError::MountPointNotDirectory { .. })));
        let missing = check_mount_point(&directory.path().join("missing"));
        assert!(matches!(missing, Err(LinuxError::MountPointMissing { .. })));
        assert!(matches!(check_mount_point(Path::new("/proc")), Err(LinuxError::MountPointTaken { .. })));
        let full = check_mount_point(directory.path());
        assert!(matches!(full, Err(LinuxError::MountPointNotEmpty { .. })));
        fs::remove_file(&file).unwrap();
        assert!(check_mount_point(directory.path()).is_ok());
    }

    #[test]
    fn options_are_escaped() {
        assert_eq!(escape_option(Path::new(r"/a,b:c\d"), b":"), br"/a\,b\:c\\d");
    }
}
