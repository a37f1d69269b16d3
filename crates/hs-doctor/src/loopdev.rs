//! Loop devices: the kernel mounts the file system inside an image through one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::namespaces::User;
use crate::trial::checked;
use crate::{Check, CheckState};

// From <linux/loop.h>.
const LOOP_GET_STATUS64: u64 = 0x4C05;
const LOOP_CONFIGURE: u64 = 0x4C0A;
const LOOP_CTL_GET_FREE: u64 = 0x4C82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64` of <linux/loop.h>.
#[repr(C)]
struct LoopInfo {
    numbers: [u64; 5],
    number: u32,
    encrypt: [u32; 2],
    flags: u32,
    names_and_keys: [u8; 64 + 64 + 32],
    init: [u64; 2],
}

/// `struct loop_config` of <linux/loop.h>.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

impl LoopInfo {
    fn with_flags(flags: u32) -> Self {
        Self { numbers: [0; 5], number: 0, encrypt: [0; 2], flags, names_and_keys: [0; 160], init: [0; 2] }
    }
}

/// Whether a loop device reads its file past the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectIo {
    On,
    Off,
}

pub(crate) fn checks(user: User) -> Vec<Check> {
    let needed_for = "run, profile, mount --fs as root: mounts the file system in an image";
    let direct_for = "run, mount --fs: blocks are cached once, not twice";
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control");
    let control = match control {
        Ok(control) => control,
        Err(_) if !user.is_root() => {
            let found = "not for users; fuse2fs is used instead";
            return vec![Check::ok("loop devices", found, needed_for)];
        }
        Err(error) => {
            let advice =
                "modprobe loop; in a container, pass --device /dev/loop-control and the loop devices";
            let check = Check::ok("loop devices", format!("failed: {error}"), needed_for);
            return vec![check.but(CheckState::Missing, advice).on_main_path(true)];
        }
    };
    let outcome = try_loop_device(&control);
    vec![judge_device(&outcome, needed_for).on_main_path(user.is_root()), judge_direct(&outcome, direct_for)]
}

fn judge_device(outcome: &io::Result<DirectIo>, needed_for: &'static str) -> Check {
    match outcome {
        Ok(_) => Check::ok("loop devices", "work (tried)", needed_for),
        Err(error) => Check::ok("loop devices", format!("failed: {error}"), needed_for)
            .but(CheckState::Missing, "run as root; in a container, pass the loop devices with --device"),
    }
}

fn judge_direct(outcome: &io::Result<DirectIo>, needed_for: &'static str) -> Check {
    let name = "loop direct I/O";
    match outcome {
        Ok(DirectIo::On) => Check::ok(name, "works (tried)", needed_for),
        Ok(DirectIo::Off) => {
            let advice =
                "the file system of the temporary folder refuses direct I/O: set TMPDIR to one on a disk";
            Check::ok(name, "refused", needed_for).but(CheckState::Degraded, advice)
        }
        Err(_) => Check::ok(name, "not tried, see loop devices", needed_for)
            .but(CheckState::Degraded, "make loop devices work first"),
    }
}

/// Makes a read-only loop device over a temporary file and asks whether it does direct I/O. The device
/// goes away with its last descriptor.
fn try_loop_device(control: &File) -> io::Result<DirectIo> {
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(1 << 20)?;
    // Another program may take the free device that the kernel named: then it names the next one.
    let mut last = io::Error::from_raw_os_error(libc::EBUSY);
    for _ in 0..8 {
        // SAFETY: this request takes no argument.
        let number = checked(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) })?;
        match configure(number, file.as_file()) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
            outcome => return outcome,
        }
    }
    Err(last)
}

fn configure(number: libc::c_int, file: &File) -> io::Result<DirectIo> {
    let device =
        OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC).open(format!("/dev/loop{number}"))?;
    let flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    let file = u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?;
    let config = LoopConfig { file, block_size: 4096, info: LoopInfo::with_flags(flags), reserved: [0; 8] };
    // SAFETY: the request reads one `loop_config`, which is what the pointer leads to.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) })?;
    let mut info = LoopInfo::with_flags(0);
    // SAFETY: the request writes one `loop_info64`, for which the pointer has room.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) })?;
    Ok(if info.flags & LO_FLAGS_DIRECT_IO == 0 { DirectIo::Off } else { DirectIo::On })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_io_that_is_refused_limits_and_a_failure_is_missing() {
        let refused = Ok(DirectIo::Off);
        assert_eq!(judge_device(&refused, "x").state, CheckState::Ok);
        assert_eq!(judge_direct(&refused, "x").state, CheckState::Degraded);
        let failed = Err(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(judge_device(&failed, "x").state, CheckState::Missing);
        assert_eq!(judge_direct(&failed, "x").state, CheckState::Degraded);
        assert_eq!(judge_direct(&Ok(DirectIo::On), "x").state, CheckState::Ok);
    }
}
