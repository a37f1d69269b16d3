//! Where the bytes of a file lie on its device: `FS_IOC_FIEMAP`, see the kernel's
//! Documentation/filesystems/fiemap.rst.

use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// `_IOWR('f', 11, struct fiemap)` of <linux/fs.h>.
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// The kernel writes what waits to be written first, so that it has a place.
const FIEMAP_FLAG_SYNC: u32 = 1;

// Flags of an extent, <linux/fiemap.h>.
const LAST: u32 = 0x1;
const UNKNOWN: u32 = 0x2;
const DELALLOC: u32 = 0x4;
const ENCODED: u32 = 0x8;
const ENCRYPTED: u32 = 0x80;
const NOT_ALIGNED: u32 = 0x100;
const INLINE: u32 = 0x200;
const UNWRITTEN: u32 = 0x800;

/// Most files have one extent; the few that have more are asked again.
const EXTENTS_A_CALL: usize = 32;

/// Bytes of a file that lie in one piece on its device: `struct fiemap_extent`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FileExtent {
    /// The first byte in the file.
    pub logical: u64,
    /// The first byte on the device.
    pub physical: u64,
    /// How many bytes.
    pub length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with its extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FileExtent; EXTENTS_A_CALL],
}

const _: () = {
    assert!(size_of::<FileExtent>() == 56);
    assert!(offset_of!(FileExtent, flags) == 40);
    assert!(offset_of!(Fiemap, extents) == 32);
};

impl FileExtent {
    const EMPTY: Self =
        Self { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };

    /// Whether nothing of the file comes behind it.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.flags & LAST != 0
    }

    /// Whether its bytes lie as they are at its address, and are read from there.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.flags & (UNKNOWN | DELALLOC | ENCODED | NOT_ALIGNED | INLINE | UNWRITTEN) == 0
    }

    /// Whether it has blocks that were never written: they read as zeros.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        self.flags & UNWRITTEN != 0
    }

    /// Whether its bytes lie in the inode.
    #[must_use]
    pub fn is_inline(&self) -> bool {
        self.flags & INLINE != 0
    }

    /// Whether its bytes are encrypted by the file system.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.flags & ENCRYPTED != 0
    }
}

/// All extents of the file, ascending. With `sync`, what waits to be written is written first.
///
/// # Errors
/// The kernel's: `OPNOTSUPP` or `NOTTY` where the file system has no such addresses.
pub fn file_extents(file: impl AsFd, sync: bool) -> Result<Vec<FileExtent>, Errno> {
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let mut request = Fiemap {
            start,
            length: u64::MAX - start,
            flags: if sync { FIEMAP_FLAG_SYNC } else { 0 },
            mapped_extents: 0,
            extent_count: EXTENTS_A_CALL as u32,
            reserved: 0,
            extents: [FileExtent::EMPTY; EXTENTS_A_CALL],
        };
        // SAFETY: the argument is a whole `struct fiemap` with room for the extents it announces, alive
        // for the call; any bytes are valid in it.
        let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut request) };
        if result < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        let mapped = (request.mapped_extents as usize).min(EXTENTS_A_CALL);
        let Some(end) = request.extents[..mapped].last() else { return Ok(found) };
        found.extend_from_slice(&request.extents[..mapped]);
        let next = end.logical.saturating_add(end.length);
        if end.is_last() || next <= start {
            return Ok(found);
        }
        start = next;
    }
}
