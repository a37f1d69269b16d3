//! Queues of a FUSE connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`.
const DEV_IOC_CLONE: u32 = 0x8004_e500;

/// Makes `device`, a `/dev/fuse` that was just opened, a second queue of the connection of `original`.
///
/// # Errors
/// The kernel's, when one of them is no such device.
pub fn clone_fuse_queue(device: impl AsFd, original: impl AsFd) -> io::Result<()> {
    let original = original.as_fd().as_raw_fd() as u32;
    // SAFETY: the ioctl reads one u32, which lives until the call returns, and both descriptors are open.
    let failed = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), DEV_IOC_CLONE as _, &raw const original) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
