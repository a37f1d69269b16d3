//! The chunks in memory, and the reads that wait for more.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use hs_engine::cache::{CacheUsage, Origin, PolicyKind};
use hs_engine::queue::Class;
use hs_format::{ChunkRef, WindowRef};
use hs_units::{BLOCK_BYTES, ByteRange, Nanos};

use super::blocks_served::BlocksServed;
use super::kept::{Kept, Leaving};
use super::markers::{MarkerCount, Markers};
use super::{Bytes, Found, Pending, ReaderOptions, Span};
use crate::{Image, Stored};

/// Unreadable chunks that are logged at most; a longer list has no use.
const MAX_TOLD: usize = 4096;

/// Names a chunk: hot ones by their number through all segments, cold ones by their window.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Key {
    Hot(u32),
    Cold(u64),
}

/// A hot chunk that the stream brought and whose blocks have not all been asked for yet.
struct Held {
    bytes: Bytes,
    served: BlocksServed,
}

/// Everything that a [`super::Reader`] remembers.
///
/// A hot chunk from the stream is *held* until each of its blocks was asked for once, within the
/// budget of the prefetch policy. Everything else is [`Kept`], within the budget of the cache.
pub(super) struct Memory {
    held: HashMap<u32, Held>,
    kept: Kept,
    markers: Markers,
    /// Hot chunks of which readers have every block, and keep it: they should not be read again.
    handed_over: HashSet<u32>,
    readers_keep: bool,
    /// Windows that have come and are being decompressed.
    decoding: HashSet<u64>,
    zeroes: Bytes,
    bad: HashSet<u32>,
    /// Chunks that could not be had, of which that was said.
    told: HashSet<Key>,
    loading: HashMap<Key, Vec<u64>>,
    joined: HashSet<Key>,
    stream_over: bool,
    pending: HashMap<u64, Pending>,
    next_pending: u64,
}

impl Memory {
    pub(super) fn new(image: &Image, options: &ReaderOptions) -> Self {
        Self {
            held: HashMap::new(),
            kept: Kept::new(options.cache_policy, options.cache_bytes, options.readers_keep),
            markers: Markers::default(),
            handed_over: HashSet::new(),
            readers_keep: options.readers_keep,
            decoding: HashSet::new(),
            zeroes: Arc::new(vec![0; image.window_bytes() as usize]),
            bad: HashSet::new(),
            told: HashSet::new(),
            loading: HashMap::new(),
            joined: HashSet::new(),
            stream_over: false,
            pending: HashMap::new(),
            next_pending: 0,
        }
    }

    pub(super) fn zeroes(&self) -> Bytes {
        Arc::clone(&self.zeroes)
    }

    /// What is kept, and how often that helped.
    pub(super) fn cache_usage(&self) -> CacheUsage {
        self.kept.usage()
    }

    /// Bytes in memory that readers have as well, and keep.
    pub(super) fn handed_over_bytes(&self) -> u64 {
        if !self.readers_keep {
            return 0;
        }
        let of = |held: &Held| held.bytes.len() as u64 - held.served.unserved_bytes();
        self.kept.handed_over_bytes() + self.held.values().map(of).sum::<u64>()
    }

    /// The policy that evicts from a full cache.
    pub(super) fn cache_policy(&self) -> PolicyKind {
        self.kept.policy()
    }

    /// Returns what leaves a cache that is smaller now.
    pub(super) fn set_cache_budget(&mut self, bytes: u64) -> Vec<Leaving> {
        self.kept.set_budget(bytes)
    }

    /// A read asks for a piece of a chunk: its bytes if they are in memory, or are known to be zero.
    pub(super) fn ask(&mut self, span: &Span, image: &Image) -> Option<Found> {
        match span.key {
            Key::Hot(chunk) if self.held.contains_key(&chunk) => self.peek(span.key).map(Found::whole),
            Key::Hot(chunk) if let Some((bytes, base)) = self.markers.find(chunk, span.from, span.len) => {
                Some(Found { bytes, base, is_marker: true })
            }
            Key::Cold(window) if matches!(image.peek_window(window), Some(WindowRef::Zero)) => {
                Some(Found::whole(self.zeroes()))
            }
            key => self.kept.ask(key).map(Found::whole),
        }
    }

    /// Keeps a block of a hot chunk back, so that a read of it is seen; false when the chunk `has_come` and
    /// is not here, or has another.
    pub(super) fn mark(&mut self, chunk: u32, block_in_chunk: u32, has_come: bool) -> bool {
        let bytes = self.peek(Key::Hot(chunk));
        let has_left = bytes.is_none() && (has_come || self.is_handed_over(chunk));
        if has_left || !self.markers.place(chunk, block_in_chunk) {
            return false;
        }
        if let Some(bytes) = bytes {
            self.fill_marker(chunk, &bytes);
        }
        true
    }

    /// A demand read of this range of the disk, which begins with this piece: the chunk whose marker it
    /// wants.
    pub(super) fn hit_marker(&mut self, range: ByteRange, first: &Span) -> Option<u32> {
        let hit = match first.key {
            Key::Hot(chunk) if self.markers.hit(chunk, first.from, range.offset) => Some(chunk),
            _ => None,
        };
        self.markers.note_end(range.end());
        hit
    }

    /// How many chunks have had a marker, and how many of these were used.
    pub(super) const fn marker_count(&self) -> MarkerCount {
        self.markers.count()
    }

    /// A hot chunk is here; its marker, if it has one, lies apart from now on, so the rest need not wait for
    /// it.
    fn fill_marker(&mut self, chunk: u32, bytes: &Bytes) {
        if let Some(range) = self.markers.fill(chunk, bytes)
            && let Some(held) = self.held.get_mut(&chunk)
        {
            held.served.serve(range.start, range.end - range.start);
        }
    }

    /// The chunk's bytes if they are in memory.
    pub(super) fn peek(&self, key: Key) -> Option<Bytes> {
        if let Key::Hot(chunk) = key
            && let Some(held) = self.held.get(&chunk)
        {
            return Some(Arc::clone(&held.bytes));
        }
        self.kept.peek(key)
    }

    /// Whether readers have every block of a hot chunk, so that none need be brought.
    pub(super) fn is_handed_over(&self, chunk: u32) -> bool {
        self.handed_over.contains(&chunk)
    }

    /// A read asks for a hot chunk that is not here; true when readers had all of it, and must have dropped
    /// it.
    pub(super) fn asked_again(&mut self, chunk: u32) -> bool {
        self.handed_over.remove(&chunk)
    }

    pub(super) fn has(&self, key: Key) -> bool {
        matches!(key, Key::Hot(chunk) if self.held.contains_key(&chunk)) || self.kept.has(key)
    }

    pub(super) fn is_bad(&self, chunk: u32) -> bool {
        !self.bad.is_empty() && self.bad.contains(&chunk)
    }

    pub(super) fn set_bad(&mut self, chunk: u32) {
        self.bad.insert(chunk);
    }

    pub(super) fn unset_bad(&mut self, chunk: u32) {
        self.bad.remove(&chunk);
    }

    /// Whether it is news that this chunk cannot be had.
    pub(super) fn tell(&mut self, key: Key) -> bool {
        self.told.len() < MAX_TOLD && self.told.insert(key)
    }

    pub(super) fn is_loading(&self, key: Key) -> bool {
        self.loading.contains_key(&key)
    }

    /// Registers a read that waits; the chunks in `wanted` are now being loaded.
    pub(super) fn wait(&mut self, pending: Pending, wanted: &[Key]) {
        let id = self.next_pending;
        self.next_pending += 1;
        for key in wanted {
            self.loading.entry(*key).or_default();
        }
        for (span, found) in pending.spans.iter().zip(&pending.found) {
            if found.is_none() {
                let waiting = self.loading.entry(span.key).or_default();
                if waiting.last() != Some(&id) {
                    waiting.push(id);
                }
            }
        }
        self.pending.insert(id, pending);
    }

    /// Begins to load a chunk that no read waits for; false when that is not needed.
    pub(super) fn begin_unasked(&mut self, key: Key) -> bool {
        let come = matches!(key, Key::Cold(window) if self.has_come(window));
        if come || self.has(key) || self.is_loading(key) {
            return false;
        }
        self.loading.insert(key, Vec::new());
        true
    }

    /// Ends the loading of a chunk that no read waits for; false when one does.
    pub(super) fn forget_unasked(&mut self, key: Key) -> bool {
        let unasked = self.loading.get(&key).is_none_or(Vec::is_empty);
        if unasked {
            self.loading.remove(&key);
            self.end_decoding(key);
        }
        unasked
    }

    /// Whether the window came before it was asked for and only has to be decompressed.
    pub(super) fn has_come(&self, window: u64) -> bool {
        self.kept.has_stored(window) || self.decoding.contains(&window)
    }

    /// Begins to decompress a window that has come and that no read waits for yet; false when there is no
    /// need to.
    pub(super) fn begin_decoding(&mut self, window: u64) -> bool {
        let key = Key::Cold(window);
        if !self.kept.has_stored(window) || self.is_loading(key) || self.has(key) {
            return false;
        }
        self.loading.insert(key, Vec::new());
        true
    }

    /// Keeps a neighbour as it is stored; gives it back when a read waits for it already.
    pub(super) fn keep_stored<'a>(
        &mut self,
        window: u64,
        chunk: ChunkRef,
        stored: Cow<'a, [u8]>,
    ) -> Option<Cow<'a, [u8]>> {
        let key = Key::Cold(window);
        if self.loading.get(&key).is_some_and(|waiting| !waiting.is_empty()) {
            return Some(stored);
        }
        self.loading.remove(&key);
        self.kept.put_stored(window, chunk, stored.into_owned().into());
        None
    }

    /// Keeps a hot chunk as it is stored, in case that its pages are dropped and asked for again.
    pub(super) fn keep_hot(&mut self, number: u32, chunk: ChunkRef, stored: Stored) {
        self.kept.put_hot_stored(number, chunk, stored);
    }

    /// A hot chunk as it is stored, if it is kept.
    pub(super) fn stored_hot(&self, number: u32) -> Option<Stored> {
        self.kept.hot_stored(number)
    }

    /// Takes out a window that came early, to be decompressed now.
    pub(super) fn take_stored(&mut self, window: u64) -> Option<(ChunkRef, Stored)> {
        let taken = self.kept.take_stored(window);
        if taken.is_some() {
            self.decoding.insert(window);
        }
        taken
    }

    fn end_decoding(&mut self, key: Key) {
        if let Key::Cold(window) = key {
            self.decoding.remove(&window);
        }
    }

    /// The readers of `key` wait for the stream; false when it is not being loaded any more.
    pub(super) fn joined(&mut self, key: Key) -> bool {
        if self.stream_over || self.has(key) {
            return false;
        }
        self.is_loading(key) && {
            self.joined.insert(key);
            true
        }
    }

    /// Whether a read waits for the stream to bring this chunk.
    pub(super) fn is_joined(&self, key: Key) -> bool {
        self.joined.contains(&key)
    }

    /// The readers of `key` wait for the stream no longer; false when they did not.
    pub(super) fn leave(&mut self, key: Key) -> bool {
        self.joined.remove(&key)
    }

    /// Chunks that readers expect from a stream that has ended; none can join it any more.
    pub(super) fn orphans(&mut self) -> Vec<Key> {
        self.stream_over = true;
        self.take_joined()
    }

    /// Chunks that readers expect from the stream; they are not expected any more.
    pub(super) fn take_joined(&mut self) -> Vec<Key> {
        self.joined.drain().collect()
    }

    /// Keeps a chunk; true when the stream brought it and it is now held.
    pub(super) fn put(&mut self, key: Key, bytes: &Bytes, from_stream: bool) -> bool {
        self.joined.remove(&key);
        let is_held = self.keep(key, bytes, from_stream);
        if let Key::Hot(chunk) = key {
            self.fill_marker(chunk, bytes);
        }
        is_held
    }

    fn keep(&mut self, key: Key, bytes: &Bytes, from_stream: bool) -> bool {
        match key {
            Key::Hot(chunk) if from_stream => {
                if self.held.contains_key(&chunk) {
                    return false;
                }
                let served = BlocksServed::none_of(bytes.len());
                self.held.insert(chunk, Held { bytes: Arc::clone(bytes), served });
                true
            }
            _ => {
                if !Arc::ptr_eq(bytes, &self.zeroes) && !self.has(key) {
                    let asked_for = self.loading.get(&key).is_some_and(|waiting| !waiting.is_empty());
                    let origin = if asked_for { Origin::Demanded } else { Origin::Prefetched };
                    self.kept.put(key, bytes, None, origin);
                }
                false
            }
        }
    }

    /// The blocks of a chunk that reads wait for, in the order in which they were asked for.
    pub(super) fn waited_for(&self, key: Key) -> Vec<Range<u32>> {
        let waiting = self.loading.get(&key).into_iter().flatten().filter_map(|id| self.pending.get(id));
        let spans = waiting.flat_map(|pending| &pending.spans).filter(|span| span.key == key);
        let block_bytes = BLOCK_BYTES as u32;
        spans.map(|span| span.from / block_bytes..(span.from + span.len).div_ceil(block_bytes)).collect()
    }

    /// Whether a read that is as urgent as can be waits for a chunk.
    pub(super) fn somebody_waits_for(&self, key: Key) -> bool {
        let mut waiting = self.loading.get(&key).into_iter().flatten().filter_map(|id| self.pending.get(id));
        waiting.any(|pending| pending.asker.class == Class::Demand)
    }

    /// Hands a chunk to all reads that wait for it; returns the reads that now have everything, and how many
    /// reads that had missed wait for the medium on account of the hot region at most.
    pub(super) fn deliver(&mut self, key: Key, bytes: &Bytes) -> (Vec<Pending>, usize) {
        let mut ready = Vec::new();
        let mut misses_over = 0;
        let is_cold = matches!(key, Key::Cold(_));
        self.end_decoding(key);
        for id in self.loading.remove(&key).unwrap_or_default() {
            let Some(pending) = self.pending.get_mut(&id) else { continue };
            for (span, found) in pending.spans.iter().zip(&mut pending.found) {
                if span.key == key && found.is_none() {
                    *found = Some(Found::whole(Arc::clone(bytes)));
                    pending.missing -= 1;
                    pending.missing_cold -= usize::from(is_cold);
                }
            }
            misses_over += usize::from(is_cold && pending.missed && pending.missing_cold == 0);
            if pending.missing == 0 {
                ready.extend(self.pending.remove(&id));
            }
        }
        (ready, misses_over)
    }

    /// Takes out the reads that wait for a chunk that cannot be had.
    pub(super) fn fail(&mut self, key: Key) -> Vec<Pending> {
        self.joined.remove(&key);
        self.end_decoding(key);
        let waiting = self.loading.remove(&key).unwrap_or_default();
        waiting.into_iter().filter_map(|id| self.pending.remove(&id)).collect()
    }

    /// Notes that these bytes of a chunk were asked for; true when it was held for that and is so no longer.
    pub(super) fn serve(&mut self, key: Key, from: u32, len: u32) -> bool {
        if let Key::Hot(chunk) = key {
            self.markers.serve(chunk, from, len);
        }
        if let Key::Hot(chunk) = key
            && let Some(held) = self.held.get_mut(&chunk)
        {
            return held.served.serve(from, len) && self.release(chunk);
        }
        if self.kept.serve(key, from, len)
            && let Key::Hot(chunk) = key
        {
            self.handed_over.insert(chunk);
        }
        false
    }

    /// Lets go of a held chunk: what readers have and keep is dropped, anything else is kept like other
    /// chunks.
    pub(super) fn release(&mut self, chunk: u32) -> bool {
        let Some(held) = self.held.remove(&chunk) else { return false };
        if self.readers_keep && held.served.unserved_bytes() == 0 {
            self.handed_over.insert(chunk);
        } else {
            self.kept.put(Key::Hot(chunk), &held.bytes, Some(held.served), Origin::Demanded);
        }
        true
    }

    /// Drops a held chunk, which readers have as a whole.
    pub(super) fn forget(&mut self, chunk: u32) -> bool {
        let was_held = self.held.remove(&chunk).is_some();
        if was_held && self.readers_keep {
            self.handed_over.insert(chunk);
        }
        was_held
    }

    /// Held bytes that were not read.
    pub(super) fn unserved_bytes(&self) -> u64 {
        self.held.values().map(|held| held.served.unserved_bytes()).sum()
    }

    /// How many reads wait, and since when the one does that has waited longest.
    pub(super) fn waiting(&self) -> (usize, Option<Nanos>) {
        (self.pending.len(), self.pending.values().map(|pending| pending.at).min())
    }

    /// Takes out the reads that have waited since this moment or longer. What they wait for may still come.
    pub(super) fn give_up(&mut self, since: Nanos) -> Vec<Pending> {
        self.pending.extract_if(|_, pending| pending.at <= since).map(|(_, pending)| pending).collect()
    }

    /// All reads that wait, when nothing will come any more.
    pub(super) fn abandon(&mut self) -> Vec<Pending> {
        self.loading.clear();
        self.pending.drain().map(|(_, pending)| pending).collect()
    }
}
