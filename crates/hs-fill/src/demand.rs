//! Reads that wait, and the blocks that are filled for them first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use hs_disk::ServedDisk;
use hs_units::{BlockRange, Lba};
use parking_lot::{Condvar, Mutex};

use super::event::Event;
use super::fill_file::FillFile;
use super::group::Question;

/// Blocks that are asked of the image at once: a mapping of a whole disk asks for all of it.
const PIECE_BLOCKS: u64 = 256;

/// The reads that wait now, for background work that waits for their end.
#[derive(Default)]
pub(super) struct Waiting {
    readers: AtomicUsize,
    asked: AtomicU64,
    denied: AtomicU64,
    last: Mutex<Option<Instant>>,
    calm: Condvar,
}

impl Waiting {
    /// Waits until no read has waited for `quiet`, but no longer than `patience`, and only while `goes_on`.
    pub(super) fn stand_back(&self, quiet: Duration, patience: Duration, goes_on: impl Fn() -> bool) {
        let end = Instant::now() + patience;
        let mut last = self.last.lock();
        while goes_on() && Instant::now() < end {
            let is_free = self.readers.load(Relaxed) == 0;
            let rest = last.map_or(Duration::ZERO, |last| quiet.saturating_sub(last.elapsed()));
            if is_free && rest.is_zero() {
                return;
            }
            let until = if is_free { end.min(Instant::now() + rest) } else { end };
            let _ = self.calm.wait_until(&mut last, until);
        }
    }

    /// Waits until no read waits, and only while `goes_on`.
    pub(super) fn until_nobody(&self, goes_on: impl Fn() -> bool) {
        let mut last = self.last.lock();
        while goes_on() && self.readers.load(Relaxed) > 0 {
            self.calm.wait(&mut last);
        }
    }

    /// Wakes the threads that wait here, to look again.
    pub(super) fn wake(&self) {
        drop(self.last.lock());
        self.calm.notify_all();
    }

    /// Readers that had to wait so far, and those that got an error.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.asked.load(Relaxed), self.denied.load(Relaxed))
    }
}

/// A reader that waits for blocks.
pub(super) struct Demand {
    question: Option<Question>,
    blocks: BlockRange,
    waiting: Arc<Waiting>,
}

impl Demand {
    pub(super) fn new(question: Question, blocks: BlockRange, waiting: &Arc<Waiting>) -> Self {
        waiting.readers.fetch_add(1, Relaxed);
        waiting.asked.fetch_add(1, Relaxed);
        Self { question: Some(question), blocks, waiting: Arc::clone(waiting) }
    }

    fn allow(mut self) {
        if let Some(question) = self.question.take() {
            question.allow();
        }
    }

    fn deny(mut self, errno: i32) {
        self.waiting.denied.fetch_add(1, Relaxed);
        if let Some(question) = self.question.take() {
            question.deny(errno);
        }
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        // If the question is still there, dropping it denies it.
        let mut last = self.waiting.last.lock();
        *last = Some(Instant::now());
        self.waiting.readers.fetch_sub(1, Relaxed);
        drop(last);
        self.waiting.calm.notify_all();
    }
}

/// The blocks, of a disk of so many bytes, of an event; all blocks when the event has no range.
pub(super) fn blocks_of(event: &Event, disk_bytes: u64) -> BlockRange {
    let (offset, count) = event.range.unwrap_or((0, u64::MAX));
    let start = offset.min(disk_bytes);
    let end = offset.saturating_add(count).min(disk_bytes);
    if start >= end {
        BlockRange::new(Lba::containing(start), 0)
    } else {
        BlockRange::covering(start, end - start)
    }
}

/// Fills for the reads that wait, piece by piece; never waits for the medium.
pub(super) struct Filler {
    pub(super) file: Arc<FillFile>,
    pub(super) disk: Arc<ServedDisk>,
    /// Demands to go on with; `None` when there are no more.
    pub(super) again: Sender<Option<Demand>>,
}

impl Filler {
    /// Goes on with demands of which a piece has come.
    pub(super) fn work(&self, queue: &Receiver<Option<Demand>>) {
        for demand in queue.iter().map_while(|demand| demand) {
            self.go_on(demand);
        }
    }

    /// Requests the next missing piece of `demand`, or lets its reader read.
    pub(super) fn go_on(&self, demand: Demand) {
        let blocks = demand.blocks;
        let Some(piece) = self.file.missing(blocks.start.0..blocks.end().0, PIECE_BLOCKS) else {
            return demand.allow();
        };
        if self.file.is_changed() {
            return demand.deny(libc::EIO);
        }
        let (offset, len) = self.file.bytes_of(piece);
        // The closure does not own the disk: the thread that answers must not be the one that drops it.
        let (file, again) = (Arc::clone(&self.file), self.again.clone());
        self.disk.submit(offset, len, move |result| {
            let put = match result {
                Ok(pieces) => file.put(piece, pieces),
                // The disk has logged the error.
                Err(_) => Err(libc::EIO),
            };
            match put {
                Err(errno) => demand.deny(errno),
                Ok(()) if piece.end() >= blocks.end() => demand.allow(),
                // Another thread goes on, because `submit` answers on its own stack what is in memory. When
                // that thread has ended, dropping the demand denies it.
                Ok(()) => drop(again.send(Some(demand))),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use hs_units::BLOCK_BYTES;

    use super::*;

    #[test]
    fn events_are_cut_to_the_disk() {
        let event = |range| Event { mask: 0, fd: None, pid: 0, range };
        let blocks = |range| blocks_of(&event(range), 10 * BLOCK_BYTES + 1);
        assert_eq!(blocks(None), BlockRange::new(Lba(0), 11));
        assert_eq!(blocks(Some((4096, 8192))), BlockRange::new(Lba(1), 2));
        assert_eq!(blocks(Some((5000, 1))), BlockRange::new(Lba(1), 1));
        assert_eq!(blocks(Some((0, u64::MAX))), BlockRange::new(Lba(0), 11));
        for nothing in [(4096, 0), (1 << 40, 4096), (u64::MAX, u64::MAX)] {
            assert_eq!(blocks(Some(nothing)).count, 0, "{nothing:?}");
        }
    }
}
