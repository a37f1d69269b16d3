//! Which pages of a file are in the page cache: `cachestat(2)` (Linux 6.5).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `cachestat(2)` has one number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// How many pages of the file are in the page cache.
///
/// # Errors
/// When the kernel has no such call, or forbids it.
pub fn count_cached(file: &File) -> io::Result<u64> {
    // struct cachestat_range: offset and length; length 0 means up to the end.
    let range = [0_u64; 2];
    // struct cachestat: cached, dirty, under write-back, evicted, recently evicted.
    let mut counts = [0_u64; 5];
    // SAFETY: the kernel reads two and writes five numbers of 64 bits, which is what the arrays hold.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0_u32) };
    if result == 0 { Ok(counts[0]) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_pages_are_counted_where_the_kernel_can() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[1; 8192]).unwrap();
        match count_cached(&file) {
            Ok(pages) => assert!(pages >= 1, "just written, so cached"),
            Err(error) => assert!(
                matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)),
                "{error}"
            ),
        }
    }
}
