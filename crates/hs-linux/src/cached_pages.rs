//! Pages of a file in the page cache: which are there, and asking for some.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;

use rustix::fs::Advice;
use rustix::mm::{self, MapFlags, ProtFlags, madvise, mmap, munmap};

const PAGE_BYTES: u64 = 4096;

/// `cachestat(2)` has one number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// How many pages of the file are in the page cache (Linux 6.5).
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

/// Asks for exactly these pages of a file or block device, and does not wait for them. The kernel cuts what
/// is longer than the device's largest request.
///
/// # Errors
/// The kernel's.
pub fn ask_for_pages(file: impl AsFd, first: u64, pages: u64) -> io::Result<()> {
    let bytes = pages.checked_mul(PAGE_BYTES).and_then(NonZeroU64::new);
    let offset = first.checked_mul(PAGE_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::fs::fadvise(file, offset, bytes, Advice::WillNeed)?)
}

/// A page of a file in our memory, which no instruction of ours touches: an unreadable one would be a SIGBUS.
struct MappedPage(*mut c_void);

impl MappedPage {
    fn new(file: impl AsFd, page: u64) -> io::Result<Self> {
        let offset = page.checked_mul(PAGE_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let (protection, kind) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address =
            unsafe { mmap(null_mut(), PAGE_BYTES as usize, protection, kind, file.as_fd(), offset)? };
        Ok(Self(address))
    }

    fn advise(&self, advice: mm::Advice) -> io::Result<()> {
        // SAFETY: the range is our mapping; none of the advices used changes its content.
        unsafe { madvise(self.0, PAGE_BYTES as usize, advice) }.map_err(Into::into)
    }
}

impl Drop for MappedPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let _ = unsafe { munmap(self.0, PAGE_BYTES as usize) };
    }
}

/// Waits until a page of a file or block device is in the page cache, and leaves no mark of an access.
///
/// # Errors
/// When it cannot be read, or lies behind the end.
pub fn wait_for_page(file: impl AsFd, page: u64) -> io::Result<()> {
    let mapped = MappedPage::new(&file, page)?;
    // Unmapping sets no mark then (`vma_has_recency` in include/linux/mm_inline.h).
    mapped.advise(mm::Advice::Sequential)?;
    match mapped.advise(mm::Advice::LinuxPopulateRead) {
        // Before Linux 5.14.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            rustix::io::pread(file, &mut [0], page * PAGE_BYTES).map(drop).map_err(Into::into)
        }
        waited => waited,
    }
}

/// Whether a page of a file or block device is in the page cache, complete.
///
/// # Errors
/// When it cannot be mapped.
pub fn is_cached(file: impl AsFd, page: u64) -> io::Result<bool> {
    let mapped = MappedPage::new(file, page)?;
    let mut cached = 0_u8;
    // SAFETY: the range is our mapping of one page, for which one byte is written.
    let result = unsafe { libc::mincore(mapped.0, PAGE_BYTES as usize, &raw mut cached) };
    if result == 0 { Ok(cached & 1 != 0) } else { Err(io::Error::last_os_error()) }
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

    #[test]
    fn asked_pages_come_alone_and_unmarked() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 64 * 4096]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        if is_cached(&file, 20).unwrap() {
            return hs_testing::skip("the files of this folder do not leave the page cache");
        }
        ask_for_pages(&file, 20, 2).unwrap();
        wait_for_page(&file, 21).unwrap();
        let cached: Vec<u64> = (0..64).filter(|page| is_cached(&file, *page).unwrap()).collect();
        assert_eq!(cached, [20, 21]);
        assert!(wait_for_page(&file, 64).is_err(), "behind the end");
    }
}
