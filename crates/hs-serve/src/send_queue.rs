//! Bytes that wait in the kernel for the other side of a socket.

use std::os::fd::{AsFd, AsRawFd};

/// A client that takes fewer bytes than this in the patience with it takes none: a kernel whose program reads
/// nothing may still take a few.
pub const PROGRESS_BYTES: u64 = 16 << 10;

/// Of `sent_bytes` that a socket has taken, those that have reached the other side: over TCP they are
/// acknowledged, from a socket file they are read. A socket takes more only in large steps, so its own
/// progress says little of a slow client.
pub fn reached_bytes(socket: impl AsFd, sent_bytes: u64) -> u64 {
    let mut waiting: libc::c_int = 0;
    // SAFETY: this ioctl (SIOCOUTQ for sockets) writes one integer, and `waiting` is one.
    let failed = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    if failed == 0 { sent_bytes.saturating_sub(waiting.max(0) as u64) } else { sent_bytes }
}
