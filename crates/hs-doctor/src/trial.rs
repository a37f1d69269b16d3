//! Trying a system call in a child process that leaves nothing behind.

use std::ffi::CStr;
use std::io;

/// Runs `work` in a forked child and gives its result. Whatever namespaces or mounts the child makes
/// go away with it.
///
/// `work` must make system calls only: between `fork` and `_exit` a child of a program with threads
/// must not allocate or take locks. Whatever it needs is prepared before.
///
/// # Errors
///
/// The error that `work` returned in the child, or that of `fork`.
pub(crate) fn in_child(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the child calls `work`, which by the contract above is async-signal-safe, and leaves
    // with `_exit`, so that no destructor or exit handler of the parent runs twice.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // An errno fits into the eight bits of an exit code: the largest is 133.
        let code = match work() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        // SAFETY: `_exit` ends this process and touches no memory.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    loop {
        // SAFETY: `child` is our child and `status` is a valid place for its status.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, errno) => Err(io::Error::from_raw_os_error(errno)),
        (false, _) => Err(io::Error::from_raw_os_error(libc::EINTR)),
    }
}

/// Turns the -1 of a system call into the error it stands for.
pub(crate) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `mount(2)` without the pointers; `kind` is the type of file system.
pub(crate) fn mount(kind: &CStr, target: &CStr, flags: libc::c_ulong, options: &CStr) -> io::Result<()> {
    // SAFETY: all four pointers come from C strings that outlive the call.
    let result =
        unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    checked(result).map(|_| ())
}

/// Writes a whole small file of `/proc`, without allocating.
pub(crate) fn write_file(path: &CStr, text: &[u8]) -> io::Result<()> {
    // SAFETY: `path` is a C string, and `write` gets a pointer and the length of the same slice. The
    // descriptor is closed before it goes out of use.
    unsafe {
        let file = checked(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
        let written = libc::write(file, text.as_ptr().cast(), text.len());
        let result = if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        libc::close(file);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_error_comes_back() {
        assert!(in_child(|| Ok(())).is_ok());
        let error = in_child(|| Err(io::Error::from_raw_os_error(libc::EOVERFLOW))).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOVERFLOW));
    }

    #[test]
    fn a_child_that_is_killed_is_an_error() {
        // SAFETY: abort in the child ends only the child.
        assert!(in_child(|| unsafe { libc::abort() }).is_err());
    }
}
