//! Which chunks keep a block back, so that who uses them is seen.
//!
//! What is prefetched may go to somebody who then answers by himself, as the kernel does from its page cache.
//! Then nobody sees that it is used, and a start that uses everything cannot be told from a reader who only
//! misses. So of some chunks one block, the *marker*, is kept: who uses the chunk has to ask for it, and is
//! answered from memory.
//!
//! A marker costs its reader a round trip to us. While nothing speaks against the stream few depend on it,
//! and one in 2 to 16 chunks has one; while there are doubts, or the stream waits to hear of the program
//! before it asks for more, each chunk has.

use hs_units::Nanos;

use super::Prefetch;

/// While nothing speaks against the stream one of so many chunks has a marker where they take the medium
/// long, or each request costs as much as a read. In the experiment `demand-p99` (seeds 11 to 14) starts from
/// the link without overlap, where the stream waits to hear of the program, keep their bound with 1 and 2
/// (1.36 for each seed). With 4 one of the four seeds exceeds it (1.88), with 8 three (1.55): what is on its
/// way when the first miss comes is too seldom seen. From the CD a start takes up to 1.01 of the time without
/// prefetch with 8, 0.85 with 2.
const CLOSE: u32 = 2;
/// And one of so many where they take it next to no time, so that more of them would be a price for nothing.
const FAR: u32 = 16;
/// After so many chunks without a marker use is not seen any more: there was no place for one.
const BLIND: u32 = 16;

/// Up to where chunks went to who answers by himself, and up to where use of them is seen.
#[derive(Debug, Default)]
pub(super) struct Markers {
    delivered_end: u32,
    seen_end: u32,
}

impl Markers {
    /// Whether use is seen by them: before the first is placed, and long after the last, it is not.
    const fn show_use(&self) -> bool {
        self.seen_end > 0 && self.delivered_end <= self.seen_end + BLIND
    }
}

impl Prefetch {
    /// From now on nobody is told of what is read: somebody else than the caller has the blocks, and none can
    /// be kept back.
    pub const fn handle_use_hidden(&mut self) {
        self.config.sees_use = false;
        self.evidence.set_sight(false);
    }

    /// What is used is seen by markers alone, so not before there is one: what is read until then, to mount a
    /// file system say, speaks neither for the stream nor against it.
    pub const fn handle_use_by_markers(&mut self) {
        self.evidence.set_sight(false);
    }

    /// A chunk goes to somebody who then answers by himself. Whether a block of it should be kept back; if
    /// there is one that can be, [`Prefetch::handle_marker`] is to be told.
    pub fn handle_delivery(&mut self, now: Nanos, chunk: u32) -> bool {
        if !self.config.sees_use || self.ended.is_some() || self.next == self.chunks.len() {
            return false;
        }
        self.markers.delivered_end = self.markers.delivered_end.max(chunk + 1);
        self.evidence.set_sight(self.markers.show_use());
        let is_due = self.markers.seen_end == 0 || chunk >= self.markers.seen_end - 1 + self.marked_every();
        is_due || self.evidence.has_doubts() || self.awaits_program(now)
    }

    /// Stored bytes of a chunk.
    pub(super) fn mean_chunk_bytes(&self) -> u64 {
        self.chunks.all_stored() / u64::from(self.chunks.len()).max(1)
    }

    /// While nothing speaks against the stream, one of so many chunks has a marker.
    fn marked_every(&self) -> u32 {
        match self.estimate.transfer(self.mean_chunk_bytes()) {
            Some(takes) if !self.has_dear_requests() => {
                let chunks = self.config.markers_apart.0 / takes.0.max(1);
                u32::try_from(chunks).unwrap_or(FAR).clamp(CLOSE, FAR)
            }
            _ => CLOSE,
        }
    }

    /// A block of this chunk was kept back, so that who uses the chunk asks for it.
    pub fn handle_marker(&mut self, chunk: u32) {
        self.markers.seen_end = self.markers.seen_end.max(chunk + 1);
        self.evidence.set_sight(self.markers.show_use());
    }
}
