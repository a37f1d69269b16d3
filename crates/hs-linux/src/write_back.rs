//! Writing back what the page cache holds.

use std::fs::File;
use std::os::fd::AsRawFd;

/// The medium begins to write this range. Nothing waits for it, and nothing is said of its success: the next
/// sync does both. Where the file system cannot do it, nothing happens.
pub fn begin_write_back(file: &File, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return };
    // SAFETY: the descriptor is open, and no memory is passed.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}
