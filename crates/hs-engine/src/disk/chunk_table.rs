//! Where each chunk is, and what waits for it.

use std::ops::Range;

use hs_units::{ByteRange, Nanos};

use super::action::{DecoderId, ReadId};
use super::blocks_served::BlocksServed;
use super::image_map::ChunkKey;
use super::reads::Requester;
use super::slab::Slab;
use crate::cache::table::{Table, hash_of};

/// How far a chunk is. [`super`] draws it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    /// Nothing is known of it, or it was dropped.
    #[default]
    Absent,
    /// Wanted: the stream is to bring it, and has not asked for it yet.
    Joined,
    /// Wanted: a page of the index must come first, that in this slot.
    AwaitsIndex { page: u32 },
    /// A request for it waits in the queue.
    Queued { request: u32 },
    /// A fetch brings it.
    InFlight { fetch: u32 },
    /// Its stored bytes are in memory.
    Stored,
    /// They are being decompressed.
    Decoding { decoder: DecoderId },
    /// Its raw bytes are in memory.
    Raw,
    /// Its readers have all of it and keep it.
    Delivered,
    /// It cannot be had, and is not asked for again before that.
    Failed { until: Nanos },
}

/// A piece of a read that waits for a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub read: ReadId,
    pub span: u32,
}

/// A chunk that something is known of.
#[derive(Debug)]
pub(super) struct Chunk {
    pub key: ChunkKey,
    pub stage: Stage,
    pub place: ByteRange,
    pub raw_bytes: u32,
    /// Whether the shell has its stored bytes.
    pub stored: bool,
    /// Whether these are in the cache.
    pub stored_cached: bool,
    /// Whether they are kept although no read has asked for them.
    pub filled: bool,
    /// Whether its raw bytes are in the cache.
    pub raw_cached: bool,
    /// Whether its raw bytes wait for their readers, within the prefetch's budget.
    pub held: bool,
    /// Reads and deliveries that need its raw bytes: they stay as long.
    pub pins: u32,
    /// Which entry among those that wait for a decoder is its own; none when zero.
    pub decode_ticket: u32,
    /// The stream brings it, or has brought it.
    pub from_stream: bool,
    /// Its stored bytes were asked for, or were kept, without a read that waited: the medium may do better if
    /// they are damaged.
    pub early: bool,
    /// It is fetched by itself, since a fetch of several failed.
    pub alone: bool,
    /// The page cache has taken it.
    pub delivered: bool,
    /// The most urgent requester that has asked for it.
    pub requester: Requester,
    pub waiters: Vec<Waiter>,
    /// Of a page: cold chunks that wait for it.
    pub dependents: Vec<u32>,
    /// Blocks that a delivery leaves out.
    pub left_out: Vec<Range<u32>>,
    pub served: BlocksServed,
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            key: ChunkKey::Hot(0),
            stage: Stage::Absent,
            place: ByteRange::new(0, 0),
            raw_bytes: 0,
            stored: false,
            stored_cached: false,
            filled: false,
            raw_cached: false,
            held: false,
            pins: 0,
            decode_ticket: 0,
            from_stream: false,
            early: false,
            alone: false,
            delivered: false,
            requester: Requester::default(),
            waiters: Vec::new(),
            dependents: Vec::new(),
            left_out: Vec::new(),
            served: BlocksServed::default(),
        }
    }
}

impl Chunk {
    /// Whether a read, or a chunk that a read waits for, waits for this one.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiters.is_empty() || !self.dependents.is_empty()
    }

    /// Whether nothing is known of it that could not be forgotten.
    fn is_forgettable(&self) -> bool {
        self.stage == Stage::Absent && !self.stored && self.pins == 0 && !self.is_awaited()
    }
}

/// All chunks that something is known of.
#[derive(Debug, Default)]
pub(super) struct ChunkTable {
    table: Table,
    chunks: Slab<Chunk>,
}

impl ChunkTable {
    /// The slot of a chunk that something is known of.
    pub(super) fn find(&self, key: ChunkKey) -> Option<u32> {
        self.table.find(hash_of(&key), |slot| self.chunks[slot].key == key)
    }

    /// The slot of a chunk.
    pub(super) fn enter(&mut self, key: ChunkKey) -> u32 {
        if let Some(slot) = self.find(key) {
            return slot;
        }
        let slot = self.chunks.take();
        let chunk = &mut self.chunks[slot];
        let (mut waiters, mut dependents) =
            (std::mem::take(&mut chunk.waiters), std::mem::take(&mut chunk.dependents));
        let (mut left_out, served) = (std::mem::take(&mut chunk.left_out), std::mem::take(&mut chunk.served));
        waiters.clear();
        dependents.clear();
        left_out.clear();
        *chunk = Chunk { key, waiters, dependents, left_out, served, ..Chunk::default() };
        self.table.insert(slot, hash_of(&key));
        slot
    }

    /// Forgets a chunk of which nothing need be known.
    pub(super) fn tidy(&mut self, slot: u32) {
        if self.chunks.get(slot).is_some_and(Chunk::is_forgettable) {
            self.table.remove(slot);
            self.chunks.release(slot);
        }
    }

    /// A chunk by its slot, if there is one.
    pub(super) fn get(&self, slot: u32) -> Option<&Chunk> {
        self.chunks.get(slot)
    }

    /// One more than the highest slot.
    pub(super) fn end(&self) -> u32 {
        self.chunks.end()
    }

    /// Chunks that something is known of.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.chunks.len()
    }
}

impl std::ops::Index<u32> for ChunkTable {
    type Output = Chunk;

    fn index(&self, slot: u32) -> &Chunk {
        &self.chunks[slot]
    }
}

impl std::ops::IndexMut<u32> for ChunkTable {
    fn index_mut(&mut self, slot: u32) -> &mut Chunk {
        &mut self.chunks[slot]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Enter(ChunkKey),
        Pin(ChunkKey, u32),
        Store(ChunkKey, bool),
        Set(ChunkKey, bool),
        Tidy(ChunkKey),
    }

    fn key() -> impl Strategy<Value = ChunkKey> {
        prop_oneof![
            (0..6u32).prop_map(ChunkKey::Hot),
            (0..6u64).prop_map(ChunkKey::Cold),
            (0..3u32).prop_map(ChunkKey::Page),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            key().prop_map(Step::Enter),
            (key(), 0..3u32).prop_map(|(key, pins)| Step::Pin(key, pins)),
            (key(), any::<bool>()).prop_map(|(key, stored)| Step::Store(key, stored)),
            (key(), any::<bool>()).prop_map(|(key, raw)| Step::Set(key, raw)),
            key().prop_map(Step::Tidy),
        ]
    }

    proptest! {
        /// Against a map: what is known of a chunk stays known until nothing need be, and slots are not mixed
        /// up.
        #[test]
        fn it_knows_what_a_map_knows(steps in prop::collection::vec(step(), 0..200)) {
            let mut table = ChunkTable::default();
            let mut model: BTreeMap<ChunkKey, (Stage, bool, u32)> = BTreeMap::new();
            for step in steps {
                let of = |table: &ChunkTable, key| table.find(key);
                match step {
                    Step::Enter(key) => {
                        table.enter(key);
                        model.entry(key).or_default();
                    }
                    Step::Pin(key, pins) => if let Some(slot) = of(&table, key) {
                        table[slot].pins = pins;
                        model.get_mut(&key).unwrap().2 = pins;
                    },
                    Step::Store(key, stored) => if let Some(slot) = of(&table, key) {
                        table[slot].stored = stored;
                        model.get_mut(&key).unwrap().1 = stored;
                    },
                    Step::Set(key, raw) => if let Some(slot) = of(&table, key) {
                        let stage = if raw { Stage::Raw } else { Stage::Absent };
                        table[slot].stage = stage;
                        model.get_mut(&key).unwrap().0 = stage;
                    },
                    Step::Tidy(key) => {
                        if let Some(slot) = of(&table, key) {
                            table.tidy(slot);
                        }
                        if model.get(&key) == Some(&(Stage::Absent, false, 0)) {
                            model.remove(&key);
                        }
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for (key, known) in &model {
                    let chunk = &table[table.find(*key).expect("it is known")];
                    prop_assert_eq!(chunk.key, *key);
                    prop_assert_eq!((chunk.stage, chunk.stored, chunk.pins), *known);
                }
            }
        }
    }
}
