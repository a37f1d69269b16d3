//! A lock that root alone can hold, and that tells who does.
//!
//! It is flock(2) on a file that no other user can open. The kernel takes it back when its process ends,
//! however that ends. In /run it outlives the change from an initramfs to the system, which takes /run along.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use crate::LinuxError;

/// Bits of a mode by which others than the owner may open a file.
const OF_OTHERS: u32 = 0o077;
/// Characters of a command line that are told.
const TOLD: usize = 120;

/// The lock, which goes with the object.
#[derive(Debug)]
pub struct RootLock(#[expect(dead_code, reason = "held for its lock")] File);

/// The process that holds a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockHolder {
    /// Its number, as this process sees it.
    pub process: u32,
    /// The beginning of its command line; empty where that cannot be read.
    pub command: String,
}

impl RootLock {
    /// Takes the lock whose file is `path`, which is made where it is missing; `None` when another process
    /// holds it. Its folder must be one in which no other user can make files.
    ///
    /// # Errors
    /// Those of opening the file, and one when others could open it too.
    pub fn take(path: &Path) -> Result<Option<Self>, LinuxError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file =
            rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(LinuxError::io("open", path))?;
        let file = File::from(file);
        let found = file.metadata().map_err(LinuxError::io("look at", path))?;
        let is_own = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & OF_OTHERS == 0;
        if !found.is_file() || !is_own {
            let reason = "other users can open it, and so keep it locked: remove it";
            return Err(LinuxError::io("lock", path)(io::Error::new(
                io::ErrorKind::PermissionDenied,
                reason,
            )));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(LinuxError::io("lock", path)(errno)),
        }
    }

    /// The process that holds the lock; `None` when it is free, or when its process is not seen from here. It
    /// only looks: a process that takes the lock at this moment is not kept from it.
    #[must_use]
    pub fn holder(path: &Path) -> Option<LockHolder> {
        let found = path.symlink_metadata().ok()?;
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let process = process_in(&locks, found.dev(), found.ino())?;
        Some(LockHolder { process, command: command_of(process) })
    }
}

/// The process that /proc/locks names for a file: proc_locks(5).
fn process_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    locks.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        // A process that waits for a lock has an arrow before the kind.
        let [_, "FLOCK", _, _, process, of, ..] = words[..] else { return None };
        (of == file).then(|| process.parse().ok())?
    })
}

fn command_of(process: u32) -> String {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    line.trim().chars().map(|letter| if letter.is_control() { '?' } else { letter }).take(TOLD).collect()
}

impl LockHolder {
    /// Whether it is this program, whatever its folder; systemd's mark of processes that it keeps is no part
    /// of the name.
    #[must_use]
    pub fn is_program(&self, name: &str) -> bool {
        let program = self.command.split(' ').next().unwrap_or_default();
        program.trim_start_matches('@').rsplit('/').next() == Some(name)
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.command.as_str() {
            "" => write!(out, "process {}", self.process),
            command => write!(out, "process {} ({command})", self.process),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn one_holds_it_and_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        assert_eq!(RootLock::holder(&path), None, "there is no file");
        let held = RootLock::take(&path).expect("taken").expect("free");
        assert_eq!(path.metadata().expect("made").mode() & 0o777, 0o600);
        assert!(RootLock::take(&path).expect("asked").is_none());
        let holder = RootLock::holder(&path).expect("held");
        assert_eq!(holder.process, std::process::id());
        assert!(holder.to_string().starts_with(&format!("process {} (", std::process::id())), "{holder}");
        drop(held);
        assert_eq!(RootLock::holder(&path), None);
        assert!(RootLock::take(&path).expect("asked").is_some());
    }

    #[test]
    fn what_others_can_open_is_no_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let refused = |words: &str| {
            let said = RootLock::take(&path).expect_err("refused").to_string();
            assert!(said.contains(words), "{said}");
        };
        fs::write(&path, b"").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
        refused("other users can open it");
        fs::remove_file(&path).expect("removed");
        symlink(folder.path().join("elsewhere"), &path).expect("a link");
        refused("cannot open");
        assert!(!folder.path().join("elsewhere").exists());
    }

    #[test]
    fn holders_are_found_by_device_and_inode() {
        let locks = "1: FLOCK  ADVISORY  WRITE 412 00:1a:77 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 413 00:1a:78 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 414 00:1a:79 0 EOF\n\
                     3: OFDLCK ADVISORY  READ  -1 08:11:77 0 EOF\n";
        let of = |major, minor, inode| process_in(locks, rustix::fs::makedev(major, minor), inode);
        assert_eq!(of(0, 0x1a, 77), Some(412));
        assert_eq!([of(0, 0x1a, 78), of(0, 0x1a, 79), of(8, 0x11, 77), of(0, 0x1b, 77)], [None; 4]);
    }

    #[test]
    fn programs_are_known_by_the_name_of_their_file() {
        let is =
            |command: &str| LockHolder { process: 1, command: command.to_owned() }.is_program("recorder");
        assert!(is("recorder") && is("@/usr/lib/recorder initramfs") && is("./recorder boot"));
        assert!(!is("") && !is("cat recorder") && !is("/usr/bin/recorders"));
    }
}
