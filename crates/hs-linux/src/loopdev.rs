//! A file as a block device, by the kernel's loop driver.
//!
//! `LOOP_CONFIGURE` (Linux 5.8) sets everything in one step, so there is no moment in which a device
//! exists without `LO_FLAGS_AUTOCLEAR`: whatever ends this process, the kernel takes the device back
//! with its last user.

use std::fs;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hs_units::ByteRange;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::LinuxError;

const LOOP_CONTROL: &str = "/dev/loop-control";

// <linux/loop.h> and <linux/fs.h>.
const LOOP_CLR_FD: u32 = 0x4c01;
const LOOP_GET_STATUS64: u32 = 0x4c05;
const LOOP_CONFIGURE: u32 = 0x4c0a;
const LOOP_CTL_GET_FREE: u32 = 0x4c82;
const BLKRASET: u32 = 0x1262;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const LO_NAME_BYTES: usize = 64;

/// Another process can take a free device between the search for it and its use. So many losses in a row are
/// no coincidence any more.
const RACE_TRIES: u32 = 64;

/// `struct loop_info64`.
#[derive(Clone, Copy)]
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; LO_NAME_BYTES],
    crypt_name: [u8; LO_NAME_BYTES],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = {
    assert!(size_of::<LoopInfo>() == 232);
    assert!(offset_of!(LoopInfo, flags) == 52);
    assert!(offset_of!(LoopInfo, file_name) == 56);
    assert!(size_of::<LoopConfig>() == 304);
    assert!(offset_of!(LoopConfig, info) == 8);
};

impl LoopInfo {
    const EMPTY: Self = Self {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; LO_NAME_BYTES],
        crypt_name: [0; LO_NAME_BYTES],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// How a file is attached.
#[derive(Clone, Copy, Debug)]
pub struct LoopOptions {
    /// Read the file with `O_DIRECT`: its pages are then not cached a second time. Where the file's
    /// file system cannot, the kernel quietly does without; see [`LoopDevice::direct_io`].
    pub direct_io: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Logical sector size in bytes: 512, or 4096 (fewer, larger requests, but no file system whose blocks
    /// are smaller).
    pub sector_bytes: u32,
    /// The part of the file that is the device; all of it when not given.
    pub part: Option<ByteRange>,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self { direct_io: true, read_only: true, sector_bytes: 512, part: None }
    }
}

/// An attached loop device. Dropping it detaches it, as soon as nothing uses it any more.
#[derive(Debug)]
pub struct LoopDevice {
    fd: OwnedFd,
    path: PathBuf,
    direct_io: bool,
}

impl LoopDevice {
    /// Attaches `file` to a free loop device.
    ///
    /// # Errors
    /// Not root, no loop driver, an impossible sector size, or a file that cannot be opened.
    pub fn attach(file: &Path, options: LoopOptions) -> Result<Self, LinuxError> {
        if !matches!(options.sector_bytes, 512 | 4096) {
            return Err(LinuxError::Option {
                option: "sector_bytes",
                value: options.sector_bytes.to_string(),
                needed: "it must be 512 or 4096",
            });
        }
        let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let backing = rustix::fs::open(file, access | OFlags::CLOEXEC, Mode::empty())
            .map_err(LinuxError::io("open", file))?;
        let control = open_device(Path::new(LOOP_CONTROL), OFlags::RDWR)?;
        let mut last = Errno::BUSY;
        for _ in 0..RACE_TRIES {
            let number = free_device(&control)
                .map_err(|errno| LinuxError::LoopAttach { file: file.into(), source: errno.into() })?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open_device(&path, access)?;
            match configure(&device, &backing, file, options) {
                Ok(()) => {
                    forget_scheduler(number);
                    let direct_io = status(&device).is_ok_and(|info| info.flags & LO_FLAGS_DIRECT_IO != 0);
                    if options.direct_io && !direct_io {
                        log::warn!("{} is read through the page cache: direct I/O refused", file.display());
                    }
                    return Ok(Self { fd: device, path, direct_io });
                }
                Err(Errno::BUSY) => last = Errno::BUSY,
                Err(errno) => {
                    last = errno;
                    break;
                }
            }
        }
        Err(LinuxError::LoopAttach { file: file.into(), source: last.into() })
    }

    /// Takes over device `number`, which a server that died had attached and something still uses.
    ///
    /// # Errors
    /// Not root, or no such device is attached any more.
    pub fn adopt(number: u32) -> Result<Self, LinuxError> {
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let fd = open_device(&path, OFlags::RDONLY)?;
        let info = status(&fd).map_err(LinuxError::io("look at", &path))?;
        Ok(Self { fd, path, direct_io: info.flags & LO_FLAGS_DIRECT_IO != 0 })
    }

    /// The device's path, as in `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes over the device that reads a file in `dir`, if a file system is mounted from it: by whatever
    /// name, in any mount namespace.
    ///
    /// # Errors
    /// Devices cannot be listed, or it cannot be opened.
    pub fn adopt_mounted(dir: &Path) -> Result<Option<Self>, LinuxError> {
        let listed = fs::read_dir("/sys/block").map_err(LinuxError::io("list", Path::new("/sys/block")))?;
        for entry in listed.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("loop")?.parse().ok());
            let file = fs::read(entry.path().join("loop/backing_file")).unwrap_or_default();
            if let Some(number) = number
                && Path::new(std::ffi::OsStr::from_bytes(&file)).starts_with(dir)
                && is_claimed(&Path::new("/dev").join(name))?
            {
                return Self::adopt(number).map(Some);
            }
        }
        Ok(None)
    }

    /// Whether a file system is mounted from it: by whatever name, in any mount namespace.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn is_mounted(&self) -> Result<bool, LinuxError> {
        is_claimed(&self.path)
    }

    /// True when the file is really read with `O_DIRECT`.
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }

    /// Sets how far the kernel reads ahead on this device, in KiB. It counts for files opened afterwards;
    /// open ones keep what they have.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn set_read_ahead(&self, kib: u32) -> Result<(), LinuxError> {
        let sectors = u64::from(kib) * 2;
        // SAFETY: BLKRASET takes its argument by value and touches no memory of ours.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), BLKRASET as _, sectors as libc::c_ulong) };
        check(result).map(drop).map_err(LinuxError::io("set the read-ahead of", &self.path))
    }
}

impl AsFd for LoopDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // SAFETY: LOOP_CLR_FD takes no argument. With other users about it only marks the device.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), LOOP_CLR_FD as _, 0) };
        if let Err(errno) = check(result)
            && errno != Errno::NXIO
        {
            log::error!("cannot detach {}: {errno}", self.path.display());
        }
    }
}

/// Whether a file system has the device at `path` for itself, as those that are mounted have.
fn is_claimed(path: &Path) -> Result<bool, LinuxError> {
    match rustix::fs::open(path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Ok(false),
        Err(Errno::BUSY) => Ok(true),
        Err(errno) => Err(LinuxError::io("open", path)(errno)),
    }
}

/// Sets no elevator. A device keeps an elevator that was set earlier, for whatever is attached to it next. An
/// elevator before a served disk orders requests a second time and delays them. The kernel takes 20 to 30 ms
/// to set an elevator, also the one that is set.
fn forget_scheduler(number: i32) {
    let setting = format!("/sys/block/loop{number}/queue/scheduler");
    if std::fs::read_to_string(&setting).is_ok_and(|shown| shown.contains("[none]")) {
        return;
    }
    if let Err(error) = std::fs::write(&setting, "none") {
        log::debug!("{setting} stays as it is: {error}");
    }
}

fn open_device(path: &Path, access: OFlags) -> Result<OwnedFd, LinuxError> {
    rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => LinuxError::LoopMissing { path: path.into() },
        Errno::ACCESS | Errno::PERM => LinuxError::NeedsRoot { what: "attaching a loop device" },
        errno => LinuxError::Io { action: "open", path: path.into(), source: errno.into() },
    })
}

fn free_device(control: &OwnedFd) -> Result<i32, Errno> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns the device's number.
    check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) })
}

fn configure(device: &OwnedFd, backing: &OwnedFd, file: &Path, options: LoopOptions) -> Result<(), Errno> {
    let mut info = LoopInfo { flags: LO_FLAGS_AUTOCLEAR, ..LoopInfo::EMPTY };
    if let Some(part) = options.part {
        (info.offset, info.size_limit) = (part.offset, part.len);
    }
    if options.read_only {
        info.flags |= LO_FLAGS_READ_ONLY;
    }
    if options.direct_io {
        info.flags |= LO_FLAGS_DIRECT_IO;
    }
    // The name is what `losetup -l` shows; the kernel wants it to end with a NUL.
    let shown = fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
    let name = shown.as_os_str().as_bytes();
    let len = name.len().min(LO_NAME_BYTES - 1);
    info.file_name[..len].copy_from_slice(&name[..len]);
    let fd = backing.as_raw_fd() as u32;
    let config = LoopConfig { fd, block_size: options.sector_bytes, info, reserved: [0; 8] };
    // SAFETY: the argument points to a struct of the size the kernel reads, alive until the call returns.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) }).map(drop)
}

fn status(device: &OwnedFd) -> Result<LoopInfo, Errno> {
    let mut info = LoopInfo::EMPTY;
    // SAFETY: the argument points to a struct of the size the kernel writes; any bytes are valid in it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) })?;
    Ok(info)
}

fn check(result: libc::c_int) -> Result<i32, Errno> {
    if result >= 0 {
        Ok(result)
    } else {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
