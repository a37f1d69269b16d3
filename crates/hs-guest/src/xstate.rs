//! The area in which Linux keeps a process's extended registers, and whether User-mode Linux can write it
//! here.
//!
//! The size differs between processors: 832 bytes with AVX, 2,696 with AVX-512 and protection keys, 11,008
//! with AMX. User-mode Linux up to 6.12 has room for 2,696, and the kernel accepts only all of them.

use std::io;

/// `HOST_FP_SIZE` of User-mode Linux.
pub(crate) const UML_BYTES: usize = 2696;
/// The set of registers that the area is for ptrace(2).
#[cfg(target_arch = "x86_64")]
const NT_X86_XSTATE: libc::c_int = 0x202;
/// More than any processor has.
#[cfg(target_arch = "x86_64")]
const MOST_BYTES: usize = 1 << 16;

/// The result of a trial with a process of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The size of a process's area.
    pub bytes: usize,
    /// The kernel refuses what User-mode Linux writes, because it is too short.
    pub is_too_large: bool,
}

impl Area {
    /// A sentence for users, which names the reason.
    #[must_use]
    pub fn describe(&self) -> String {
        let amx = if has_amx() { " (AMX)" } else { "" };
        let bytes = self.bytes;
        format!(
            "this processor keeps {bytes} bytes of registers{amx}, User-mode Linux writes {UML_BYTES} of them"
        )
    }
}

/// Tries it with a stopped child: reads its registers, and writes as many of them as User-mode Linux does.
///
/// # Errors
/// When no process can be traced.
#[cfg(target_arch = "x86_64")]
pub fn area() -> io::Result<Area> {
    // SAFETY: the child makes system calls only, and leaves by `_exit`; nothing else waits for it by its
    // number.
    let child = unsafe {
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) == 0 {
                    libc::raise(libc::SIGSTOP);
                }
                libc::_exit(1)
            }
            child => child,
        }
    };
    if !libc::WIFSTOPPED(wait(child)?) {
        // It has ended: tracing is not allowed.
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let found = look_at(child);
    // SAFETY: `child` is ours and was not waited for to its end, so the number is still its own.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let _ = wait(child);
    found
}

/// There is no User-mode Linux.
///
/// # Errors
/// Always.
#[cfg(not(target_arch = "x86_64"))]
pub fn area() -> io::Result<Area> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_arch = "x86_64")]
fn wait(child: libc::pid_t) -> io::Result<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: the status lives until the call returns.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            return Ok(status);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The registers of a process that this thread traces, and that is stopped.
#[cfg(target_arch = "x86_64")]
fn look_at(child: libc::pid_t) -> io::Result<Area> {
    let mut bytes = vec![0_u8; MOST_BYTES];
    let mut call = |request, length: usize| {
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
        // SAFETY: the vector describes memory of ours that is at least as long, and lives until the call
        // returns.
        let result = unsafe { libc::ptrace(request, child, NT_X86_XSTATE, &raw mut part) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(part.iov_len) }
    };
    let whole = call(libc::PTRACE_GETREGSET, MOST_BYTES)?;
    match call(libc::PTRACE_SETREGSET, UML_BYTES) {
        Ok(_) => Ok(Area { bytes: whole, is_too_large: false }),
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
            Ok(Area { bytes: whole, is_too_large: true })
        }
        Err(error) => Err(error),
    }
}

fn has_amx() -> bool {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "amx_tile")
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_area_of_this_processor_is_looked_at() {
        let area = area().unwrap();
        // Legacy area and header, at least.
        assert!(area.bytes >= 576, "{area:?}");
        assert_eq!(area.is_too_large, area.bytes > UML_BYTES, "{area:?}");
        assert!(area.describe().contains(&format!("{} bytes of registers", area.bytes)));
    }
}
