//! Decompressed chunks on their way into the kernel.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hs_image::{Image, Reader};
use hs_units::{BlockRange, Lba};
use parking_lot::{Condvar, Mutex};

use super::Driver;

/// How the use of delivered blocks is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Each read makes a request first, and the driver is told of it.
    Asked,
    /// Blocks can be left out, and a program that needs one of them makes a request for it.
    Marked,
    /// Not at all.
    Hidden,
}

/// What is done with hot blocks beyond keeping them in memory for their first reader.
pub trait Deliver: Send + Sync {
    /// How the use of delivered blocks is observed.
    fn sight(&self) -> Sight;
    /// Whether delivering takes no longer than copying, and the blocks that reads wait for need not be
    /// delivered as well. Then the rest of a chunk is delivered before those reads are answered; their
    /// readers would ask for it next.
    fn comes_before_answers(&self) -> bool;
    /// Takes the blocks of a chunk, extent by extent, into the kernel, but for those that are `left_out`
    /// (counted from the chunk's first, in ascending order of their starts); false when the kernel does not
    /// want them yet, and they must wait in memory for their reader.
    fn deliver(&self, extents: &[BlockRange], raw: &[u8], left_out: &[Range<u32>]) -> bool;
}

/// The parts of a chunk's extents without the blocks that are `left_out` (counted from the chunk's first, in
/// ascending order of their starts), each with the block of the chunk that it begins with.
pub(crate) fn parts(extents: &[BlockRange], left_out: &[Range<u32>]) -> Vec<(BlockRange, u32)> {
    let mut parts = Vec::with_capacity(extents.len() + left_out.len());
    let mut first = 0;
    for extent in extents {
        let end = first + extent.count as u32;
        let mut at = first;
        for left_out in left_out.iter().chain([&(end..end)]) {
            let until = left_out.start.min(end);
            if at < until {
                let start = Lba(extent.start.0 + u64::from(at - first));
                parts.push((BlockRange::new(start, u64::from(until - at)), at));
            }
            at = at.max(left_out.end);
        }
        first = end;
    }
    parts
}

/// A block of a hot chunk (counted from the chunk's first) that the kernel reads alone when it misses it in
/// the page cache of the disk.
///
/// A miss whose predecessor is missing too is a random read to the kernel, which then reads what was asked
/// for and nothing ahead (`page_cache_sync_ra` of mm/readahead.c: "Standalone, small random read. Read as
/// is"). Such is the first block of an extent behind a cold block. It is also where readers of the extent
/// begin.
fn block_read_alone(image: &Image, chunk: u32) -> Option<u32> {
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
    /// Blocks of it that a read waits for, or got.
    pub(super) asked_for: Vec<Range<u32>>,
}

/// Brings decompressed chunks into the kernel.
///
/// The thread that has decompressed a chunk pushes it, while it lies in its processor's cache, and then
/// answers the reads that wait for blocks of it. In the other order the readers run at once, and ask through
/// FUSE for blocks that were about to be pushed: four switches between threads for each.
/// docs/decisions/031-push-before-answer.md.
///
/// Pushing waits for a page that a reader holds. The reads that the chunk was waited for with are left out,
/// but a later read may wait for another chunk, which has to be decompressed first. So only one decoding
/// thread pushes at a time, of two at least. What the other threads decompress meanwhile is pushed by threads
/// that do nothing else.
pub(super) struct Pushing {
    deliver: Arc<dyn Deliver>,
    /// Held by the decoding thread that pushes.
    at_once: Mutex<()>,
    queue: PushQueue,
}

impl Pushing {
    /// A decoding thread waits so long for another one that pushes. Pushing a chunk takes a tenth of it,
    /// unless it waits for a page.
    const PATIENCE: Duration = Duration::from_millis(1);

    pub(super) fn new(deliver: Arc<dyn Deliver>) -> Self {
        Self { deliver, at_once: Mutex::new(()), queue: PushQueue::default() }
    }

    /// Pushes a chunk before the reads that wait for it are answered; gives it back if it has to be pushed
    /// after that.
    pub(super) fn push_at_once(
        &self,
        driver: &Driver,
        reader: &Reader,
        mut decoded: Decoded,
    ) -> Option<Decoded> {
        if !self.deliver.comes_before_answers() {
            decoded.asked_for.clear();
            return Some(decoded);
        }
        let Some(_turn) = self.at_once.try_lock_for(Self::PATIENCE) else { return Some(decoded) };
        self.push(driver, reader, decoded);
        None
    }

    /// Gives a chunk to the pushing threads.
    pub(super) fn push_later(&self, decoded: Decoded) {
        self.queue.put(decoded);
    }

    /// Pushes the chunks of the queue until the queue ends.
    pub(super) fn work(&self, driver: &Driver, reader: &Reader) {
        while let Some(decoded) = self.queue.take() {
            self.push(driver, reader, decoded);
        }
    }

    /// Ends the queue.
    pub(super) fn end(&self) {
        self.queue.end();
    }

    fn push(&self, driver: &Driver, reader: &Reader, decoded: Decoded) {
        let Decoded { chunk, raw, asked_for: mut left_out } = decoded;
        if self.deliver.sight() == Sight::Marked {
            left_out.extend(keep_back(driver, reader, chunk).map(|block| block..block + 1));
        }
        left_out.sort_unstable_by_key(|blocks| blocks.start);
        if self.deliver.deliver(reader.image().hot_extents(chunk), &raw, &left_out) {
            reader.forget_hot(chunk);
        }
    }
}

/// Leaves out a block of a chunk that is about to be delivered, if one should be and can be; returns which
/// block of the chunk.
fn keep_back(driver: &Driver, reader: &Reader, chunk: u32) -> Option<u32> {
    if !driver.wants_marker(chunk) {
        return None;
    }
    let block = block_read_alone(reader.image(), chunk)?;
    driver.mark(reader, chunk, block).then_some(block)
}

/// Decompressed chunks that wait to be pushed.
#[derive(Default)]
struct PushQueue {
    chunks: Mutex<PushChunks>,
    changed: Condvar,
}

#[derive(Default)]
struct PushChunks {
    waiting: VecDeque<Decoded>,
    ended: bool,
}

impl PushQueue {
    /// When more chunks are queued, decoding should wait, so that a chunk is pushed while it still lies in
    /// the processor's cache, and its memory is reused for the next.
    const ENOUGH: usize = 4;
    /// But no longer than this: pushing may itself wait for a chunk that has not been decoded yet.
    const PATIENCE: Duration = Duration::from_millis(5);

    fn put(&self, chunk: Decoded) {
        let mut chunks = self.chunks.lock();
        let full = |chunks: &mut PushChunks| chunks.waiting.len() >= Self::ENOUGH;
        let _ = self.changed.wait_while_for(&mut chunks, full, Self::PATIENCE);
        chunks.waiting.push_back(chunk);
        drop(chunks);
        self.changed.notify_all();
    }

    /// The next chunk; `None` when the queue has ended.
    fn take(&self) -> Option<Decoded> {
        let mut chunks = self.chunks.lock();
        self.changed.wait_while(&mut chunks, |chunks| chunks.waiting.is_empty() && !chunks.ended);
        let chunk = chunks.waiting.pop_front();
        drop(chunks);
        self.changed.notify_all();
        chunk
    }

    fn end(&self) {
        self.chunks.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hs_units::Prng;

    /// Against a list of single blocks.
    #[test]
    fn the_parts_are_all_blocks_that_are_not_left_out_in_runs_that_are_as_long_as_can_be() {
        let mut prng = Prng::new(5);
        for _ in 0..500 {
            let extents: Vec<BlockRange> = (0..1 + prng.below(4))
                .map(|number| BlockRange::new(Lba(1000 * number + prng.below(100)), 1 + prng.below(9)))
                .collect();
            let count = extents.iter().map(|extent| extent.count).sum::<u64>();
            let mut left_out: Vec<Range<u32>> = (0..prng.below(5))
                .map(|_| (prng.below(count) as u32, 1 + prng.below(4) as u32))
                .map(|(start, count)| start..start + count)
                .collect();
            left_out.sort_unstable_by_key(|blocks| blocks.start);
            let blocks = extents.iter().flat_map(|extent| extent.start.0..extent.end().0).zip(0..);
            let expected: Vec<(u64, u32)> =
                blocks.filter(|(_, block)| !left_out.iter().any(|blocks| blocks.contains(block))).collect();
            let found = parts(&extents, &left_out);
            let each: Vec<(u64, u32)> =
                found.iter().flat_map(|(part, first)| (part.start.0..part.end().0).zip(*first..)).collect();
            assert_eq!(each, expected, "{extents:?} without {left_out:?}");
            let goes_on = |pair: &[(BlockRange, u32)]| pair[0].0.end() == pair[1].0.start;
            assert!(!found.windows(2).any(goes_on), "{extents:?} without {left_out:?}");
        }
    }
}
