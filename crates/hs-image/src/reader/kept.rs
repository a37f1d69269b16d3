//! What stays in memory because it may be asked for: decompressed chunks, and chunks as they are stored.

use std::collections::VecDeque;

use hs_engine::cache::{Cache, CacheUsage, Origin, PolicyKind};
use hs_format::ChunkRef;

use super::Bytes;
use super::blocks_served::BlocksServed;
use super::memory::Key;
use crate::Stored;

/// Hot chunks kept as they are stored, in case that the kernel drops their pages before they are read: some
/// kernels take a fifth of a start's pages within seconds. Compressed, this is the stream of the last
/// seconds.
const HOT_STORED_BYTES: u64 = 8 << 20;

/// A chunk in one of its two forms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Name {
    Decoded(Key),
    Stored(Key),
}

#[derive(Debug)]
enum Value {
    Decoded(Bytes, Option<BlocksServed>),
    Stored(ChunkRef, Stored),
}

impl Value {
    /// Bytes that readers have as well, and keep.
    fn handed_over_bytes(&self) -> u64 {
        match self {
            Self::Decoded(bytes, Some(served)) => bytes.len() as u64 - served.unserved_bytes(),
            Self::Decoded(_, None) | Self::Stored(..) => 0,
        }
    }
}

/// The cache of a [`super::Reader`].
///
/// Chunks that were read are demanded entries of it, decompressed. Windows that came as neighbours or ahead
/// of a reader are prefetched entries until they are read, and hot chunks as they are stored stay so.
#[derive(Debug)]
pub(super) struct Kept {
    cache: Cache<Name, Value>,
    /// Readers keep what they are given: see [`super::ReaderOptions::readers_keep`].
    readers_keep: bool,
    handed_over_bytes: u64,
    hot_stored: VecDeque<(u32, u64)>,
    hot_stored_bytes: u64,
}

impl Kept {
    pub(super) fn new(policy: PolicyKind, budget_bytes: u64, readers_keep: bool) -> Self {
        Self {
            cache: Cache::new(policy, budget_bytes),
            readers_keep,
            handed_over_bytes: 0,
            hot_stored: VecDeque::new(),
            hot_stored_bytes: 0,
        }
    }

    pub(super) fn usage(&self) -> CacheUsage {
        self.cache.usage()
    }

    /// Bytes in it that readers have as well, and keep.
    pub(super) fn handed_over_bytes(&self) -> u64 {
        self.handed_over_bytes
    }

    pub(super) fn policy(&self) -> PolicyKind {
        self.cache.policy()
    }

    /// Returns what leaves, so that it can be freed where no read waits.
    pub(super) fn set_budget(&mut self, bytes: u64) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        let handed_over_bytes = &mut self.handed_over_bytes;
        self.cache.set_budget(bytes, |_, value| {
            *handed_over_bytes -= value.handed_over_bytes();
            leaving.push(Leaving(value));
        });
        leaving
    }

    /// A read asks for the chunk: its bytes, if they are here and need not be decompressed first.
    pub(super) fn ask(&mut self, key: Key) -> Option<Bytes> {
        // One that waits as it is stored is found as well, only not ready.
        let waits = !self.has(key) && self.cache.contains(&Name::Stored(key));
        let name = if waits { Name::Stored(key) } else { Name::Decoded(key) };
        match self.cache.get(&name)? {
            Value::Decoded(bytes, _) => Some(Bytes::clone(bytes)),
            Value::Stored(..) => None,
        }
    }

    /// The chunk's bytes, if they are here; that does not count as asking.
    pub(super) fn peek(&self, key: Key) -> Option<Bytes> {
        match self.cache.peek(&Name::Decoded(key))? {
            Value::Decoded(bytes, _) => Some(Bytes::clone(bytes)),
            Value::Stored(..) => None,
        }
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.cache.contains(&Name::Decoded(key))
    }

    /// Keeps a chunk's bytes, of which blocks may have been served.
    pub(super) fn put(&mut self, key: Key, bytes: &Bytes, served: Option<BlocksServed>, origin: Origin) {
        let value = Value::Decoded(Bytes::clone(bytes), served.filter(|_| self.readers_keep));
        self.insert(Name::Decoded(key), value, bytes.len() as u64, origin);
    }

    /// Notes that these bytes of a chunk were handed over; whether it left, because nothing of it will be
    /// asked for again.
    pub(super) fn serve(&mut self, key: Key, from: u32, len: u32) -> bool {
        if !self.readers_keep {
            return false;
        }
        let name = Name::Decoded(key);
        let Some(Value::Decoded(bytes, served)) = self.cache.peek_mut(&name) else { return false };
        let served = served.get_or_insert_with(|| BlocksServed::none_of(bytes.len()));
        let before = served.unserved_bytes();
        let is_last = served.serve(from, len);
        self.handed_over_bytes += before - served.unserved_bytes();
        is_last && self.remove(&name).is_some()
    }

    /// Keeps a window as it is stored.
    pub(super) fn put_stored(&mut self, window: u64, chunk: ChunkRef, stored: Stored) {
        let weight = stored.len() as u64;
        let value = Value::Stored(chunk, stored);
        self.insert(Name::Stored(Key::Cold(window)), value, weight, Origin::Prefetched);
    }

    /// Whether the window is here as it is stored.
    pub(super) fn has_stored(&self, window: u64) -> bool {
        self.cache.contains(&Name::Stored(Key::Cold(window)))
    }

    /// Takes out a window as it is stored.
    pub(super) fn take_stored(&mut self, window: u64) -> Option<(ChunkRef, Stored)> {
        match self.remove(&Name::Stored(Key::Cold(window)))? {
            Value::Stored(chunk, stored) => Some((chunk, stored)),
            Value::Decoded(..) => None,
        }
    }

    /// Keeps a hot chunk as it is stored; the oldest leave for it beyond a limit of their own.
    pub(super) fn put_hot_stored(&mut self, number: u32, chunk: ChunkRef, stored: Stored) {
        let weight = stored.len() as u64;
        let value = Value::Stored(chunk, stored);
        self.insert(Name::Stored(Key::Hot(number)), value, weight, Origin::Prefetched);
        self.hot_stored.push_back((number, weight));
        self.hot_stored_bytes += weight;
        while self.hot_stored_bytes > HOT_STORED_BYTES
            && let Some((oldest, bytes)) = self.hot_stored.pop_front()
        {
            self.hot_stored_bytes -= bytes;
            self.remove(&Name::Stored(Key::Hot(oldest)));
        }
    }

    /// A hot chunk as it is stored, if it is here.
    pub(super) fn hot_stored(&self, number: u32) -> Option<Stored> {
        match self.cache.peek(&Name::Stored(Key::Hot(number)))? {
            Value::Stored(_, stored) => Some(stored.clone()),
            Value::Decoded(..) => None,
        }
    }

    fn insert(&mut self, name: Name, value: Value, weight: u64, origin: Origin) {
        let handed_over_bytes = &mut self.handed_over_bytes;
        *handed_over_bytes += value.handed_over_bytes();
        self.cache.insert(name, value, weight, origin, |_, value| {
            *handed_over_bytes -= value.handed_over_bytes();
        });
    }

    fn remove(&mut self, name: &Name) -> Option<Value> {
        let value = self.cache.remove(name)?;
        self.handed_over_bytes -= value.handed_over_bytes();
        Some(value)
    }
}

/// What left the cache and has not been freed yet.
pub(super) struct Leaving(#[expect(dead_code, reason = "held to be freed")] Value);
