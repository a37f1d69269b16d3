//! The events that a server has received and not answered yet, in memory that its guard shares. If the server
//! dies, the next one answers them.
//!
//! The kernel knows an event by the number of the descriptor that came with it, so there is a slot for each
//! number that a server can have ([`super::limit_descriptors`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use hs_units::{BlockRange, Lba};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Descriptors that a process which fills a file may have, and so the reads that may wait.
pub(super) const SLOTS: usize = 16_384;
const BYTES: usize = SLOTS * size_of::<AtomicU64>();
/// A slot has the first block in the upper bits and the number of blocks in the lower ones; 0 means that no
/// read waits.
const COUNT_BITS: u32 = 24;
/// This number of blocks stands for all blocks up to the end.
const MANY: u64 = (1 << COUNT_BITS) - 1;

/// The table.
#[derive(Debug)]
pub(super) struct Ledger {
    memory: OwnedFd,
    slots: NonNull<AtomicU64>,
}

// SAFETY: the mapping is shared memory that lasts as long as the ledger, and is only touched through atomics.
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Ledger {
    /// An empty one.
    pub(super) fn new() -> io::Result<Self> {
        let memory = rustix::fs::memfd_create("headstart-questions", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, BYTES as u64)?;
        Self::open(memory)
    }

    /// The ledger in memory that another process has handed over.
    pub(super) fn open(memory: OwnedFd) -> io::Result<Self> {
        if rustix::fs::fstat(&memory)?.st_size < BYTES as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, placed by the kernel, of memory that is long enough.
        let slots = unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, access, flags, &memory, 0) }?;
        let slots = NonNull::new(slots.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, slots })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    fn slot(&self, number: i32) -> Option<&AtomicU64> {
        let number = usize::try_from(number).ok().filter(|number| *number < SLOTS)?;
        // SAFETY: the mapping has SLOTS atomics, is aligned to a page, and lasts as long as `self`.
        Some(unsafe { self.slots.add(number).as_ref() })
    }

    /// Notes that a reader waits for these blocks.
    pub(super) fn note(&self, number: i32, blocks: BlockRange) {
        if let Some(slot) = self.slot(number) {
            slot.store(blocks.start.0 << COUNT_BITS | blocks.count.clamp(1, MANY), SeqCst);
        }
    }

    /// Notes that the reader waits no longer.
    pub(super) fn clear(&self, number: i32) {
        if let Some(slot) = self.slot(number) {
            slot.store(0, SeqCst);
        }
    }

    /// The events that wait, and their blocks of a disk of so many blocks.
    pub(super) fn waiting(&self, disk_blocks: u64) -> Vec<(i32, BlockRange)> {
        let slots = (0..SLOTS as i32).filter_map(|number| Some((number, self.slot(number)?.load(SeqCst))));
        let taken = slots.filter(|(_, slot)| *slot != 0);
        taken
            .map(|(number, slot)| {
                let (start, count) = ((slot >> COUNT_BITS).min(disk_blocks), slot & MANY);
                let count = if count == MANY { u64::MAX } else { count };
                (number, BlockRange::new(Lba(start), count.min(disk_blocks - start)))
            })
            .collect()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing that borrows from it is left.
        let _ = unsafe { rustix::mm::munmap(self.slots.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_sees_who_waits() {
        let ledger = Ledger::new().expect("made");
        let other = Ledger::open(ledger.memory.try_clone().expect("cloned")).expect("opened");
        let blocks = |start, count| BlockRange::new(Lba(start), count);
        ledger.note(3, blocks(7, 2));
        ledger.note(SLOTS as i32 - 1, blocks(0, 1 << 40));
        ledger.note(9, blocks(1, 1));
        ledger.clear(9);
        ledger.note(SLOTS as i32, blocks(5, 5));
        ledger.note(-1, blocks(5, 5));
        assert_eq!(other.waiting(100), [(3, blocks(7, 2)), (SLOTS as i32 - 1, blocks(0, 100))]);
        assert_eq!(other.waiting(5), [(3, blocks(5, 0)), (SLOTS as i32 - 1, blocks(0, 5))]);
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        let memory = rustix::fs::memfd_create("short", MemfdFlags::CLOEXEC).expect("made");
        assert!(Ledger::open(memory).is_err());
    }
}
