//! Entries that left not long ago.

use super::queue::{Nodes, Queue};
use super::segments::Arena;
use super::table::Table;

/// The hashes of entries that left, up to a total weight; the oldest is forgotten first.
#[derive(Debug, Default)]
pub(super) struct Ghost {
    capacity: u64,
    table: Table,
    slots: Arena<()>,
    nodes: Nodes,
    queue: Queue,
}

impl Ghost {
    pub(super) fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
        self.forget_down_to(bytes);
    }

    /// Remembers an entry that leaves.
    pub(super) fn remember(&mut self, hash: u64, weight: u64) {
        self.take(hash);
        if weight > self.capacity {
            return;
        }
        self.forget_down_to(self.capacity - weight);
        let slot = self.slots.insert(());
        self.nodes.set(slot, hash, weight);
        self.queue.push(&mut self.nodes, slot);
        self.table.insert(slot, hash);
    }

    /// Whether an entry of this hash left not long ago; this forgets it.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        let Some(slot) = self.table.find(hash, |_| true) else { return false };
        self.queue.remove(&mut self.nodes, slot);
        self.free(slot);
        true
    }

    fn forget_down_to(&mut self, bytes: u64) {
        while self.queue.weight() > bytes {
            let Some(slot) = self.queue.pop(&mut self.nodes) else { return };
            self.free(slot);
        }
    }

    fn free(&mut self, slot: u32) {
        self.table.remove(slot);
        self.slots.remove(slot);
    }
}
