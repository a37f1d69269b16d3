//! What a server that dies has under way, in memory that its VMM keeps for the next one.
//!
//! Layout and order of writes: "Inflight I/O tracking" in QEMU's docs/interop/vhost-user.rst, split
//! virtqueue. A request is marked when it is taken, and unmarked around its entry in the used ring in an
//! order from which the next server finds out whether the guest has got the answer.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use vhost::vhost_user::message::VhostUserInflight;
use vhost::vhost_user::{Error, Result};
use vm_memory::{AtomicAccess, Bytes, MmapRegion, VolatileMemory};

use crate::config::{MOST_QUEUE_ENTRIES, MOST_QUEUES};
use crate::memory::map;

const VERSION: u16 = 1;
/// Queues begin at multiples of it.
const ALIGNMENT: usize = 64;
const HEADER_BYTES: usize = 16;
const VERSION_AT: usize = 8;
const ENTRIES_AT: usize = 10;
const LAST_BATCH_HEAD_AT: usize = 12;
const USED_IDX_AT: usize = 14;
const ENTRY_BYTES: usize = 16;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

fn queue_bytes(entries: u16) -> usize {
    (HEADER_BYTES + usize::from(entries) * ENTRY_BYTES).next_multiple_of(ALIGNMENT)
}

/// What all queues of a device have under way.
pub(crate) struct Inflight {
    region: Arc<MmapRegion>,
    queues: u16,
    entries: u16,
}

impl Inflight {
    /// Memory for a device that has nothing under way, for its VMM to keep.
    pub(crate) fn make(queues: u16, entries: u16) -> Result<(VhostUserInflight, File)> {
        check(queues, entries)?;
        let bytes = queue_bytes(entries) * usize::from(queues);
        let make = || -> io::Result<File> {
            let file = memfd_create("vhost-user-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&file, bytes as u64)?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file.into())
        };
        Ok((
            VhostUserInflight::new(bytes as u64, 0, queues, entries),
            make().map_err(Error::ReqHandlerError)?,
        ))
    }

    /// The memory that a VMM has kept.
    pub(crate) fn open(said: &VhostUserInflight, file: File) -> Result<Self> {
        let (queues, entries) = (said.num_queues, said.queue_size);
        check(queues, entries)?;
        if said.mmap_size < (queue_bytes(entries) * usize::from(queues)) as u64 {
            return Err(Error::InvalidParam);
        }
        let region = Arc::new(map(file, said.mmap_offset, said.mmap_size)?);
        let opened = Self { region, queues, entries };
        for queue in (0..queues).filter_map(|number| opened.queue(number)) {
            match (queue.load::<u16>(VERSION_AT), queue.load::<u16>(ENTRIES_AT)) {
                (0, _) => {
                    queue.store(ENTRIES_AT, entries);
                    queue.store(VERSION_AT, VERSION);
                }
                (VERSION, found) if found == entries => {}
                _ => return Err(Error::InvalidParam),
            }
        }
        Ok(opened)
    }

    /// One of the queues.
    pub(crate) fn queue(&self, number: u16) -> Option<InflightQueue> {
        let start = queue_bytes(self.entries) * usize::from(number);
        let queue =
            InflightQueue { region: Arc::clone(&self.region), start, entries: self.entries, counter: 0 };
        (number < self.queues).then_some(queue)
    }
}

fn check(queues: u16, entries: u16) -> Result<()> {
    let fits = (1..=MOST_QUEUES).contains(&queues) && (1..=MOST_QUEUE_ENTRIES).contains(&entries);
    if fits { Ok(()) } else { Err(Error::InvalidParam) }
}

/// What one queue has under way.
pub(crate) struct InflightQueue {
    region: Arc<MmapRegion>,
    start: usize,
    entries: u16,
    /// Numbers requests in the order in which they are taken.
    counter: u64,
}

impl InflightQueue {
    /// Entries at most.
    pub(crate) fn entries(&self) -> u16 {
        self.entries
    }

    // The region has all entries, so neither fails.
    fn load<T: AtomicAccess + Default>(&self, at: usize) -> T {
        self.region.as_volatile_slice().load(self.start + at, Ordering::Acquire).unwrap_or_default()
    }

    fn store<T: AtomicAccess>(&self, at: usize, value: T) {
        let _ = self.region.as_volatile_slice().store(value, self.start + at, Ordering::Release);
    }

    fn entry(head: u16) -> usize {
        HEADER_BYTES + usize::from(head) * ENTRY_BYTES
    }

    /// The heads of requests that were taken and never answered, in the order in which they were taken, when
    /// the guest's used ring is at `used`.
    pub(crate) fn recover(&mut self, used: u16) -> Vec<u16> {
        let before: u16 = self.load(USED_IDX_AT);
        let mut answered: u16 = self.load(LAST_BATCH_HEAD_AT);
        // The server died between an answer and its mark.
        for _ in 0..used.wrapping_sub(before).min(self.entries) {
            if answered >= self.entries {
                break;
            }
            self.store(Self::entry(answered), 0_u8);
            answered = self.load(Self::entry(answered) + NEXT_AT);
        }
        self.store(USED_IDX_AT, used);
        let marked = (0..self.entries).filter(|head| self.load::<u8>(Self::entry(*head)) != 0);
        let mut left: Vec<(u64, u16)> =
            marked.map(|head| (self.load(Self::entry(head) + COUNTER_AT), head)).collect();
        left.sort_unstable();
        self.counter = left.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        left.into_iter().map(|(_, head)| head).collect()
    }

    /// A request is taken.
    pub(crate) fn take(&mut self, head: u16) {
        if head < self.entries {
            self.store(Self::entry(head) + COUNTER_AT, self.counter);
            self.counter = self.counter.wrapping_add(1);
            self.store(Self::entry(head), 1_u8);
        }
    }

    /// The next entry of the used ring is this request's.
    pub(crate) fn answering(&mut self, head: u16) {
        if head < self.entries {
            self.store(Self::entry(head) + NEXT_AT, self.load::<u16>(LAST_BATCH_HEAD_AT));
            self.store(LAST_BATCH_HEAD_AT, head);
        }
    }

    /// The used ring has it, and is at `used`.
    pub(crate) fn answered(&mut self, head: u16, used: u16) {
        if head < self.entries {
            self.store(Self::entry(head), 0_u8);
        }
        self.store(USED_IDX_AT, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> (Inflight, VhostUserInflight, File) {
        let (said, file) = Inflight::make(2, 128).expect("made");
        let kept = file.try_clone().expect("a duplicate");
        (Inflight::open(&said, file).expect("opened"), said, kept)
    }

    #[test]
    fn the_next_server_finds_what_was_taken_and_not_answered() {
        let (first, said, kept) = opened();
        let mut queue = first.queue(1).expect("a queue");
        assert!(queue.recover(0).is_empty());
        for head in [7, 3, 5] {
            queue.take(head);
        }
        queue.answering(3);
        queue.answered(3, 1);
        let second = Inflight::open(&said, kept).expect("opened again");
        assert_eq!(second.queue(1).expect("a queue").recover(1), [7, 5]);
        assert!(second.queue(0).expect("a queue").recover(0).is_empty());
        assert!(second.queue(2).is_none());
    }

    #[test]
    fn a_server_that_dies_between_an_answer_and_its_mark_does_not_answer_twice() {
        let (first, _, _kept) = opened();
        let mut queue = first.queue(0).expect("a queue");
        queue.recover(0);
        queue.take(7);
        queue.take(9);
        queue.answering(7);
        // The used ring has it, and nothing was written since.
        assert_eq!(first.queue(0).expect("a queue").recover(1), [9]);
        // Before the used ring has it.
        queue.answering(9);
        assert_eq!(first.queue(0).expect("a queue").recover(1), [9]);
    }

    #[test]
    fn counters_go_on_and_strange_contents_are_survived() {
        let (first, said, kept) = opened();
        let mut queue = first.queue(0).expect("a queue");
        queue.take(4);
        let mut next = first.queue(0).expect("a queue");
        assert_eq!(next.recover(0), [4]);
        next.take(2);
        assert_eq!(first.queue(0).expect("a queue").recover(0), [4, 2]);
        queue.store(LAST_BATCH_HEAD_AT, 60_000_u16);
        assert_eq!(first.queue(0).expect("a queue").recover(40_000), [4, 2]);
        queue.store(VERSION_AT, 2_u16);
        assert!(Inflight::open(&said, kept).is_err());
        for (queues, entries) in [(0, 1), (1, 0), (MOST_QUEUES + 1, 1), (1, MOST_QUEUE_ENTRIES + 1)] {
            assert!(Inflight::make(queues, entries).is_err());
        }
        let (mut said, file) = Inflight::make(2, 128).expect("made");
        said.mmap_size *= 2;
        assert!(Inflight::open(&said, file).is_err(), "beyond the end of the file");
    }
}
