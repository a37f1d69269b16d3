//! Files by what the kernel itself calls them: name_to_handle_at(2) and open_by_handle_at(2).

use std::ffi::{CStr, CString, c_int};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{self, Errno};

/// `FILEID_INO32_GEN` of <linux/exportfs.h>: a file handle of inode number and generation.
const FILEID_INO32_GEN: c_int = 1;
/// XFS: the same with 64 bits of inode number (`XFS_FILEID_TYPE_64FLAG`, fs/xfs/xfs_export.h).
const XFS_FILEID_INO64_GEN: c_int = 0x81;
/// `MAX_HANDLE_SZ` of <fcntl.h>.
const MAX_HANDLE_BYTES: usize = 128;

/// `XFS_IOC_BULKSTAT`: `_IOR('X', 127, struct xfs_bulkstat_req)` of fs/xfs/libxfs/xfs_fs.h (Linux 5.4).
const XFS_IOC_BULKSTAT: libc::c_ulong = 0x8040_587f;
/// `BTRFS_IOC_INO_LOOKUP` and `BTRFS_IOC_FS_INFO` of <linux/btrfs.h>.
const BTRFS_IOC_INO_LOOKUP: libc::c_ulong = 0xd000_9412;
const BTRFS_IOC_FS_INFO: libc::c_ulong = 0x8400_941f;
/// The inode number of a subvolume's root (`BTRFS_FIRST_FREE_OBJECTID`).
const BTRFS_SUBVOLUME_ROOT: u64 = 256;

/// What the kernel calls a file, also after a restart. A file that takes another's inode has another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileHandle {
    /// Its type, which belongs to the file system.
    pub kind: i32,
    /// Its bytes, at most 128.
    pub bytes: Vec<u8>,
}

/// A `struct file_handle` with room for any.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: c_int,
    handle: [u8; MAX_HANDLE_BYTES],
}

/// The handle of an open file.
///
/// # Errors
/// The kernel's: the file system may have none.
pub fn handle_of(file: impl AsFd) -> io::Result<FileHandle> {
    let mut raw =
        RawHandle { handle_bytes: MAX_HANDLE_BYTES as u32, handle_type: 0, handle: [0; MAX_HANDLE_BYTES] };
    let mut mount_id: c_int = 0;
    // SAFETY: the name is an empty text, `raw` has the room that it announces, `mount_id` is an int; all of
    // them live during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            &raw mut raw,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if result < 0 {
        return Err(last_error());
    }
    let length = (raw.handle_bytes as usize).min(MAX_HANDLE_BYTES);
    Ok(FileHandle { kind: raw.handle_type, bytes: raw.handle[..length].to_vec() })
}

/// Opens the file with this handle, to be read, on the file system that is mounted at the open directory.
///
/// # Errors
/// The kernel's: `ESTALE` when there is no such file, `EPERM` for all but root.
pub fn open_by_handle(mount: impl AsFd, handle: &FileHandle) -> io::Result<OwnedFd> {
    // It may be a FIFO.
    by_handle(mount, handle, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY)
}

/// The same without opening it, whatever it is.
///
/// # Errors
/// As [`open_by_handle`].
pub fn find_by_handle(mount: impl AsFd, handle: &FileHandle) -> io::Result<OwnedFd> {
    by_handle(mount, handle, libc::O_PATH)
}

fn by_handle(mount: impl AsFd, handle: &FileHandle, flags: c_int) -> io::Result<OwnedFd> {
    if handle.bytes.len() > MAX_HANDLE_BYTES {
        return Err(Errno::INVAL);
    }
    let mut raw = RawHandle {
        handle_bytes: handle.bytes.len() as u32,
        handle_type: handle.kind,
        handle: [0; MAX_HANDLE_BYTES],
    };
    raw.handle[..handle.bytes.len()].copy_from_slice(&handle.bytes);
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the handle is a whole `struct file_handle` with its bytes, alive for the call.
    let fd =
        unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_fd().as_raw_fd(), &raw mut raw, flags) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the call returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// Opens the file with this inode number of the ext4 that is mounted at the open directory `mount`.
///
/// # Errors
/// The kernel's: only root may, and there may be no such file.
pub fn open_by_inode(mount: impl AsFd, inode: u64) -> io::Result<OwnedFd> {
    let inode = u32::try_from(inode).map_err(|_| Errno::OVERFLOW)?;
    // A generation of zero matches any.
    let bytes = [inode.to_ne_bytes(), [0; 4]].concat();
    open_by_handle(mount, &FileHandle { kind: FILEID_INO32_GEN, bytes })
}

/// The same for XFS, which wants the inode's generation and is asked for it.
///
/// # Errors
/// As [`open_by_inode`]; before Linux 5.4 always.
pub fn open_by_xfs_inode(mount: impl AsFd, inode: u64) -> io::Result<OwnedFd> {
    // `struct xfs_bulk_ireq` (64 bytes: inode, flags, room, count, …) and one `struct xfs_bulkstat` (192).
    let mut request = [0_u64; (64 + 192) / 8];
    request[0] = inode;
    request[1] = u64::from_ne_bytes(pair(0, 1));
    // SAFETY: the argument has the head and the one record that it announces, alive for the call.
    let result =
        unsafe { libc::ioctl(mount.as_fd().as_raw_fd(), XFS_IOC_BULKSTAT as _, request.as_mut_ptr()) };
    if result < 0 {
        return Err(last_error());
    }
    let found = request[2].to_ne_bytes()[..4] != [0; 4] && request[8] == inode;
    if !found {
        return Err(Errno::STALE);
    }
    let generation = &request[16].to_ne_bytes()[..4];
    let bytes = [inode.to_ne_bytes().as_slice(), generation].concat();
    open_by_handle(mount, &FileHandle { kind: XFS_FILEID_INO64_GEN, bytes })
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    bytes
}

/// The same for Btrfs, within the subvolume of `mount`.
///
/// # Errors
/// As [`open_by_inode`].
pub fn open_by_btrfs_inode(mount: impl AsFd, inode: u64) -> io::Result<OwnedFd> {
    let found = btrfs_lookup(&mount, inode)?;
    let path = CStr::from_bytes_until_nul(&found[16..]).map_err(|_| Errno::INVAL)?.to_bytes();
    let path = CString::new(path.strip_suffix(b"/").unwrap_or(path)).map_err(|_| Errno::INVAL)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    rustix::fs::openat(mount, path, flags, Mode::empty())
}

/// The number of the subvolume of Btrfs that `directory` belongs to.
///
/// # Errors
/// The kernel's: it is no Btrfs, or this is not root.
pub fn btrfs_subvolume(directory: impl AsFd) -> io::Result<u64> {
    let found = btrfs_lookup(&directory, BTRFS_SUBVOLUME_ROOT)?;
    Ok(found.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
}

/// The UUID of the Btrfs that `directory` belongs to.
///
/// # Errors
/// The kernel's: it is no Btrfs.
pub fn btrfs_uuid(directory: impl AsFd) -> io::Result<[u8; 16]> {
    // `struct btrfs_ioctl_fs_info_args`: two numbers of 64 bits, the UUID, and what is not needed.
    let mut info = [0_u64; 128];
    // SAFETY: the argument has the 1,024 bytes of the structure, alive for the call.
    let result =
        unsafe { libc::ioctl(directory.as_fd().as_raw_fd(), BTRFS_IOC_FS_INFO as _, info.as_mut_ptr()) };
    if result < 0 {
        return Err(last_error());
    }
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&info[2].to_ne_bytes());
    uuid[8..].copy_from_slice(&info[3].to_ne_bytes());
    Ok(uuid)
}

/// A `struct btrfs_ioctl_ino_lookup_args`: subvolume, inode, path.
fn btrfs_lookup(mount: impl AsFd, inode: u64) -> io::Result<Vec<u8>> {
    let mut lookup = vec![0_u64; 512];
    lookup[1] = inode;
    // SAFETY: the argument has the 4,096 bytes of the structure, alive for the call.
    let result =
        unsafe { libc::ioctl(mount.as_fd().as_raw_fd(), BTRFS_IOC_INO_LOOKUP as _, lookup.as_mut_ptr()) };
    if result < 0 {
        return Err(last_error());
    }
    Ok(lookup.into_iter().flat_map(u64::to_ne_bytes).collect())
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
