//! A thread that has no descriptors of its process.

use std::io;
use std::panic::resume_unwind;
use std::thread;

use crate::LinuxError;

/// From now on this thread has a table of descriptors of its own, an empty one. No other thread has what it
/// opens. It must neither use nor drop what was open before, nor print or log anything.
///
/// A thread that waits for a read of its own process's disk needs this: when that process is killed, the
/// descriptors of such a thread stay open until the read ends, which may be never.
///
/// # Errors
/// Before Linux 5.9: close_range(2).
pub fn leave_descriptors() -> io::Result<()> {
    // SAFETY: it closes descriptors of this thread's table alone, which are copies: their owners' stay open.
    match unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What `call` gives, made by a thread called `name` that has none of this process's descriptors, as
/// [`leave_descriptors`] says. Before Linux 5.9 it has them all the same.
///
/// # Errors
/// No thread can be started.
pub fn without_descriptors<T: Send>(name: &str, call: impl FnOnce() -> T + Send) -> Result<T, LinuxError> {
    let call = || {
        let _ = leave_descriptors();
        call()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.to_owned());
        let made = thread.spawn_scoped(scope, call).map_err(|source| LinuxError::Io {
            action: "start a thread for",
            path: name.into(),
            source,
        })?;
        Ok(made.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_call_has_no_descriptors_of_its_process() {
        let file = File::open("/proc/self/status").expect("opened");
        let number = file.as_raw_fd();
        let is_open = |number| {
            // SAFETY: it changes nothing.
            unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
        };
        // Nothing is printed there, a failed assertion included.
        let seen = without_descriptors("hs-test", || {
            let own = File::open("/proc/self/status").map(|file| file.as_raw_fd());
            (is_open(number), is_open(2), own.ok())
        });
        assert_eq!(seen.expect("a thread"), (false, false, Some(0)));
        assert!(is_open(number) && is_open(2));
    }
}
