//! The locks of a file by which programs that change disks keep out of each other's way.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Whether others may hold a lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Others that only read may.
    Shared,
    /// None may.
    Exclusive,
}

/// Takes the lock of flock(2), which udev and tools that divide disks take; it goes with the open file.
/// False when another program has it.
///
/// # Errors
/// The file system has no such locks.
pub fn lock_disk(file: &File, kind: LockKind) -> io::Result<bool> {
    let operation = match kind {
        LockKind::Shared => FlockOperation::NonBlockingLockShared,
        LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Locks the bytes of a file that is open for writing, by a lock that goes with the open file (fcntl(2),
/// `F_OFD_SETLK`). QEMU holds such locks on the disks of its guests. False when another program has one.
///
/// # Errors
/// The file system has no such locks.
pub fn lock_bytes(file: &File) -> io::Result<bool> {
    let all = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the struct lives until the call returns.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const all) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_lock_keeps_out_other_open_files() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || OpenOptions::new().read(true).write(true).open(file.path()).expect("opened");
        let (first, second) = (open(), open());
        assert!(lock_disk(&first, LockKind::Shared).expect("asked"));
        assert!(lock_disk(&second, LockKind::Shared).expect("asked"));
        assert!(!lock_disk(&second, LockKind::Exclusive).expect("asked"));
        assert!(lock_bytes(&first).expect("asked") && !lock_bytes(&second).expect("asked"));
        drop(first);
        assert!(lock_disk(&second, LockKind::Exclusive).expect("asked"));
        assert!(lock_bytes(&second).expect("asked"));
    }
}
