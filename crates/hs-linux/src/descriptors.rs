//! Threads that have no descriptors of their process, or one.
//!
//! A call that waits for a read of its own process's disk needs that: when the process is killed, a thread's
//! descriptors stay open until the read ends, which may be never. Such a thread must neither use nor drop
//! what else was open before, nor print or log anything. Before Linux 5.9 (close_range(2)) it has all
//! descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::resume_unwind;
use std::thread;

use crate::LinuxError;

/// From now on this thread has a table of descriptors of its own, an empty one. No other thread has what it
/// opens.
///
/// # Errors
/// Before Linux 5.9.
pub fn leave_descriptors() -> io::Result<()> {
    close_here(0, u32::MAX)
}

/// What `call` gives, made by a thread without descriptors that ends with it. `what` names the thread.
///
/// # Errors
/// No thread can be started.
pub fn without_descriptors<T: Send>(what: &str, call: impl FnOnce() -> T + Send) -> Result<T, LinuxError> {
    apart(what, call, leave_descriptors)
}

/// The same with one descriptor: `kept` has its number there too.
///
/// # Errors
/// No thread can be started.
pub fn with_one_descriptor<T: Send>(
    what: &str,
    kept: BorrowedFd<'_>,
    call: impl FnOnce() -> T + Send,
) -> Result<T, LinuxError> {
    let number = kept.as_raw_fd() as u32;
    apart(what, call, move || {
        close_here(number + 1, u32::MAX)?;
        number.checked_sub(1).map_or(Ok(()), |last| close_here(0, last))
    })
}

fn apart<T: Send>(
    what: &str,
    call: impl FnOnce() -> T + Send,
    leave: impl FnOnce() -> io::Result<()> + Send,
) -> Result<T, LinuxError> {
    let run = || {
        let _ = leave();
        call()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(format!("hs-{what}"));
        let running = thread.spawn_scoped(scope, run).map_err(LinuxError::io("start a thread for", what))?;
        Ok(running.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Closes descriptors in this thread's table, which is its own from then on.
fn close_here(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: what is closed are copies: their owners' stay open.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_UNSHARE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    fn is_open(number: i32) -> bool {
        // SAFETY: it changes nothing.
        unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
    }

    // Nothing is printed by these threads, a failed assertion included.

    #[test]
    fn a_call_has_no_descriptors_of_its_process() {
        let file = File::open("/proc/self/status").expect("opened");
        let number = file.as_raw_fd();
        let seen = without_descriptors("testing", || {
            let own = File::open("/proc/self/status").map(|file| file.as_raw_fd());
            (is_open(number), is_open(2), own.ok())
        });
        assert_eq!(seen.expect("a thread"), (false, false, Some(0)));
        assert!(is_open(number) && is_open(2));
    }

    #[test]
    fn a_call_has_one_descriptor_of_its_process() {
        let [before, kept, after] = [(); 3].map(|()| File::open("/proc/self/status").expect("opened"));
        let numbers = [&before, &kept, &after].map(AsRawFd::as_raw_fd);
        let seen = with_one_descriptor("testing", kept.as_fd(), || {
            (numbers.map(is_open), is_open(2), kept.metadata().is_ok())
        });
        assert_eq!(seen.expect("a thread"), ([false, true, false], false, true));
        assert!(numbers.into_iter().all(is_open));
    }
}
