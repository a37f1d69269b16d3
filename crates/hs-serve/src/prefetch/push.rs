//! Decompressed chunks on their way into the kernel.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hs_image::Image;
use hs_units::{BlockRange, Lba};
use parking_lot::{Condvar, Mutex};

/// What is done with hot blocks beyond keeping them in memory for their first reader.
pub trait Deliver: Send + Sync {
    /// Whether blocks can be kept back, and who wants one asks for it. Otherwise use of what was delivered is not seen.
    fn can_keep_back(&self) -> bool;
    /// Takes the blocks of a chunk, extent by extent, into the kernel, but for the one that is kept back (the number of a block
    /// in the chunk); false when the kernel does not want them yet, and they must wait in memory for their reader.
    fn deliver(&self, extents: &[BlockRange], raw: &[u8], kept_back: Option<u32>) -> bool;
}

/// A block of a hot chunk (counted from the chunk's first) that the kernel reads alone when it misses it in the page cache of the disk.
///
/// A miss whose predecessor is missing too is a random read to the kernel, which then reads what was asked for and nothing ahead
/// (`page_cache_sync_ra` of mm/readahead.c: "Standalone, small random read. Read as is"). Such is the first block of an extent behind
/// something cold. It is also where those who read the extent begin.
pub(super) fn block_read_alone(image: &Image, chunk: u32) -> Option<u32> {
    let mut block = 0;
    for extent in image.hot_extents(chunk) {
        let before = extent.start.0.checked_sub(1).map(Lba);
        if before.is_some_and(|before| image.hot_place(before).is_none()) {
            return Some(block);
        }
        block += extent.count as u32;
    }
    None
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
