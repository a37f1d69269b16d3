//! Blocks of two ext4 files change places: `EXT4_IOC_MOVE_EXT`.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// `_IOWR('f', 15, struct move_extent)` of the kernel's fs/ext4/ext4.h.
const EXT4_IOC_MOVE_EXT: libc::c_ulong = 0xc028_660f;

/// `struct move_extent`.
#[repr(C)]
struct MoveExtent {
    reserved: u32,
    donor: u32,
    file_start: u64,
    donor_start: u64,
    count: u64,
    moved: u64,
}

const _: () = assert!(size_of::<MoveExtent>() == 40);

/// Lets `count` blocks of `file` from `file_start` change places with as many blocks of `donor` from
/// `donor_start`, and the contents stay where they were in `file`: the kernel copies them in its page cache,
/// and writes them before the change is committed. Numbers are blocks of the file system, counted in each
/// file. Both files are open for reading and writing. Gives how many blocks moved, which may be fewer than
/// asked for when it failed in the middle, and the failure.
pub fn move_extents(
    file: impl AsFd,
    donor: impl AsFd,
    file_start: u64,
    donor_start: u64,
    count: u64,
) -> (u64, Result<(), Errno>) {
    let donor = donor.as_fd().as_raw_fd() as u32;
    let mut request = MoveExtent { reserved: 0, donor, file_start, donor_start, count, moved: 0 };
    // SAFETY: the argument is a whole `struct move_extent`, alive for the call; any bytes are valid in it.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), EXT4_IOC_MOVE_EXT as _, &raw mut request) };
    if result == 0 {
        return (request.moved, Ok(()));
    }
    let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    (request.moved, Err(errno))
}
