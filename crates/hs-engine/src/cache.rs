//! A cache by weight. Demanded entries are under S3-FIFO; entries that were not asked for yet have a share of
//! their own.
//!
//! ```text
//!            asked for again, or for the first time
//!                          │ ▲
//! insert(Demanded) ──► S3-FIFO ──► evicted                  at most budget − a fifth
//!                            ▲ asked for
//! insert(Prefetched) ──► waiting, first in first out ──► evicted    what is free, and a fifth for certain
//! ```
//!
//! A prefetched entry never displaces a demanded one: it takes free room, and beyond that the place of older
//! prefetched entries. Demanded entries may take all but a fifth, whatever waits there.
//!
//! Every operation is O(1) at a million entries as at ten: slots in segments that never move, queues threaded
//! through them, a table that grows one bucket at a time. The 1991 paper (seeds 002, section 2) found that
//! algorithms made for few buffers are what breaks first when a buffer cache grows into all of memory.

mod ghost;
mod queue;
mod s3_fifo;
mod segments;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::hash::Hash;

use queue::{Nodes, Queue};
use s3_fifo::S3Fifo;
use segments::Arena;
use table::{Table, hash_of};

/// The share of the budget that prefetched entries have for certain: one part in so many.
const PREFETCHED_PART: u64 = 5;

/// Why an entry comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A reader asked for it.
    Demanded,
    /// No reader has asked for it yet.
    Prefetched,
}

/// What a [`Cache`] holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// Bytes that it may hold.
    pub budget_bytes: u64,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Of these, bytes that were not asked for.
    pub prefetched_bytes: u64,
    /// Entries that it holds.
    pub entries: u64,
    /// Times that a requested entry was there.
    pub hits: u64,
    /// Times that it was not.
    pub misses: u64,
    /// Entries that left for others, or for a smaller budget.
    pub evicted: u64,
    /// Of these, entries that were never asked for.
    pub evicted_unused: u64,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    weight: u64,
    origin: Origin,
}

/// A cache of values by key, each with a weight in bytes. The head of this file describes it.
#[derive(Debug)]
pub struct Cache<K, V> {
    table: Table,
    entries: Arena<Entry<K, V>>,
    policy: S3Fifo,
    demanded_bytes: u64,
    waiting_nodes: Nodes,
    waiting: Queue,
    usage: CacheUsage,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// An empty cache of `budget_bytes`.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Self {
        let mut cache = Self {
            table: Table::default(),
            entries: Arena::default(),
            policy: S3Fifo::default(),
            demanded_bytes: 0,
            waiting_nodes: Nodes::default(),
            waiting: Queue::default(),
            usage: CacheUsage::default(),
        };
        cache.set_budget(budget_bytes, |_, _| {});
        cache
    }

    /// Its contents and counters.
    #[must_use]
    pub fn usage(&self) -> CacheUsage {
        CacheUsage {
            bytes: self.demanded_bytes + self.waiting.weight(),
            prefetched_bytes: self.waiting.weight(),
            entries: self.entries.len().into(),
            ..self.usage
        }
    }

    /// A reader asks for `key`: if it is here, it counts as demanded from now on.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        let Some(slot) = self.find(key) else {
            self.usage.misses += 1;
            return None;
        };
        self.usage.hits += 1;
        let entry = self.entries.get(slot)?;
        match entry.origin {
            Origin::Demanded => self.policy.touched(slot),
            Origin::Prefetched => self.promote(slot, entry.weight),
        }
        self.entries.get_mut(slot).map(|entry| &mut entry.value)
    }

    /// An entry helps a reader that did not ask for it by itself: nothing is counted.
    pub fn touch(&mut self, key: &K) {
        let is_demanded =
            |slot: &u32| self.entries.get(*slot).is_some_and(|entry| entry.origin == Origin::Demanded);
        if let Some(slot) = self.find(key).filter(is_demanded) {
            self.policy.touched(slot);
        }
    }

    /// Looks at an entry; nothing is counted and nothing moves.
    #[must_use]
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(self.find(key)?).map(|entry| &entry.value)
    }

    /// As [`Cache::peek`].
    pub fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        let slot = self.find(key)?;
        self.entries.get_mut(slot).map(|entry| &mut entry.value)
    }

    /// Whether it is here; nothing is counted and nothing moves.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// Keeps a value of this many bytes. Evicted entries go to `left`. So does the value itself when it is
    /// larger than its share of the budget, and an older value of the same key, which loses its place in the
    /// order. A demanded entry stays demanded.
    pub fn insert(&mut self, key: K, value: V, weight: u64, origin: Origin, mut left: impl FnMut(K, V)) {
        let mut origin = origin;
        if let Some(slot) = self.find(&key)
            && let Some(old) = self.take(slot)
        {
            if old.origin == Origin::Demanded {
                origin = Origin::Demanded;
            }
            left(old.key, old.value);
        }
        let weight = weight.max(1);
        // Also for a prefetched one: demanded entries may have more than their part since one was promoted.
        self.make_room_for_demanded(0, &mut left);
        let fits = match origin {
            Origin::Demanded => weight <= self.demanded_capacity(),
            Origin::Prefetched => weight <= self.usage.budget_bytes - self.demanded_bytes,
        };
        if !fits {
            return left(key, value);
        }
        if origin == Origin::Demanded {
            self.make_room_for_demanded(weight, &mut left);
        }
        self.make_room(weight, &mut left);
        let slot = self.entries.insert(Entry { key, value, weight, origin });
        let hash = hash_of(&key);
        self.table.insert(slot, hash);
        match origin {
            Origin::Demanded => self.admit(slot, hash, weight),
            Origin::Prefetched => {
                self.waiting_nodes.set(slot, hash, weight);
                self.waiting.push(&mut self.waiting_nodes, slot);
            }
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.find(key)?;
        self.take(slot).map(|entry| entry.value)
    }

    /// Sets the budget; what is too much leaves at once.
    pub fn set_budget(&mut self, bytes: u64, mut left: impl FnMut(K, V)) {
        self.usage.budget_bytes = bytes;
        self.policy.set_capacity(self.demanded_capacity());
        self.make_room_for_demanded(0, &mut left);
        self.make_room(0, &mut left);
    }

    fn demanded_capacity(&self) -> u64 {
        self.usage.budget_bytes - self.usage.budget_bytes / PREFETCHED_PART
    }

    fn find(&self, key: &K) -> Option<u32> {
        self.table.find(hash_of(key), |slot| self.entries.get(slot).is_some_and(|entry| entry.key == *key))
    }

    /// A prefetched entry was asked for. If the demanded ones now have more than their part, the next
    /// insertion corrects it: the cache holds no more bytes than before.
    fn promote(&mut self, slot: u32, weight: u64) {
        self.waiting.remove(&mut self.waiting_nodes, slot);
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.origin = Origin::Demanded;
        }
        self.admit(slot, self.table.hash(slot), weight);
    }

    fn admit(&mut self, slot: u32, hash: u64, weight: u64) {
        self.demanded_bytes += weight;
        self.policy.inserted(slot, hash, weight);
    }

    fn take(&mut self, slot: u32) -> Option<Entry<K, V>> {
        match self.entries.get(slot)?.origin {
            Origin::Demanded => self.policy.removed(slot),
            Origin::Prefetched => self.waiting.remove(&mut self.waiting_nodes, slot),
        }
        self.free(slot)
    }

    /// Forgets an entry that is in no queue any more.
    fn free(&mut self, slot: u32) -> Option<Entry<K, V>> {
        self.table.remove(slot);
        let entry = self.entries.remove(slot)?;
        if entry.origin == Origin::Demanded {
            self.demanded_bytes -= entry.weight;
        }
        Some(entry)
    }

    /// Demanded entries leave until another of this many bytes fits into their part of the budget.
    fn make_room_for_demanded(&mut self, weight: u64, left: &mut impl FnMut(K, V)) {
        let capacity = self.demanded_capacity();
        while self.demanded_bytes > 0 && self.demanded_bytes + weight > capacity {
            let Some(slot) = self.policy.evict() else { return };
            if let Some(entry) = self.free(slot) {
                self.usage.evicted += 1;
                left(entry.key, entry.value);
            }
        }
    }

    /// Prefetched entries leave, oldest first, until another of this many bytes fits into the budget.
    fn make_room(&mut self, weight: u64, left: &mut impl FnMut(K, V)) {
        while self.demanded_bytes + self.waiting.weight() + weight > self.usage.budget_bytes {
            let Some(slot) = self.waiting.pop(&mut self.waiting_nodes) else { return };
            if let Some(entry) = self.free(slot) {
                self.usage.evicted += 1;
                self.usage.evicted_unused += 1;
                left(entry.key, entry.value);
            }
        }
    }
}
