//! What goes wrong in a world besides its medium, and how often.

use hs_engine::disk::ChunkKey;
use hs_units::{Nanos, Prng};

/// How often things go wrong, of 10,000 times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    /// A chunk is damaged on its way.
    pub(super) damaged: u64,
    /// A chunk is damaged in the image, of so many chunks one; none when zero.
    pub(super) rotten: u64,
    /// A decoder or the delivery thread breaks down at what it is at.
    pub(super) breaks_down: u64,
    /// A fetcher does.
    pub(super) fetcher_breaks_down: u64,
    /// A read is cancelled before it is answered, perhaps.
    pub(super) cancelled: u64,
    /// A delivery lasts long.
    pub(super) slow_delivery: u64,
    /// A delivery does not return before a read that waits is over.
    pub(super) blocked_delivery: u64,
    /// Memory may be short.
    pub(super) short_memory: bool,
    /// The disk is shut down at some time, perhaps long before its clients have read what they want.
    pub(super) ends_at: Option<Nanos>,
    seed: u64,
}

impl Trouble {
    pub(super) fn new(prng: &mut Prng) -> Self {
        let rate =
            |of: u64, most: u64, prng: &mut Prng| if prng.below(of) == 0 { prng.below(most) } else { 0 };
        Self {
            damaged: rate(2, 100, prng),
            rotten: rate(3, 2_000, prng),
            breaks_down: rate(4, 30, prng),
            fetcher_breaks_down: rate(4, 50, prng),
            cancelled: rate(2, 1_500, prng),
            slow_delivery: rate(2, 500, prng),
            blocked_delivery: rate(2, 4_000, prng),
            short_memory: prng.below(4) == 0,
            ends_at: (prng.below(4) == 0).then(|| Nanos(prng.below(3_000_000_000))),
            seed: prng.next_u64(),
        }
    }

    pub(super) fn happens(of: u64, prng: &mut Prng) -> bool {
        of > 0 && prng.below(10_000) < of
    }

    /// Whether a chunk is damaged in the image.
    pub(super) fn is_rotten(&self, key: ChunkKey) -> bool {
        let number = match key {
            ChunkKey::Hot(chunk) => u64::from(chunk) * 2,
            ChunkKey::Cold(window) => window * 2 + 1,
            ChunkKey::Page(_) => return false,
        };
        self.rotten > 0 && Prng::new(self.seed ^ number).below(20 + self.rotten) == 0
    }
}
