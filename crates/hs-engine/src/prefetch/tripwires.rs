//! Which chunks have a tripwire, so that their use is seen.
//!
//! Prefetched blocks can be delivered to a consumer that then answers by itself, as the kernel does from its
//! page cache. Then the server does not see their use, and a start that uses everything looks like a reader
//! that only misses. So one block of some chunks, the *tripwire*, is kept back: a reader of the chunk has to
//! ask for it, and is answered from memory.
//!
//! A tripwire costs its reader a round trip to the server. With full confidence little depends on it, and one
//! in 2 to 16 chunks has one. With low confidence, or while the stream waits for the program before it
//! requests more, each chunk has one.

use hs_units::Nanos;

use super::Prefetch;

/// With full confidence one of this many chunks has a tripwire where chunks occupy the medium for long, or
/// where each request costs as much as a read. docs/decisions/023-confidence-and-tripwires.md has the
/// derivation.
const CLOSE: u32 = 2;
/// And one of this many where chunks cost the medium almost nothing, so that more tripwires would only cost.
const FAR: u32 = 16;
/// After this many chunks without a tripwire use is no longer seen: none could be placed.
const BLIND: u32 = 16;

/// Up to which chunk the hot region was delivered, and up to which chunk its use is seen.
#[derive(Debug, Default)]
pub(super) struct Tripwires {
    delivered_end: u32,
    seen_end: u32,
}

impl Tripwires {
    /// Whether tripwires show use. Before the first one is placed, and long after the last, they do not.
    const fn show_use(&self) -> bool {
        self.seen_end > 0 && self.delivered_end <= self.seen_end + BLIND
    }
}

impl Prefetch {
    /// From now on uses are not reported: another component than the caller has the blocks, and none can be
    /// kept back.
    pub const fn handle_use_hidden(&mut self) {
        self.config.sees_use = false;
        self.confidence.set_use_seen(false);
    }

    /// Use is seen by tripwires alone, so not before the first tripwire. What is read until then, for example
    /// to mount a file system, counts neither for nor against the stream.
    pub const fn handle_use_by_tripwires(&mut self) {
        self.confidence.set_use_seen(false);
    }

    /// A chunk is delivered to a consumer that then answers by itself. Returns whether a block of it should
    /// be kept back. If one can be, the caller reports it to [`Prefetch::handle_tripwire`].
    pub fn handle_delivery(&mut self, now: Nanos, chunk: u32) -> bool {
        if !self.config.sees_use || self.ended.is_some() || self.next == self.chunks.len() {
            return false;
        }
        self.tripwires.delivered_end = self.tripwires.delivered_end.max(chunk + 1);
        self.confidence.set_use_seen(self.tripwires.show_use());
        let is_due =
            self.tripwires.seen_end == 0 || chunk >= self.tripwires.seen_end - 1 + self.tripwire_every();
        is_due || self.confidence.is_low() || self.awaits_program(now)
    }

    /// The mean stored size of a chunk.
    pub(super) fn mean_chunk_bytes(&self) -> u64 {
        self.chunks.all_stored() / u64::from(self.chunks.len()).max(1)
    }

    /// With full confidence, one of this many chunks has a tripwire.
    fn tripwire_every(&self) -> u32 {
        match self.estimate.transfer(self.mean_chunk_bytes()) {
            Some(takes) if !self.has_dear_requests() => {
                let chunks = self.config.tripwires_apart.0 / takes.0.max(1);
                u32::try_from(chunks).unwrap_or(FAR).clamp(CLOSE, FAR)
            }
            _ => CLOSE,
        }
    }

    /// A block of this chunk was kept back, so that a reader of the chunk asks for it.
    pub fn handle_tripwire(&mut self, chunk: u32) {
        self.tripwires.seen_end = self.tripwires.seen_end.max(chunk + 1);
        self.confidence.set_use_seen(self.tripwires.show_use());
    }
}
