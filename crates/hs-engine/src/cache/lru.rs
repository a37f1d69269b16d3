//! LRU: the entry that was not asked for the longest leaves.
//!
//! One queue; an entry that is asked for becomes the newest. The baseline for the others (Denning: "The
//! working set model for program behavior", CACM 1968, section 3). One scan of a large file empties it, and a
//! loop that is a little larger than the cache never hits.

use super::policy::{EvictionPolicy, PolicyKind};
use super::queue::{Nodes, Queue};

/// Least recently used.
#[derive(Debug, Default)]
pub(super) struct Lru {
    nodes: Nodes,
    queue: Queue,
}

impl EvictionPolicy for Lru {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Lru
    }

    fn set_capacity(&mut self, _bytes: u64) {}

    fn inserted(&mut self, slot: u32, hash: u64, weight: u64) {
        self.nodes.set(slot, hash, weight);
        self.queue.push(&mut self.nodes, slot);
    }

    fn touched(&mut self, slot: u32) {
        self.queue.renew(&mut self.nodes, slot);
    }

    fn removed(&mut self, slot: u32) {
        self.queue.remove(&mut self.nodes, slot);
    }

    fn evict(&mut self) -> Option<u32> {
        self.queue.pop(&mut self.nodes)
    }
}
