//! A thread that has no descriptors of its process.

use std::io;

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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_thread_leaves_the_descriptors_of_its_process() {
        let file = File::open("/proc/self/status").expect("opened");
        let number = file.as_raw_fd();
        let is_open = |number| {
            // SAFETY: it changes nothing.
            unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
        };
        // Nothing is printed there, a failed assertion included.
        let seen = std::thread::scope(|scope| {
            let apart = scope.spawn(|| {
                let left = leave_descriptors();
                let own = File::open("/proc/self/status").map(|file| file.as_raw_fd());
                (left.is_ok(), is_open(number), is_open(2), own.ok())
            });
            apart.join().expect("it ends")
        });
        assert_eq!(seen, (true, false, false, Some(0)));
        assert!(is_open(number) && is_open(2));
    }
}
