//! The thread that writes entries.
//!
//! Fetched bytes are needed now, and their entry not before the next start. Writing an entry costs about a
//! tenth of a start's processor time. So the thread has the lowest priority, and where processors are scarce,
//! entries wait in memory until the readers have their bytes. Priority alone is not enough: a busy machine
//! still runs some of fifty such threads, and one that is preempted while it holds a lock of the allocator
//! stops threads of higher priority. So it checks the load first ([`Calm`]). Dropping the cache does not wait
//! for this thread, which rarely runs: the caller writes what is left.

mod calm;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use hs_units::Digest;
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::calm::{Calm, runnable};
use super::Folder;

/// Bytes that may wait to be written; a caller with more writes them itself. The hot region of a start
/// usually has this much.
const WAITING_BYTES: usize = 16 << 20;
/// As nice(1) counts: a sixtieth of the share of others, and all time that they leave.
const NICE: i32 = 19;
/// Bytes that are written before the thread checks again whether others need the processor: about a
/// millisecond.
const TURN_BYTES: usize = 1 << 20;

/// Verified bytes and their name.
pub(super) struct Entry {
    pub(super) digest: Digest,
    pub(super) bytes: Bytes,
}

/// Writes entries. Dropping it returns after all entries have been written.
pub(super) struct Writer {
    folder: Arc<Folder>,
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    bytes: usize,
    ended: bool,
}

impl Writer {
    pub(super) fn start(folder: &Arc<Folder>) -> io::Result<Self> {
        let queue = Arc::<Queue>::default();
        let thread = std::thread::Builder::new().name("hs-disk-cache".to_owned()).spawn({
            let (folder, queue) = (Arc::clone(folder), Arc::clone(&queue));
            // Once: the standard library takes milliseconds for it where there are many mounts, since it
            // looks for control groups in each.
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            move || {
                // For this thread only, on Linux. If it fails, the priority stays as it was.
                let _ = rustix::process::setpriority_process(None, NICE);
                while queue.wait_until_calm(processors) {
                    queue.write_a_turn(&folder);
                }
            }
        })?;
        Ok(Self { folder: Arc::clone(folder), queue, thread: Some(thread) })
    }

    /// Has an entry written: later, or by the caller when too much waits.
    pub(super) fn put(&self, entry: Entry) {
        if let Err(entry) = self.queue.put(entry) {
            self.folder.write(&entry);
        }
    }

    /// The bytes of an entry that waits to be written, if it has so many.
    pub(super) fn find(&self, digest: &Digest, len: u64) -> Option<Vec<u8>> {
        let waiting = self.queue.waiting.lock();
        let entry = waiting.entries.iter().find(|entry| entry.digest == *digest)?;
        (entry.bytes.len() as u64 == len).then(|| entry.bytes.to_vec())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.end();
        while let Some(entry) = self.queue.take() {
            self.folder.write(&entry);
        }
        if let Some(thread) = self.thread.take() {
            // The thread may be in the middle of an entry.
            let _ = thread.join();
        }
    }
}

/// Whether more threads can run than there are processors. False where the system does not tell.
fn is_crowded(processors: usize) -> bool {
    let runnable = std::fs::read_to_string("/proc/loadavg").ok().and_then(|told| runnable(&told));
    runnable.is_some_and(|runnable| runnable > processors)
}

impl Queue {
    /// Queues an entry, or returns it when there is no room.
    fn put(&self, entry: Entry) -> Result<(), Entry> {
        let mut waiting = self.waiting.lock();
        let bytes = waiting.bytes + entry.bytes.len();
        if bytes > WAITING_BYTES {
            return Err(entry);
        }
        waiting.bytes = bytes;
        let is_first = waiting.entries.is_empty();
        waiting.entries.push_back(entry);
        drop(waiting);
        if is_first {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Waits until there is an entry, and a processor that is free; false when there will be no more entries.
    fn wait_until_calm(&self, processors: usize) -> bool {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |waiting| waiting.entries.is_empty() && !waiting.ended);
        let mut calm = Calm::default();
        while !waiting.ended {
            let (asked, pause) = (Instant::now(), calm.pause());
            let _ = self.changed.wait_while_for(&mut waiting, |waiting| !waiting.ended, pause);
            let took = asked.elapsed();
            if calm.handle_pause(took, MutexGuard::unlocked(&mut waiting, || is_crowded(processors))) {
                return true;
            }
        }
        false
    }

    fn write_a_turn(&self, folder: &Folder) {
        let mut bytes = 0;
        while bytes < TURN_BYTES
            && let Some(entry) = self.take()
        {
            folder.write(&entry);
            bytes += entry.bytes.len();
        }
    }

    /// The next entry, if there is one.
    fn take(&self) -> Option<Entry> {
        let mut waiting = self.waiting.lock();
        let entry = waiting.entries.pop_front()?;
        waiting.bytes -= entry.bytes.len();
        Some(entry)
    }

    fn end(&self) {
        self.waiting.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_processors_are_a_crowd() {
        // The calling thread is one of them.
        assert!(is_crowded(0));
        assert!(!is_crowded(usize::MAX));
    }
}
