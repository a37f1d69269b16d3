//! The thread that writes entries.
//!
//! What was fetched is wanted by somebody now, and its entry by nobody before the next start. Writing it costs about a tenth of what a start costs
//! the processor: so the thread is as nice as one can be, and where processors are scarce entries wait in memory until those who
//! want the bytes have them. Whoever ends the cache does not wait for a thread that is let on so seldom, but writes himself what is left.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use hs_units::Digest;
use parking_lot::{Condvar, Mutex};

use super::Folder;

/// Bytes that may wait to be written; whoever has more writes them himself. It is what the hot region of a start usually has.
const WAITING_BYTES: usize = 16 << 20;
/// As nice(1) counts: a sixtieth of what others have, and all that they leave.
const NICE: i32 = 19;

/// Verified bytes and their name.
pub(super) struct Entry {
    pub(super) digest: Digest,
    pub(super) bytes: Vec<u8>,
}

/// Writes entries. When it is dropped, all that were put have been written.
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
            move || {
                // Of a thread, on Linux. One that may not be nice is as it was.
                let _ = rustix::process::setpriority_process(None, NICE);
                while let Some(entry) = queue.take() {
                    folder.write(&entry);
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
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.end();
        while let Some(entry) = self.queue.take() {
            self.folder.write(&entry);
        }
        if let Some(thread) = self.thread.take() {
            // It may be in the middle of an entry.
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// Gives back what has no place.
    fn put(&self, entry: Entry) -> Result<(), Entry> {
        let mut waiting = self.waiting.lock();
        let bytes = waiting.bytes + entry.bytes.len();
        if bytes > WAITING_BYTES {
            return Err(entry);
        }
        waiting.bytes = bytes;
        waiting.entries.push_back(entry);
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    /// The next entry, which is waited for; `None` when there will be none.
    fn take(&self) -> Option<Entry> {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |waiting| waiting.entries.is_empty() && !waiting.ended);
        let entry = waiting.entries.pop_front()?;
        waiting.bytes -= entry.bytes.len();
        Some(entry)
    }

    fn end(&self) {
        self.waiting.lock().ended = true;
        self.changed.notify_all();
    }
}
