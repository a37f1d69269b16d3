//! Which cached pages of a block device were used: the kernel's accessed marks.
//!
//! A file system looks its metadata up in the page cache of its device without a trace event, but the
//! look-up marks the page (`PG_referenced`, and `PG_active` the next time), and reading ahead does not.
//! The marks are in `/proc/kpageflags` (the kernel's Documentation/admin-guide/mm/pagemap.rst).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::null_mut;

use hs_trace::BlockSet;
use hs_units::BLOCK_BYTES;
use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

const PAGE: usize = BLOCK_BYTES as usize;
/// Pages mapped at a time (16 MiB).
const WINDOW_PAGES: u64 = 4096;

// An entry of /proc/self/pagemap.
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
// An entry of /proc/kpageflags, <linux/kernel-page-flags.h>.
const REFERENCED: u64 = 1 << 2;
const ACTIVE: u64 = 1 << 6;

/// Looks at pages of one block device.
pub(super) struct DevicePages {
    device: OwnedFd,
    pagemap: File,
    flags: File,
    /// Where bytes of the pages are copied to, to have them mapped.
    sink: OwnedFd,
}

impl DevicePages {
    /// # Errors
    /// When this kernel or this user cannot see the marks.
    pub(super) fn open(device: &Path) -> io::Result<Self> {
        if page_bytes() != Some(PAGE) {
            return Err(io::Error::other("pages are not as large as blocks"));
        }
        let pages = Self {
            device: File::open(device)?.into(),
            pagemap: File::open("/proc/self/pagemap")?,
            flags: File::open("/proc/kpageflags")?,
            sink: rustix::fs::memfd_create("headstart-observe", MemfdFlags::CLOEXEC)?,
        };
        // Without CAP_SYS_ADMIN, frame numbers are shown as zero: try with a page of our own.
        let own = Box::new(1_u8);
        let frame = pages.frames(std::ptr::from_ref(&*own) as usize / PAGE, 1)?[0];
        if frame & PRESENT == 0 || frame & FRAME == 0 {
            return Err(io::Error::other("physical page numbers are hidden: CAP_SYS_ADMIN is needed"));
        }
        Ok(pages)
    }

    /// Those of `pages` that are cached and carry a mark, ascending. Does not set marks itself, and reads
    /// nothing from the device, save a page that goes just while it is looked at.
    pub(super) fn referenced(&self, pages: &BlockSet) -> io::Result<Vec<Range<u64>>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        self.settle_marks(pages)?;
        for run in pages.runs() {
            let mut start = run.start.0;
            while start < run.end().0 {
                let end = run.end().0.min(start + WINDOW_PAGES);
                for page in self.window(start..end)? {
                    match found.last_mut().filter(|last| last.end == page) {
                        Some(last) => last.end += 1,
                        None => found.push(page..page + 1),
                    }
                }
                start = end;
            }
        }
        Ok(found)
    }

    /// Has the kernel finish marking. A page that is looked at a second time loses one mark at once and
    /// gets the other when its CPU has collected some more of them (`folio_activate` in mm/swap.c): in
    /// between it has none. All CPUs finish (`lru_add_drain_all`) when `POSIX_FADV_DONTNEED` meets a page
    /// that it cannot drop. One that is mapped is such a page, and nothing else happens to it.
    fn settle_marks(&self, pages: &BlockSet) -> io::Result<()> {
        for run in pages.runs() {
            let mut start = run.start.0;
            while start < run.end().0 {
                let end = run.end().0.min(start + WINDOW_PAGES);
                let window = Mapping::new(&self.device, start, (end - start) as usize)?;
                for (page, _) in window.cached()?.into_iter().enumerate().filter(|(_, cached)| *cached) {
                    if window.map_page(page, &self.sink).is_ok()
                        && self.frames(window.address as usize / PAGE + page, 1)?[0] & PRESENT != 0
                    {
                        let offset = (start + page as u64) * BLOCK_BYTES;
                        let len = std::num::NonZeroU64::new(BLOCK_BYTES);
                        return Ok(rustix::fs::fadvise(
                            &self.device,
                            offset,
                            len,
                            rustix::fs::Advice::DontNeed,
                        )?);
                    }
                }
                start = end;
            }
        }
        Ok(())
    }

    fn window(&self, pages: Range<u64>) -> io::Result<Vec<u64>> {
        let window = Mapping::new(&self.device, pages.start, (pages.end - pages.start) as usize)?;
        let cached = window.cached()?;
        for page in (0..window.pages).filter(|page| cached[*page]) {
            // Behind the end of the device, or unreadable: then it is not mapped, which shows below.
            let _ = window.map_page(page, &self.sink);
        }
        let frames = self.frames(window.address as usize / PAGE, window.pages)?;
        let mut marked = Vec::new();
        for (page, frame) in frames.into_iter().enumerate() {
            if cached[page] && frame & PRESENT != 0 {
                let mut flags = [0; 8];
                self.flags.read_exact_at(&mut flags, (frame & FRAME) * 8)?;
                if u64::from_ne_bytes(flags) & (REFERENCED | ACTIVE) != 0 {
                    marked.push(pages.start + page as u64);
                }
            }
        }
        Ok(marked)
    }

    /// Entries of the page map for `pages` pages from the virtual page `first`.
    fn frames(&self, first: usize, pages: usize) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; pages * 8];
        self.pagemap.read_exact_at(&mut bytes, first as u64 * 8)?;
        let (entries, _) = bytes.as_chunks::<8>();
        Ok(entries.iter().map(|entry| u64::from_ne_bytes(*entry)).collect())
    }
}

fn page_bytes() -> Option<usize> {
    // SAFETY: sysconf takes a number and touches no memory of ours.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()
}

/// Pages of a device in our memory, never touched by our own instructions: an unreadable one would be a
/// SIGBUS.
struct Mapping {
    address: *mut std::ffi::c_void,
    pages: usize,
}

impl Mapping {
    fn new(device: &OwnedFd, first: u64, pages: usize) -> io::Result<Self> {
        let offset = first.checked_mul(BLOCK_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address the kernel chooses.
        let address = unsafe {
            mmap(null_mut(), pages * PAGE, ProtFlags::READ, MapFlags::SHARED, device.as_fd(), offset)?
        };
        let mapping = Self { address, pages };
        // No neighbours are read with a page, and unmapping sets no marks (`vma_has_recency` in
        // include/linux/mm_inline.h), so that looking leaves no traces.
        // SAFETY: the range is the mapping just made, and the advice changes no content.
        unsafe { madvise(address, pages * PAGE, Advice::Random)? };
        Ok(mapping)
    }

    /// Which pages are in the page cache.
    fn cached(&self) -> io::Result<Vec<bool>> {
        let mut cached = vec![0_u8; self.pages];
        // SAFETY: the range is our mapping, and the vector has a byte for each of its pages.
        let result = unsafe { libc::mincore(self.address, self.pages * PAGE, cached.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(cached.into_iter().map(|byte| byte & 1 != 0).collect())
    }

    /// Lets the kernel copy a byte of the page, which maps it, or fails where a program would crash.
    fn map_page(&self, page: usize, sink: &OwnedFd) -> io::Result<()> {
        // SAFETY: page < self.pages, so the byte lies in our mapping; the kernel reads it, not we.
        let written = unsafe {
            let byte = self.address.cast::<u8>().add(page * PAGE);
            libc::pwrite(std::os::fd::AsRawFd::as_raw_fd(sink), byte.cast(), 1, 0)
        };
        if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let _ = unsafe { munmap(self.address, self.pages * PAGE) };
    }
}
