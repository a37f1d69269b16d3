//! One disk as one object without I/O: everything that is decided between a read and the medium.
//!
//! `handle_*` in, [`DiskEngine::poll`] out, `now` is an argument. The engine owns the table of chunks, the
//! cache, the queue, the prefetch, read-ahead, neighbours, tripwires, and the reads that wait. An image gives
//! it an [`ImageMap`]; the pages of its index are chunks like others. Bytes never enter: the shell has them,
//! by [`ChunkKey`] and [`Form`].
//!
//! # A chunk
//! ```text
//!  absent ── read, or the stream ──┬───────────────────────────────────────────┬──► queued
//!   ▲ ▲ ▲                          ├──► joined: the stream is to bring it ─────┤      │
//!   │ │ │                          └──► awaits the page of the index with it ──┘      │ Fetch
//!   │ │ └─ cancelled while it waits ──────────────────────────────────────────────────┤
//!   │ │                                                                               ▼
//!   │ │                                           failed ◄── did not come ────── in flight
//!   │ │                                             │ ▲                               │ handle_stored
//!   │ └─ a cold one after a while; a hot one when ──┘ │                               ▼
//!   │    its cold copy has failed as well             │      ┌── a kept copy ───►  stored: with a decoder's
//!   │                                                 │      │                        │    queue, or cached
//!   │                                                 │      │                        │ Decode
//!   │                                                 │      │                        ▼
//!   │                                                 └──────┼────── damaged ───── decoding
//!   │                                                        │                        │ handle_decoded
//!   │                                                        │                        ▼
//!   ├─ Drop, when nothing needs it any more ─────────────────┼────────────────────── raw: held by the
//!   │                                                        │                        │   prefetch, cached,
//!   │                                                        │                        │   or pinned by reads
//!   │                                                        │                        │ Deliver, or all
//!   │                                                        │                        ▼ was handed over
//!   └─ asked for again ──────────────────────────────────────┴──────────────────── delivered
//! ```
//! Each chunk is in one slot of one table, in one stage. Its bytes are with the shell as long as something
//! needs them, and there is one [`Action::Drop`] for each form of them that has been there.
//!
//! # The order of calls
//! - Calls come one at a time; a shell with threads has the engine behind one lock.
//! - After `handle_*` calls, [`DiskEngine::poll`] until it says to wait. It may be left off in between, and
//!   gone on with by another thread.
//! - [`Action::Answer`]: [`DiskEngine::answer`] tells where the bytes are. They are there until the next
//!   poll; a shell with threads takes references to them and answers without the lock.
//! - [`Action::Fetch`]: [`DiskEngine::handle_first_byte`] once if the medium says so,
//!   [`DiskEngine::handle_stored`] for each chunk as it comes, [`DiskEngine::handle_fetch_done`] once,
//!   whatever happened.
//! - [`Action::Decode`]: [`DiskEngine::handle_decoded`] once. A page is put into the map before.
//! - [`Action::Deliver`]: the tripwire's block is copied at once; [`DiskEngine::handle_delivered`] once. It
//!   may last as long as a reader holds a page.
//! - [`Action::Drop`] comes before any other action that could bring the same bytes again.
//! - After [`DiskEngine::handle_shutdown`] every read fails or is answered, what is under way is still
//!   reported, and [`Action::Done`] is the last.
//!
//! A shell never has more under way than it has workers: fetches by the queue's limits
//! ([`DiskConfig::queue_limits`]), one chunk for each decoder, one delivery for the delivery thread. A free
//! worker can begin whatever a poll gives.
//!
//! # A shell with threads
//! One mutex and one condition variable, around the engine and the bytes. Whatever a poll gives that is
//! another thread's is left where workers look, and one is woken. A hit takes the lock once. A cold miss
//! takes it five times: the read, whose polls give the fetch; a fetcher that takes it up; the same one with
//! the chunk and the end, whose polls give the chunk to decompress; a decoder that takes that up; the same
//! one with the raw chunk, whose polls give the answer, which it sends. A store with completions needs no
//! fetcher, and one acquisition less.
//!
//! # Where each rule is
//! | rule | file and function |
//! | --- | --- |
//! | a read is cut at hot blocks; those of a damaged hot chunk are cold | `demand.rs` `cut` |
//! | held, then tripwire, then cache; a zero window is there | `demand.rs` `find` |
//! | one chunk is brought once, however many reads wait | `demand.rs` `want` |
//! | a miss counts once a read, unless what it wants had come early | `demand.rs` `wait_for_missing` |
//! | a request of a read promotes what waits for the same chunk | `demand.rs` `promote` |
//! | the bringer of the last chunk answers | `demand.rs` `publish` |
//! | a late read joins the stream by cost, and hurries it | `stream.rs` `joins`, `hurry_stream` |
//! | reads leave a stream that is stalled or over | `stream.rs` `orphan_joined` |
//! | the stream passes over what it cannot read | `medium.rs` `end_run`, `stream.rs` `pass` |
//! | a run reads over chunks that come otherwise | `Prefetch`, `choose_run` |
//! | hot chunks and pages do not merge with anything | `medium.rs` `request_chunk` |
//! | neighbours come along, as far as they pay and the policy allows | `medium.rs` `bring_neighbours` |
//! | read-ahead takes along what lies behind its first window, no index read | `medium.rs` `fetch_ahead` |
//! | a fetch of several that fails is tried again for what is awaited, one by one | `medium.rs` `end_fetch` |
//! | a drive is not asked at once for a place that failed slowly | `medium.rs` `remember_failure` |
//! | what is ahead of a reader is decompressed before it is asked for | `demand.rs` `decode_ahead` |
//! | early bytes that are damaged are fetched again, others fail their reads | `decoding.rs` `lose_stored` |
//! | a damaged hot chunk is read from cold copies, until one fails | `demand.rs` `fail_chunk` |
//! | hot chunks stay, as stored, for pages that are dropped again | `chunk_cache.rs` `cache_hot_stored` |
//! | a held chunk goes when each of its blocks was handed over | `chunk_cache.rs` `serve` |
//! | a hot chunk that a read has brought is delivered as well | `decoding.rs` `keep_decoded` |
//! | a delivery leaves out blocks that reads wait for, and a tripwire | `decoding.rs` `deliver_and_publish` |
//! | one decoder at most delivers, while another continues | `decoding.rs` `deliver_and_publish` |
//! | a request to the medium leaves one fetcher for demand | `config.rs` `queue_limits` |
//! | what no read has asked for comes behind demand | `background_fetch.rs` |
//!
//! docs/PLAN.md says what is left.

mod action;
mod background_fetch;
mod blocks_served;
mod chunk_cache;
mod chunk_table;
mod config;
mod decoders;
mod decoding;
mod deliveries;
mod demand;
mod ending;
mod fetches;
mod image_map;
mod inputs;
mod invariants;
mod medium;
mod permits;
mod program_wait;
mod reads;
mod sequential;
mod slab;
mod stream;
#[cfg(test)]
mod tests;
mod tripwires;

use std::collections::VecDeque;
use std::ops::Range;

use hs_units::Nanos;

pub use self::action::{
    Action, Damage, DecoderId, Delivered, Deliverer, FetchId, Form, PermitId, ReadId, Why, Worker,
};
use self::background_fetch::Filled;
use self::chunk_cache::{HotStored, Name};
use self::chunk_table::{ChunkTable, Stage};
pub use self::config::{DeliveryConfig, DiskConfig, UseVisibility};
use self::decoders::Decoders;
use self::deliveries::Deliveries;
use self::fetches::Fetches;
pub use self::fetches::{FetchChunk, FetchView};
pub use self::image_map::{ChunkKey, ChunkLocation, HotBlock, ImageMap, WindowLocation};
use self::permits::Permits;
use self::program_wait::ProgramWait;
pub use self::reads::{Answer, Requester, Source, Span};
use self::reads::{Progress, Reads};
use self::sequential::Sequential;
pub use self::tripwires::TripwireCount;
use self::tripwires::Tripwires;
use crate::background::{Background, Learned, Order};
use crate::cache::{Cache, CacheUsage};
use crate::queue::{Class, Poll, Queue};
use crate::{ChunkSize, MemoryBudget, MemoryBudgetConfig, Neighbours, Prefetch};

/// What a [`DiskEngine`] has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskStats {
    /// Reads that were answered with their bytes.
    pub answered_reads: u64,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Reads that waited for the stream instead of fetching.
    pub joined: u64,
    /// Hot chunks that the stream has brought.
    pub streamed: u64,
    /// Times that a chunk could not be had.
    pub chunk_errors: u64,
    /// Bytes of cold chunks, as they are stored, that reads waited for.
    pub outside_bytes: u64,
    /// Raw bytes of the hot chunks that the stream has brought.
    pub streamed_bytes: u64,
    /// Bytes of cold chunks, as they are stored, that came behind demand.
    pub background_bytes: u64,
    /// Of these, bytes of chunks that were read.
    pub background_used_bytes: u64,
}

/// Bytes that the shell has for a [`DiskEngine`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskUsage {
    /// Decompressed bytes of all chunks.
    pub raw_bytes: u64,
    /// Of these, bytes that the stream brought and that wait for their readers.
    pub held_bytes: u64,
    /// Stored bytes of all chunks.
    pub stored_bytes: u64,
    /// Of these, bytes that came behind demand and wait for a read.
    pub filled_bytes: u64,
    /// Bytes of blocks that were held back from deliveries.
    pub tripwire_bytes: u64,
    /// The cache's part.
    pub cache: CacheUsage,
}

/// Raw bytes of chunks that the shell has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SharedBytes {
    /// Brought by the stream, and not asked for yet.
    pub unserved: u64,
    /// Delivered to readers that keep them: duplicate bytes.
    pub duplicate: u64,
}

/// See [the module](self).
#[derive(Debug)]
pub struct DiskEngine<M> {
    config: DiskConfig,
    map: M,
    table: ChunkTable,
    reads: Reads,
    queue: Queue,
    fetches: Fetches,
    decoders: Decoders,
    deliveries: Deliveries,
    cache: Cache<Name, u32>,
    hot_stored: HotStored,
    prefetch: Prefetch,
    /// The prefetch may want something else than it said last.
    prefetch_changed: bool,
    prefetch_then: Option<Nanos>,
    prefetch_over: bool,
    /// The prefetch asks for nothing before it begins.
    prefetch_held: bool,
    /// When the stream brought each hot chunk.
    arrived_at: Vec<Option<Nanos>>,
    /// Hot chunks that reads expect from the stream, and that it has not asked for.
    joined: Vec<u32>,
    /// Hot chunks that are asked for only because they are to come.
    expected: Vec<bool>,
    unreadable_in_a_row: u32,
    neighbours: Neighbours,
    sequential: Sequential,
    background: Background,
    order: Order,
    learned: Learned,
    filled: Filled,
    tripwires: Tripwires,
    prefetch_memory: MemoryBudget,
    cache_memory: Option<MemoryBudget>,
    read_timeout: Option<Nanos>,
    /// Hot chunks that failed.
    bad_chunks: u32,
    /// Cold chunks and pages that failed, and until when.
    failed_places: VecDeque<(Nanos, ChunkKey)>,
    drops: VecDeque<(ChunkKey, Form)>,
    dropped_wires: VecDeque<u32>,
    /// Blocks of hot chunks in memory that are held back and that the shell has to copy.
    hold_backs: VecDeque<(u32, u32)>,
    permits: Permits,
    program_wait: ProgramWait,
    raw_bytes: u64,
    stored_bytes: u64,
    held_bytes: u64,
    stats: DiskStats,
    shut_down: bool,
    /// Buffers that are used again.
    evicted: Vec<(Name, u32)>,
    wanted: Vec<u32>,
    tags: Vec<u32>,
}

impl<M: ImageMap> DiskEngine<M> {
    /// The engine of a disk that nothing has been asked of. `began` is when the image was asked for.
    #[must_use]
    pub fn new(began: Nanos, config: DiskConfig, map: M) -> Self {
        let chunks = if config.prefetch.is_some() { map.hot_chunks() } else { 0 };
        let size = |chunk| {
            let place = map.hot_chunk(chunk);
            ChunkSize { stored_bytes: place.range.len as u32, raw_bytes: place.raw_bytes }
        };
        let limits = config.prefetch.unwrap_or_default();
        let mut prefetch = Prefetch::new(limits, (0..chunks).map(size).collect());
        prefetch.set_deadlines(began, (0..chunks).map(|chunk| map.hot_needed(chunk)).collect());
        match config.visibility {
            UseVisibility::Hidden => prefetch.handle_use_hidden(),
            UseVisibility::Tripwires => prefetch.handle_use_by_tripwires(),
            UseVisibility::Asked => {}
        }
        let bounds = MemoryBudgetConfig {
            min_bytes: config.least_prefetch_bytes.min(limits.budget_bytes),
            max_bytes: limits.budget_bytes,
        };
        let windows_ahead = config.read_ahead_bytes / map.window_bytes();
        let doubtful = config.scattered && chunks > 0;
        let overlaps = config.queue.classes[Class::Prefetch as usize].depth > 1;
        Self {
            table: ChunkTable::default(),
            reads: Reads::default(),
            queue: Queue::new(config.queue_limits()),
            fetches: Fetches::default(),
            decoders: Decoders::new(config.decoders),
            deliveries: Deliveries::new(),
            cache: Cache::new(config.cache_bytes),
            hot_stored: HotStored::default(),
            prefetch,
            prefetch_changed: true,
            prefetch_then: None,
            prefetch_over: false,
            prefetch_held: false,
            arrived_at: vec![None; chunks as usize],
            joined: Vec::new(),
            expected: vec![false; map.hot_chunks() as usize],
            unreadable_in_a_row: 0,
            neighbours: if doubtful { Neighbours::doubtful() } else { Neighbours::new() },
            background: Background::new(overlaps),
            order: Order::default(),
            learned: Learned::default(),
            filled: Filled::default(),
            sequential: Sequential::new(windows_ahead, config.decoders),
            tripwires: Tripwires::new(map.hot_chunks()),
            prefetch_memory: MemoryBudget::new(bounds, limits.budget_bytes),
            cache_memory: config.cache_bounds.map(|bounds| MemoryBudget::new(bounds, config.cache_bytes)),
            read_timeout: config.read_timeout,
            bad_chunks: 0,
            failed_places: VecDeque::new(),
            drops: VecDeque::new(),
            dropped_wires: VecDeque::new(),
            hold_backs: VecDeque::new(),
            permits: Permits::default(),
            program_wait: ProgramWait::default(),
            raw_bytes: 0,
            stored_bytes: 0,
            held_bytes: 0,
            stats: DiskStats::default(),
            shut_down: false,
            evicted: Vec::new(),
            wanted: Vec::new(),
            tags: Vec::new(),
            config,
            map,
        }
    }

    /// The image's map.
    pub const fn map(&self) -> &M {
        &self.map
    }

    /// The image's map, to put a page of the index into it or to take one out.
    pub const fn map_mut(&mut self) -> &mut M {
        &mut self.map
    }

    /// The prefetch policy, to be looked at.
    pub const fn prefetch(&self) -> &Prefetch {
        &self.prefetch
    }

    /// The queue before the medium, to be looked at.
    pub const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Keeps the queue's last `capacity` events from now on.
    pub fn start_recording(&mut self, capacity: usize) {
        self.queue.start_recording(capacity);
    }

    /// What has been done so far.
    #[must_use]
    pub const fn stats(&self) -> DiskStats {
        self.stats
    }

    /// How many reads have not been answered, and since when the one waits that has waited longest.
    pub fn waiting(&mut self) -> (usize, Option<Nanos>) {
        let oldest = self.reads.oldest().map(|read| self.reads.slab[read.index].at);
        (self.reads.slab.len(), oldest)
    }

    /// The time in which at least one program waited for the medium, each moment once. Reads of chunks that
    /// are asked for only because they are to come are left out.
    #[must_use]
    pub fn program_wait(&self, now: Nanos) -> Nanos {
        self.program_wait.time(now)
    }

    /// When each hot chunk was verified and decompressed; `None` for those that the stream did not bring.
    #[must_use]
    pub fn arrivals(&self) -> &[Option<Nanos>] {
        &self.arrived_at
    }

    /// Raw bytes of chunks in memory: those that the stream brought and that were never asked for, and those
    /// that readers have as well, and keep. It looks at every chunk.
    #[must_use]
    pub fn shared_bytes(&self) -> SharedBytes {
        let mut bytes = SharedBytes::default();
        for slot in 0..self.table.end() {
            let Some(chunk) = self.table.get(slot).filter(|chunk| chunk.stage == Stage::Raw) else {
                continue;
            };
            let unserved = chunk.served.unserved_bytes().min(chunk.raw_bytes.into());
            bytes.unserved += if chunk.held { unserved } else { 0 };
            if self.config.readers_keep {
                bytes.duplicate += u64::from(chunk.raw_bytes) - unserved;
            }
        }
        bytes
    }

    /// What can be chosen about this engine, as it was chosen.
    pub const fn config(&self) -> &DiskConfig {
        &self.config
    }

    /// How use of what was delivered was seen.
    #[must_use]
    pub const fn tripwire_count(&self) -> TripwireCount {
        self.tripwires.count()
    }

    /// What the shell has in memory.
    #[must_use]
    pub fn usage(&self) -> DiskUsage {
        DiskUsage {
            raw_bytes: self.raw_bytes,
            held_bytes: self.held_bytes,
            stored_bytes: self.stored_bytes,
            filled_bytes: self.filled.bytes(),
            tripwire_bytes: self.tripwires.bytes(),
            cache: self.cache.usage(),
        }
    }

    /// The prefetch asks for nothing more until [`DiskEngine::begin_prefetch`]: the page cache that is to
    /// take its chunks is not there yet. To be called before everything else.
    pub const fn hold_prefetch(&mut self) {
        self.prefetch_held = true;
        self.prefetch_then = None;
    }

    /// The prefetch begins, or goes on; its chunks go where `delivery` says.
    pub fn begin_prefetch(&mut self, delivery: Option<DeliveryConfig>) {
        self.config.delivery = delivery;
        self.prefetch_held = false;
        self.prefetch_changed = true;
    }

    /// The prefetch asks for nothing more.
    pub fn stop_prefetch(&mut self) {
        self.prefetch.stop();
        self.prefetch_held = false;
        self.prefetch_changed = true;
    }

    /// From now on it is not seen whether what was prefetched is used.
    pub fn handle_use_hidden(&mut self) {
        self.config.visibility = UseVisibility::Hidden;
        self.prefetch.handle_use_hidden();
        self.prefetch_changed = true;
    }

    /// A program has used a hot chunk that had come, by another way than a read of this disk.
    pub fn handle_used(&mut self) {
        if self.prefetch.lacks_confidence() {
            self.prefetch.handle_used();
            self.prefetch_changed = true;
        }
    }

    /// What to do now. See [the module](self).
    pub fn poll(&mut self, now: Nanos) -> Action {
        self.release_answered();
        let expires = if self.shut_down { None } else { self.expire(now) };
        let leaves = self.expire_filled(now);
        loop {
            if let Some((chunk, block)) = self.hold_backs.pop_front() {
                return Action::HoldBack { chunk, block };
            }
            if let Some(action) = self.next_drop().or_else(|| self.next_outcome(now)) {
                return action;
            }
            if let Some(fetch) = self.fetches.cancels.pop() {
                if self.fetches.is_live(fetch) {
                    return Action::CancelFetch(fetch);
                }
                continue;
            }
            if self.shut_down {
                return self.poll_shut_down();
            }
            self.drive_prefetch(now);
            self.drive_background(now);
            self.fail_undecodable(now);
            if let Some(action) = self.next_delivery(now).or_else(|| self.next_decode()) {
                return action;
            }
            if self.has_news() {
                continue;
            }
            let queue_then = match self.queue.poll(now) {
                Poll::Dispatch(dispatch) => match self.granted(&dispatch) {
                    Some(permit) => return Action::Grant(permit),
                    None => return self.dispatch(now, &dispatch),
                },
                Poll::WaitUntil(then) => Some(then),
                Poll::Idle => None,
            };
            let then = [expires, leaves, self.prefetch_then, queue_then].into_iter().flatten().min();
            return match then {
                Some(then) => Action::WaitUntil(then),
                None if self.is_under_way() || self.reads.slab.len() > 0 => Action::Wait,
                None => Action::Idle,
            };
        }
    }

    /// Whether what was decided during a poll has to be told before anything else.
    fn has_news(&self) -> bool {
        let is_told = self.drops.is_empty()
            && self.dropped_wires.is_empty()
            && self.hold_backs.is_empty()
            && self.fetches.cancels.is_empty();
        !is_told || !self.reads.outcomes.is_empty() || self.prefetch_changed
    }

    fn next_outcome(&mut self, now: Nanos) -> Option<Action> {
        loop {
            let id = self.reads.outcomes.pop_front()?;
            // Reads that were cancelled meanwhile are gone.
            if !self.reads.is_live(id) {
                continue;
            }
            match self.reads.slab[id.index].progress {
                Progress::Ready => {
                    self.end_program_wait(now, id.index);
                    self.reads.answering = Some(id.index);
                    self.stats.answered_reads += 1;
                    return Some(Action::Answer(id));
                }
                Progress::Failing(why) => {
                    self.reads.slab.release(id.index);
                    return Some(Action::Fail(id, why));
                }
                Progress::Waiting | Progress::Held => {}
            }
        }
    }

    /// What the read of an [`Action::Answer`] that was just polled is answered with.
    ///
    /// # Panics
    /// When another one was polled since.
    #[must_use]
    pub fn answer(&self, read: ReadId) -> Answer<'_> {
        assert!(self.reads.answering == Some(read.index), "an answer is there until the next poll");
        let read = &self.reads.slab[read.index];
        let waited = read.missed || read.late_bytes > 0;
        Answer {
            range: read.range(),
            spans: &read.spans,
            at: read.at,
            waited,
            late_bytes: read.late_bytes,
            expected: read.expected,
        }
    }

    /// What a fetch that is under way reads.
    ///
    /// # Panics
    /// When it is done.
    #[must_use]
    pub fn fetch(&self, fetch: FetchId) -> FetchView<'_> {
        assert!(self.fetches.is_live(fetch), "a fetch is there until it is done");
        let state = &self.fetches.slab[fetch.index];
        let is_stream = !state.streams.is_empty();
        let is_background = state.background_bytes > 0;
        FetchView { range: self.fetches.range(fetch.index), chunks: &state.chunks, is_stream, is_background }
    }

    /// Blocks that a delivery under way leaves out, counted from the chunk's first, in ascending order of
    /// their starts.
    #[must_use]
    pub fn left_out(&self, key: ChunkKey) -> &[Range<u32>] {
        self.table.find(key).map_or(&[], |slot| &self.table[slot].left_out)
    }
}
