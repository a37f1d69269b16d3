//! Which pages of a file lie in memory: [`Residency`].

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;

use hs_units::ByteRange;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Pages that are looked at at once.
const MOST_PAGES: usize = 64;

/// A file's mapping, of which the kernel tells what is in memory. Nothing is read through it.
pub(super) struct Residency {
    mapping: NonNull<c_void>,
    bytes: u64,
}

impl Residency {
    /// Of a file of `bytes` bytes. `None` where the kernel does not tell: mincore(2) answers only the owner
    /// of the file.
    pub(super) fn of(file: &File, bytes: u64) -> Option<Self> {
        let user = rustix::process::geteuid();
        if !user.is_root() && file.metadata().ok()?.uid() != user.as_raw() {
            return None;
        }
        // SAFETY: it is a new mapping, at a place that the kernel chooses, and its memory is never touched.
        let mapping = unsafe {
            mmap(std::ptr::null_mut(), bytes as usize, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0)
        };
        Some(Self { mapping: NonNull::new(mapping.ok()?)?, bytes })
    }

    /// Whether all of this range is in memory now; of a long one it is not said.
    pub(super) fn holds(&self, range: ByteRange) -> bool {
        let first = range.offset / PAGE;
        let pages = range.end().div_ceil(PAGE).saturating_sub(first) as usize;
        if pages > MOST_PAGES || !range.fits_in(self.bytes) {
            return false;
        }
        let mut resident = [0_u8; MOST_PAGES];
        // SAFETY: the pages lie in the mapping, and there is a byte for each.
        let told = unsafe {
            let start = self.mapping.as_ptr().byte_add((first * PAGE) as usize);
            libc::mincore(start, pages * PAGE as usize, resident.as_mut_ptr())
        };
        told == 0 && resident[..pages].iter().all(|page| page & 1 == 1)
    }
}

impl Drop for Residency {
    fn drop(&mut self) {
        // SAFETY: this object owns the mapping, and there are no references into it.
        if let Err(error) = unsafe { munmap(self.mapping.as_ptr(), self.bytes as usize) } {
            log::debug!("unmap: {}", io::Error::from(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn pages_that_were_written_are_in_memory_and_holes_are_not() {
        let made = rustix::fs::memfd_create("residency", rustix::fs::MemfdFlags::CLOEXEC).expect("made");
        let file = File::from(made);
        // In the middle and at the end of what could be one large page of 2 MiB, where the system makes such.
        let (large, last) = (512 * PAGE, 2048 * PAGE);
        file.set_len(last + 1).expect("long enough");
        let residency = Residency::of(&file, last + 1).expect("our own file");
        let written = ByteRange::new(large - 2 * PAGE, 2 * PAGE);
        assert!(!residency.holds(written));
        file.write_all_at(&[1; 2 * PAGE as usize], written.offset).expect("written");
        assert!(residency.holds(written));
        assert!(residency.holds(ByteRange::new(large - PAGE + 7, 1)));
        assert!(!residency.holds(ByteRange::new(large - PAGE, PAGE + 1)), "a page of it is a hole");
        file.write_all_at(&[1], last).expect("written");
        assert!(residency.holds(ByteRange::new(last, 1)), "the last page is not whole");
        assert!(!residency.holds(ByteRange::new(last, 2)), "what is behind the end is not there");
    }
}
