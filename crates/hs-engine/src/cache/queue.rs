//! Queues of cached entries, threaded through one array of nodes.

use std::ops::{Index, IndexMut};

use super::segments::{NONE, Segments};

/// What a queue stores about the entry in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    newer: u32,
    older: u32,
    /// Bytes.
    pub(super) weight: u64,
    pub(super) hash: u64,
    /// The queue that it is in, as [`S3Fifo`](super::s3_fifo::S3Fifo) numbers them.
    pub(super) place: u8,
    /// How often it was asked for, as far as that is counted.
    pub(super) count: u8,
}

/// The nodes of all slots.
#[derive(Debug, Default)]
pub(super) struct Nodes(Segments<Node>);

impl Nodes {
    /// Describes the entry that has come into a slot; it is in no queue yet.
    pub(super) fn set(&mut self, slot: u32, hash: u64, weight: u64) {
        let node = Node { newer: NONE, older: NONE, weight, hash, place: 0, count: 0 };
        while self.0.len() <= slot {
            self.0.push(node);
        }
        self.0[slot] = node;
    }
}

impl Index<u32> for Nodes {
    type Output = Node;

    fn index(&self, slot: u32) -> &Node {
        &self.0[slot]
    }
}

impl IndexMut<u32> for Nodes {
    fn index_mut(&mut self, slot: u32) -> &mut Node {
        &mut self.0[slot]
    }
}

/// A doubly linked list of slots, from the oldest to the newest.
#[derive(Debug)]
pub(super) struct Queue {
    newest: u32,
    oldest: u32,
    weight: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, weight: 0 }
    }
}

impl Queue {
    /// Bytes of all entries in it.
    pub(super) const fn weight(&self) -> u64 {
        self.weight
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.oldest == NONE
    }

    pub(super) fn push(&mut self, nodes: &mut Nodes, slot: u32) {
        let node = &mut nodes[slot];
        (node.newer, node.older) = (NONE, self.newest);
        self.weight += node.weight;
        match self.newest {
            NONE => self.oldest = slot,
            newest => nodes[newest].newer = slot,
        }
        self.newest = slot;
    }

    pub(super) fn remove(&mut self, nodes: &mut Nodes, slot: u32) {
        let Node { newer, older, weight, .. } = nodes[slot];
        self.weight -= weight;
        match newer {
            NONE => self.newest = older,
            newer => nodes[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => nodes[older].newer = newer,
        }
    }

    /// Takes out the oldest.
    pub(super) fn pop(&mut self, nodes: &mut Nodes) -> Option<u32> {
        let slot = Some(self.oldest).filter(|oldest| *oldest != NONE)?;
        self.remove(nodes, slot);
        Some(slot)
    }
}
