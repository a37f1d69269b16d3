//! Files by their inode numbers: open_by_handle_at(2).

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::{self, Errno};

/// `FILEID_INO32_GEN` of <linux/exportfs.h>: a file handle of inode number and generation.
const FILEID_INO32_GEN: c_int = 1;

/// A `struct file_handle` with room for the eight bytes of an ext4 handle.
#[repr(C)]
struct FileHandle {
    handle_bytes: u32,
    handle_type: c_int,
    inode: u32,
    /// Zero matches any generation.
    generation: u32,
}

/// Opens the file with this inode number of the ext4 that is mounted at the open directory `mount`.
///
/// # Errors
/// The kernel's: only root may, and there may be no such file.
pub fn open_by_inode(mount: impl AsFd, inode: u64) -> io::Result<OwnedFd> {
    let inode = u32::try_from(inode).map_err(|_| Errno::OVERFLOW)?;
    let mut handle = FileHandle { handle_bytes: 8, handle_type: FILEID_INO32_GEN, inode, generation: 0 };
    // O_NONBLOCK, because a hint may name a FIFO; O_NOATIME is of no use on a read-only mount.
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the handle is a whole `struct file_handle` with its eight bytes, alive for the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_fd().as_raw_fd(), &raw mut handle, flags)
    };
    if fd < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: the call returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}
