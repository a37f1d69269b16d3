//! SIEVE: a hand goes over a queue and takes the first entry that was not asked for since it last came by.
//!
//! Zhang, Yang, Yue, Vigfusson, Rashmi: "SIEVE is simpler than LRU: an efficient turn-key eviction algorithm
//! for web caches", NSDI 2024, algorithm 1. New entries come in at the newest end; the hand goes from the
//! oldest to the newest, clears the mark of those that were asked for, takes the first that has none, stays
//! there, and begins again at the oldest when it has passed the newest. A hit moves nothing.
//!
//! Different from the paper: one step of the hand passes over 64 entries at most ([`EXAMINED_AT_MOST`]).

use super::policy::{EXAMINED_AT_MOST, EvictionPolicy, PolicyKind};
use super::queue::{Nodes, Queue};

/// SIEVE.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    nodes: Nodes,
    queue: Queue,
    /// Where the hand goes on; at the oldest when nowhere.
    hand: Option<u32>,
}

impl EvictionPolicy for Sieve {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Sieve
    }

    fn set_capacity(&mut self, _bytes: u64) {}

    fn inserted(&mut self, slot: u32, hash: u64, weight: u64) {
        self.nodes.set(slot, hash, weight);
        self.queue.push(&mut self.nodes, slot);
    }

    fn touched(&mut self, slot: u32) {
        self.nodes[slot].count = 1;
    }

    fn removed(&mut self, slot: u32) {
        if self.hand == Some(slot) {
            self.hand = Queue::newer(&self.nodes, slot);
        }
        self.queue.remove(&mut self.nodes, slot);
    }

    fn evict(&mut self) -> Option<u32> {
        let mut slot = self.hand.or(self.queue.oldest())?;
        for _ in 0..EXAMINED_AT_MOST {
            if self.nodes[slot].count == 0 {
                break;
            }
            self.nodes[slot].count = 0;
            slot = Queue::newer(&self.nodes, slot).or(self.queue.oldest())?;
        }
        self.hand = Queue::newer(&self.nodes, slot);
        self.queue.remove(&mut self.nodes, slot);
        Some(slot)
    }
}
