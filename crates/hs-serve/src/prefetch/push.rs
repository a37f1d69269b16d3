//! Decompressed chunks on their way into the kernel.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hs_units::BlockRange;
use parking_lot::{Condvar, Mutex};

/// What is done with hot blocks beyond keeping them in memory for their first reader.
pub trait Deliver: Send + Sync {
    /// Takes the blocks of a chunk, extent by extent, into the kernel; false when the kernel does
    /// not want them yet, and they must wait in memory for their reader.
    fn deliver(&self, extents: &[BlockRange], raw: &[u8]) -> bool;
}

/// One decompressed chunk on its way into the kernel.
pub(super) struct Decoded {
    pub(super) chunk: u32,
    pub(super) raw: Arc<Vec<u8>>,
}

/// Decompressed chunks that wait to be pushed.
#[derive(Default)]
pub(super) struct PushQueue {
    chunks: Mutex<PushChunks>,
    changed: Condvar,
}

#[derive(Default)]
struct PushChunks {
    waiting: VecDeque<Decoded>,
    ended: bool,
}

impl PushQueue {
    /// Chunks in the queue beyond which decoding should wait, so that a chunk is pushed while it still lies
    /// in the processor's cache, in memory that the next one uses again.
    const ENOUGH: usize = 4;
    /// But no longer than this: pushing may itself wait for a chunk that has not been decoded yet.
    const PATIENCE: Duration = Duration::from_millis(5);

    pub(super) fn put(&self, chunk: Decoded) {
        let mut chunks = self.chunks.lock();
        let full = |chunks: &mut PushChunks| chunks.waiting.len() >= Self::ENOUGH;
        let _ = self.changed.wait_while_for(&mut chunks, full, Self::PATIENCE);
        chunks.waiting.push_back(chunk);
        drop(chunks);
        self.changed.notify_all();
    }

    /// The next chunk; `None` when there will be no more.
    pub(super) fn take(&self) -> Option<Decoded> {
        let mut chunks = self.chunks.lock();
        self.changed.wait_while(&mut chunks, |chunks| chunks.waiting.is_empty() && !chunks.ended);
        let chunk = chunks.waiting.pop_front();
        drop(chunks);
        self.changed.notify_all();
        chunk
    }

    pub(super) fn end(&self) {
        self.chunks.lock().ended = true;
        self.changed.notify_all();
    }
}
