//! S3-FIFO: a small queue on trial, a main queue, and a memory of evicted entries.
//!
//! Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP 2023, section 4 and
//! algorithm 1. A new entry goes to the small queue, a tenth of the cache. If it was asked for more than once
//! when it reaches the end, it goes on to the main queue. If not, it leaves, and only its name is kept, in a
//! *ghost* queue as long as the main one. An entry that comes back while its name is kept goes to the main
//! queue at once. There, an entry that was asked for gets another round. One scan passes through the small
//! queue and touches nothing else.
//!
//! Different from the paper: sizes are bytes, and one eviction looks at 64 entries at most
//! ([`EXAMINED_AT_MOST`]).

use super::ghost::Ghost;
use super::queue::{Nodes, Queue};

/// How many entries one eviction looks at, at most.
///
/// Passing over entries that were asked for is O(1) on average only: after a million hits in a row the next
/// eviction would look at a million entries. After so many the next one goes whatever it is. (The 1991 paper
/// warns of just this, seeds 002 section 2: 「オリジナルのバッファキャッシュ操作アルゴリズムにはバッファ
/// キャッシュの数が比較的少ないことを前提にしているものがあり、そのままでは非常に効率が悪い」: algorithms
/// made for few buffers are very slow with many.)
pub(super) const EXAMINED_AT_MOST: usize = 64;

/// The small queue has this part of the cache (section 4: 10%).
const SMALL_PART: u64 = 10;
/// Requests are counted up to here (section 4: two bits).
const MAX_COUNT: u8 = 3;
/// Asked for more often than this, an entry goes on to the main queue (algorithm 1, `evictS`).
const ON_TRIAL_COUNT: u8 = 1;

const SMALL: u8 = 0;
const MAIN: u8 = 1;

/// S3-FIFO. It sees slots, weights in bytes and hashes, never keys or values. Each entry that comes and goes
/// is reported to it.
#[derive(Debug, Default)]
pub(super) struct S3Fifo {
    nodes: Nodes,
    small: Queue,
    main: Queue,
    ghost: Ghost,
    small_bytes: u64,
}

impl S3Fifo {
    /// Entries of this many bytes fit from now on. The caller removes the rest with [`S3Fifo::evict`].
    pub(super) fn set_capacity(&mut self, bytes: u64) {
        self.small_bytes = bytes / SMALL_PART;
        self.ghost.set_capacity(bytes - self.small_bytes);
    }

    /// An entry has come; there is room for it.
    pub(super) fn inserted(&mut self, slot: u32, hash: u64, weight: u64) {
        self.nodes.set(slot, hash, weight);
        let place = if self.ghost.take(hash) { MAIN } else { SMALL };
        self.push(slot, place);
    }

    /// An entry was asked for.
    pub(super) fn touched(&mut self, slot: u32) {
        let node = &mut self.nodes[slot];
        node.count = (node.count + 1).min(MAX_COUNT);
    }

    /// An entry left without a decision of the policy.
    pub(super) fn removed(&mut self, slot: u32) {
        let queue = if self.nodes[slot].place == SMALL { &mut self.small } else { &mut self.main };
        queue.remove(&mut self.nodes, slot);
    }

    /// Chooses the entry that leaves now, and forgets it; `None` when there is no entry.
    pub(super) fn evict(&mut self) -> Option<u32> {
        for _ in 0..EXAMINED_AT_MOST {
            let from_small = !self.small.is_empty() && self.small.weight() >= self.small_bytes;
            let evicted =
                if from_small || self.main.is_empty() { self.evict_small() } else { self.evict_main() };
            if evicted.is_some() {
                return evicted;
            }
        }
        self.main.pop(&mut self.nodes).or_else(|| self.small.pop(&mut self.nodes))
    }

    fn push(&mut self, slot: u32, place: u8) {
        self.nodes[slot].place = place;
        let queue = if place == SMALL { &mut self.small } else { &mut self.main };
        queue.push(&mut self.nodes, slot);
    }

    /// The oldest of the small queue leaves, or goes on to the main one.
    fn evict_small(&mut self) -> Option<u32> {
        let slot = self.small.pop(&mut self.nodes)?;
        let node = self.nodes[slot];
        if node.count > ON_TRIAL_COUNT {
            self.nodes[slot].count = 0;
            self.push(slot, MAIN);
            return None;
        }
        self.ghost.remember(node.hash, node.weight);
        Some(slot)
    }

    /// The oldest of the main queue leaves, or gets another round.
    fn evict_main(&mut self) -> Option<u32> {
        let slot = self.main.pop(&mut self.nodes)?;
        if self.nodes[slot].count > 0 {
            self.nodes[slot].count -= 1;
            self.push(slot, MAIN);
            return None;
        }
        Some(slot)
    }
}
