//! An image as it is served: the rules of `hs-image`'s reader and of `hs-serve`'s prefetch, with the engine's
//! own policies.
//!
//! The policies are the engine's: prefetch, neighbours, read-ahead. What lies between them follows the
//! reader's code step by step, without its threads. Not modelled: damage, and a machine short of memory.

use std::collections::BTreeMap;

use hs_engine::cache::{Cache, Origin, PolicyKind};
use hs_engine::queue::{Class, ClientKey, Direction};
use hs_engine::{Late, Neighbours, Next, Prefetch, PrefetchConfig, ReadAhead, ReadAheadConfig, RequestId};
use hs_units::{BLOCK_BYTES, ByteRange, Nanos};

use super::layout::ImageLayout;
use crate::simulation::Io;

/// A request to the medium.
#[derive(Clone, Debug)]
enum Job {
    /// The request that opens the image: tables, then this many hot chunks.
    Opening { chunks: u32 },
    /// The index of the cold region, for a window that a reader waits for.
    Index { window: u64 },
    /// These windows, the first of which a reader waits for.
    Windows { first: u64, count: u64, ahead: bool },
    /// A hot chunk, not by the stream.
    Hot { chunk: u32, asked: Nanos },
    /// Hot chunks, of the stream.
    Stream { id: RequestId, first: u32, count: u32 },
}

/// A piece of the disk that is fetched as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Key {
    /// By its number through the hot region.
    Hot(u32),
    /// By its window.
    Cold(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// It is fetched, or decompressed.
    Loading,
    /// As it is stored: no reader has waited for it.
    Stored,
    There,
}

/// Something that happens later.
#[derive(Clone, Copy, Debug)]
enum Later {
    /// The first piece of a request has come, of this many bytes.
    First(usize, u64),
    /// The stored bytes of a piece have come with this request.
    Came(usize, Key),
    /// A piece is decompressed.
    Decoded(Key),
    /// The tables have come.
    Opened,
    /// The time has come for the next request of the stream.
    Turn,
}

/// What has become readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// Nothing.
    Nothing,
    /// The disk can be read from now on.
    Opened,
    /// A piece can be read.
    Piece(Key),
}

/// How an image is served.
#[derive(Clone, Copy, Debug)]
pub struct ServedConfig {
    /// Limits of the prefetch; nothing is prefetched without.
    pub prefetch: Option<PrefetchConfig>,
    /// Bytes that a core decompresses in a second.
    pub decode_bytes_per_s: f64,
    /// Bytes of the disk read ahead of a sequential reader.
    pub read_ahead_bytes: u64,
    /// Bytes of windows that stay in memory, because more of them may be read.
    pub cache_bytes: u64,
    /// What the clients' processors are, where they are not each client's own.
    pub shared_processors: Option<SharedProcessors>,
}

/// Processors that are shared by clients that begin together, as in a benchmark on one machine.
///
/// Each has an equal part of them at every moment, and pieces of the disk cost it processor time one after
/// another: decompressing, copies, FUSE, TCP. So the clients are done no sooner than the sum of their
/// processor time, divided by the processors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SharedProcessors {
    /// Clients for each processor; at least one.
    pub clients_each: f64,
    /// Processor time of one client for each byte of the disk that comes to it, in seconds.
    pub seconds_per_byte: f64,
}

/// An image that is served to one client.
pub(crate) struct Served<'a> {
    layout: &'a ImageLayout,
    config: ServedConfig,
    client: ClientKey,
    policy: Prefetch,
    neighbours: Neighbours,
    read_ahead: ReadAhead,
    hot_blocks: BTreeMap<u64, (u64, u32)>,
    places: BTreeMap<Key, Place>,
    /// Windows that are in memory.
    kept: Cache<Key, ()>,
    /// Blocks of each window that have been requested. Their reader keeps them, so the window is dropped with
    /// the last of them.
    asked_blocks: BTreeMap<Key, u64>,
    wanted: BTreeMap<Key, bool>,
    jobs: BTreeMap<usize, Job>,
    indexed: bool,
    /// Windows that wait for the index.
    before_index: Vec<u64>,
    later: BTreeMap<u64, Later>,
    next_later: u64,
    planned: Option<Nanos>,
    missed: BTreeMap<u64, Nanos>,
    /// Until when the shared processors have enough to do with what has come.
    busy_until: Nanos,
    /// When the last chunk of the stream had come.
    pub(crate) streamed: Option<Nanos>,
}

/// Marks tokens of [`Io::wake`] that are a served image's; the client's number and its own follow.
pub(crate) const SERVED: u64 = 1 << 63;

/// Five windows in sequence, as the reader proves it.
const PROOF: u64 = 5;
/// Windows ahead of a reader that has just proved to be sequential.
const FIRST_DEPTH: u64 = 8;
/// Media hand out the bytes of a streamed request in such pieces (`hs_store::Emulate`): what has come is
/// known piece by piece, and a request that is broken off brings one at least.
const PIECE_BYTES: u64 = 64 << 10;

impl<'a> Served<'a> {
    pub(crate) fn new(layout: &'a ImageLayout, config: ServedConfig, client: ClientKey) -> Self {
        let sizes = match config.prefetch {
            Some(_) => layout.hot.iter().map(super::layout::HotChunk::size).collect(),
            None => Vec::new(),
        };
        let extents = layout.hot.iter().zip(0..).flat_map(|(chunk, number)| {
            chunk.extents.iter().map(move |run| (run.start.0, (run.end().0, number)))
        });
        let read_ahead = ReadAheadConfig {
            proof: PROOF + 1,
            first: FIRST_DEPTH,
            limit: config.read_ahead_bytes / layout.window_bytes.max(1),
            ..ReadAheadConfig::default()
        };
        Self {
            hot_blocks: extents.collect(),
            policy: Prefetch::new(config.prefetch.unwrap_or_default(), sizes),
            neighbours: Neighbours::new(),
            read_ahead: ReadAhead::new(read_ahead),
            places: BTreeMap::new(),
            kept: Cache::new(PolicyKind::S3Fifo, config.cache_bytes),
            asked_blocks: BTreeMap::new(),
            wanted: BTreeMap::new(),
            jobs: BTreeMap::new(),
            indexed: false,
            before_index: Vec::new(),
            later: BTreeMap::new(),
            next_later: 0,
            planned: None,
            missed: BTreeMap::new(),
            busy_until: Nanos::ZERO,
            streamed: None,
            layout,
            config,
            client,
        }
    }

    /// Asks for what opens the image.
    pub(crate) fn open(&mut self, io: &mut Io, file_bytes: u64) {
        let Some(config) = self.config.prefetch else {
            // Superblock, then the tables.
            let tables = self.layout.tables;
            let range = if tables.len > 0 { tables } else { ByteRange::new(0, BLOCK_BYTES) };
            return self.ask(io, Class::Demand, range, Job::Opening { chunks: 0 });
        };
        let limit = (2 * config.first_request_bytes).min(file_bytes);
        let tables = self.layout.tables;
        let origin = if tables.offset > BLOCK_BYTES { tables.offset } else { 0 };
        let fits = |chunk: &&super::layout::HotChunk| chunk.at.end() <= origin + limit;
        let chunks = self.layout.hot.iter().take_while(fits).count();
        let end = match self.layout.hot[..chunks].last() {
            Some(last) => last.at.end(),
            None if tables.len > 0 => tables.end(),
            None => PIECE_BYTES.min(file_bytes),
        };
        if origin > 0 {
            // The first piece says that the tables lie elsewhere.
            io.request(
                Class::Demand,
                self.client,
                Direction::Read,
                ByteRange::new(0, PIECE_BYTES.min(file_bytes)),
            );
        }
        let chunks = chunks as u32;
        self.ask(io, Class::Demand, ByteRange::new(origin, end - origin), Job::Opening { chunks });
    }

    fn ask(&mut self, io: &mut Io, class: Class, range: ByteRange, job: Job) {
        let request = io.request(class, self.client, Direction::Read, range);
        self.jobs.insert(request, job);
    }

    fn plan(&mut self, io: &mut Io, then: Nanos, what: Later) {
        let token = self.token(what);
        io.wake(then, token);
    }

    /// When the bytes of `request` before `end`, a place on the medium, have come as whole pieces.
    fn plan_arrival(&mut self, io: &mut Io, request: usize, end: u64, what: Later) {
        let range = io.sent_for(request).dispatch.range;
        let token = self.token(what);
        let bytes = (end - range.offset).next_multiple_of(PIECE_BYTES).min(range.len);
        io.wake_on_arrival(request, bytes, token);
    }

    fn token(&mut self, what: Later) -> u64 {
        let token = self.next_later;
        self.next_later += 1;
        self.later.insert(token, what);
        SERVED | self.client.0 << 32 | token
    }

    /// The pieces of which these blocks are, in order.
    fn pieces(&mut self, block: u64, end: u64) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        let per_window = self.layout.window_bytes / BLOCK_BYTES;
        for block in block..end {
            let hot = self.hot_blocks.range(..=block).next_back();
            let key = match hot.filter(|(_, (run_end, _))| block < *run_end) {
                Some((_, (_, chunk))) => Key::Hot(*chunk),
                None => Key::Cold(block / per_window),
            };
            if matches!(key, Key::Cold(_)) {
                *self.asked_blocks.entry(key).or_default() += 1;
            }
            if keys.last() != Some(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Whether the hot region has a block.
    pub(crate) fn is_hot(&self, block: u64) -> bool {
        self.hot_blocks.range(..=block).next_back().is_some_and(|(_, (end, _))| block < *end)
    }

    fn is_there(&self, key: Key) -> bool {
        let zero = matches!(key, Key::Cold(window) if self.indexed && self.window(window).is_none());
        zero || self.places.get(&key) == Some(&Place::There)
    }

    fn window(&self, window: u64) -> Option<ByteRange> {
        self.layout.windows.get(window as usize).copied().flatten()
    }

    /// A reader reads these blocks. Returns the pieces that it has to wait for.
    pub(crate) fn read(&mut self, io: &mut Io, block: u64, end: u64) -> Vec<Key> {
        let keys = self.pieces(block, end);
        let missing: Vec<Key> = keys.iter().copied().filter(|key| !self.is_there(*key)).collect();
        let mut is_miss = false;
        for key in &missing {
            if let Key::Cold(window) = key {
                is_miss |= self.places.get(key) != Some(&Place::Stored);
                self.neighbours.used(*window);
            }
        }
        if is_miss {
            self.policy.handle_miss(io.now());
        }
        for key in &missing {
            self.want(io, *key);
            if is_miss && let Key::Cold(window) = key {
                self.missed.insert(*window, io.now());
                is_miss = false;
            }
        }
        for key in keys {
            if let Key::Cold(window) = key {
                // This second use keeps it from leaving.
                let _ = self.kept.get(&key);
                if self.is_used_up(key) {
                    self.kept.remove(&key);
                }
                self.sequence(io, window);
            }
        }
        self.turn(io);
        missing
    }

    /// Whether each block of a window was asked for.
    fn is_used_up(&self, key: Key) -> bool {
        let asked = self.asked_blocks.get(&key).copied().unwrap_or_default();
        asked >= self.layout.window_bytes / BLOCK_BYTES
    }

    /// Keeps a window in memory, decompressed or as it is stored, while there is room.
    fn keep(&mut self, key: Key, place: Place) {
        self.places.insert(key, place);
        let Key::Cold(window) = key else { return };
        let (weight, origin) = match place {
            Place::Stored => (self.window(window).map_or(0, |at| at.len), Origin::Prefetched),
            Place::Loading | Place::There => (self.layout.window_bytes, Origin::Demanded),
        };
        if place == Place::There && self.is_used_up(key) {
            self.kept.remove(&key);
            return;
        }
        let Self { kept, places, .. } = self;
        kept.insert(key, (), weight, origin, |left, ()| {
            // An older form of the same window makes room for this one.
            if left != key {
                places.remove(&left);
            }
        });
        if !self.kept.contains(&key) {
            self.places.remove(&key);
        }
    }

    fn want(&mut self, io: &mut Io, key: Key) {
        self.wanted.insert(key, true);
        match (key, self.places.get(&key)) {
            (_, Some(Place::Loading | Place::There)) => {}
            (_, Some(Place::Stored)) => {
                self.kept.remove(&key);
                self.places.insert(key, Place::Loading);
                self.decode(io, key);
            }
            (Key::Hot(chunk), None) => {
                self.places.insert(key, Place::Loading);
                let streams = self.policy.ended() != Some(hs_engine::EndReason::Nothing);
                if !streams || self.policy.late(chunk) == Late::Fetch {
                    self.fetch_hot(io, chunk);
                }
            }
            (Key::Cold(window), None) => {
                self.places.insert(key, Place::Loading);
                self.load(io, window);
            }
        }
    }

    fn fetch_hot(&mut self, io: &mut Io, chunk: u32) {
        let range = self.layout.hot[chunk as usize].at;
        self.ask(io, Class::Demand, range, Job::Hot { chunk, asked: io.now() });
    }

    /// Brings a window and those of its neighbours that pay.
    fn load(&mut self, io: &mut Io, window: u64) {
        if !self.indexed {
            if self.jobs.values().any(|job| matches!(job, Job::Index { .. })) {
                return self.before_index.push(window);
            }
            return self.ask(io, Class::Demand, self.layout.index, Job::Index { window });
        }
        if self.window(window).is_none() {
            return self.plan(io, io.now(), Later::Decoded(Key::Cold(window)));
        }
        let depth = self.neighbours.miss();
        let most = self.policy.most_neighbour_bytes().unwrap_or(u64::MAX);
        let count = self.within(window, self.run(window, depth), most);
        for neighbour in window + 1..window + count {
            self.neighbours.brought(neighbour);
        }
        self.fetch_windows(io, window, count, false);
    }

    /// How many windows from `window` on, `depth` more at most, lie one after another and are not here.
    fn run(&self, window: u64, depth: u64) -> u64 {
        let Some(first) = self.window(window) else { return 0 };
        let mut end = first.end();
        let more = (window + 1..=window + depth).take_while(|next| {
            let follows = self.window(*next).filter(|at| at.offset == end);
            let here = self.places.contains_key(&Key::Cold(*next));
            follows.is_some_and(|at| {
                end = at.end();
                !here
            })
        });
        1 + more.count() as u64
    }

    /// So many of `count` windows from `window` on that those behind it have `most` bytes together.
    fn within(&self, window: u64, count: u64, most: u64) -> u64 {
        let Some(first) = self.window(window) else { return count };
        let more = (window + 1..window + count)
            .take_while(|next| self.window(*next).is_some_and(|at| at.end() - first.end() <= most));
        more.count() as u64 + count.min(1)
    }

    fn fetch_windows(&mut self, io: &mut Io, first: u64, count: u64, ahead: bool) {
        let at = |window| self.window(window).expect("a run has no zeros");
        let range = ByteRange::new(at(first).offset, at(first + count - 1).end() - at(first).offset);
        for window in first..first + count {
            self.places.insert(Key::Cold(window), Place::Loading);
        }
        let class = if ahead { Class::ReadAhead } else { Class::Demand };
        self.ask(io, class, range, Job::Windows { first, count, ahead });
    }

    /// A window was read: if it continues a sequence, more is fetched.
    fn sequence(&mut self, io: &mut Io, window: u64) {
        let ahead = self.read_ahead.handle_read(window).fetch;
        if !self.indexed {
            return;
        }
        let mut next = ahead.start;
        while next < ahead.end.min(self.layout.windows.len() as u64) {
            if self.places.contains_key(&Key::Cold(next)) || self.window(next).is_none() {
                next += 1;
                continue;
            }
            let count = self.run(next, ahead.end - next - 1);
            self.fetch_windows(io, next, count, true);
            next += count;
        }
    }

    /// Makes the requests of the prefetch policy.
    fn turn(&mut self, io: &mut Io) {
        if self.config.prefetch.is_none() || self.layout.hot.is_empty() {
            return;
        }
        loop {
            match self.policy.poll(io.now()) {
                Next::Request(id, run) => {
                    let (first, last) =
                        (&self.layout.hot[run.start as usize], &self.layout.hot[run.end as usize - 1]);
                    let range = ByteRange::new(first.at.offset, last.at.end() - first.at.offset);
                    let (first, count) = (run.start, run.end - run.start);
                    self.ask(io, Class::Prefetch, range, Job::Stream { id, first, count });
                }
                Next::WaitUntil(then) => {
                    if self.planned.is_none_or(|planned| then < planned || planned <= io.now()) {
                        self.planned = Some(then);
                        self.plan(io, then, Later::Turn);
                    }
                    return;
                }
                Next::Wait | Next::Done(_) => return,
            }
        }
    }

    /// The first byte of a request has come.
    pub(crate) fn handle_first_byte(&mut self, io: &mut Io, request: usize) {
        let Some(job) = self.jobs.get(&request).cloned() else { return };
        let sent = io.sent_for(request);
        let origin = sent.dispatch.range.offset;
        let first_bytes = PIECE_BYTES.min(sent.dispatch.range.len);
        self.plan_arrival(io, request, origin + 1, Later::First(request, first_bytes));
        match job {
            Job::Opening { chunks } => {
                let tables = self.layout.tables.end().max(origin + BLOCK_BYTES.min(sent.dispatch.range.len));
                self.plan_arrival(io, request, tables, Later::Opened);
                for chunk in 0..chunks {
                    let end = self.layout.hot[chunk as usize].at.end();
                    self.plan_arrival(io, request, end, Later::Came(request, Key::Hot(chunk)));
                }
                if chunks > 0 {
                    let id = self.policy.handle_head(sent.at, chunks, self.layout.tables.end() - origin);
                    self.jobs.insert(request, Job::Stream { id, first: 0, count: chunks });
                }
            }
            Job::Windows { first, count, .. } => {
                for window in first..first + count {
                    let end = self.window(window).expect("a run has no zeros").end();
                    self.plan_arrival(io, request, end, Later::Came(request, Key::Cold(window)));
                }
            }
            Job::Stream { first, count, .. } => {
                for chunk in first..first + count {
                    let end = self.layout.hot[chunk as usize].at.end();
                    self.plan_arrival(io, request, end, Later::Came(request, Key::Hot(chunk)));
                }
            }
            Job::Index { .. } | Job::Hot { .. } => {}
        }
    }

    /// A request has ended.
    pub(crate) fn handle_done(&mut self, io: &mut Io, request: usize) {
        let Some(job) = self.jobs.remove(&request) else { return };
        match job {
            Job::Opening { .. } => {}
            Job::Index { window } => {
                self.indexed = true;
                self.load(io, window);
                for other in std::mem::take(&mut self.before_index) {
                    self.load(io, other);
                }
            }
            Job::Windows { first, ahead, .. } => {
                if !ahead && let Some(since) = self.missed.get(&first) {
                    let bytes = self.window(first).map_or(0, |at| at.len);
                    self.policy.handle_fetched(*since, io.now(), bytes);
                }
            }
            Job::Hot { chunk, asked } => {
                let bytes = self.layout.hot[chunk as usize].at.len;
                self.policy.handle_fetched(asked, io.now(), bytes);
                self.policy.handle_resident(chunk);
                self.decode(io, Key::Hot(chunk));
            }
            Job::Stream { id, first, count } => {
                let chunks = &self.layout.hot[first as usize..(first + count) as usize];
                let bytes = chunks.iter().map(|chunk| chunk.at.len).sum();
                self.policy.handle_finished(io.now(), id, Some(bytes));
                self.streamed = Some(io.now());
            }
        }
        self.turn(io);
    }

    fn decode(&mut self, io: &mut Io, key: Key) {
        let bytes = match key {
            Key::Hot(chunk) => u64::from(self.layout.hot[chunk as usize].raw_bytes),
            Key::Cold(_) => self.layout.window_bytes,
        };
        let takes = Nanos::from_secs_f64(bytes as f64 / self.config.decode_bytes_per_s);
        let mut decoded = io.now() + takes;
        if let Some(shared) = self.config.shared_processors {
            let takes = bytes as f64 * shared.seconds_per_byte * shared.clients_each;
            self.busy_until = self.busy_until.max(io.now()) + Nanos::from_secs_f64(takes);
            decoded = decoded.max(self.busy_until);
        }
        self.plan(io, decoded, Later::Decoded(key));
    }

    /// A planned time has come, with this `token`.
    pub(crate) fn handle_later(&mut self, io: &mut Io, token: u64) -> News {
        let Some(what) = self.later.remove(&token) else { return News::Nothing };
        let news = match what {
            Later::Opened => News::Opened,
            Later::Turn => News::Nothing,
            Later::First(request, bytes) => {
                if let Some(Job::Stream { id, .. }) = self.jobs.get(&request) {
                    self.policy.handle_first_byte(io.now(), *id, bytes);
                }
                News::Nothing
            }
            Later::Came(request, key) => {
                if let (Key::Hot(chunk), Some(Job::Stream { id, .. })) = (key, self.jobs.get(&request)) {
                    self.policy.handle_progress(io.now(), *id, chunk);
                }
                let asked_for = self.wanted.contains_key(&key) || matches!(key, Key::Hot(_));
                if self.places.get(&key) == Some(&Place::There) {
                    return News::Nothing;
                }
                if asked_for {
                    self.places.insert(key, Place::Loading);
                    self.decode(io, key);
                } else {
                    self.keep(key, Place::Stored);
                }
                News::Nothing
            }
            Later::Decoded(key) => {
                self.keep(key, Place::There);
                match key {
                    Key::Hot(chunk) if self.config.prefetch.is_some() => {
                        self.policy.handle_arrived(chunk);
                        // It is pushed on at once, or waits where nothing is short of memory.
                        self.policy.handle_released(chunk);
                    }
                    Key::Hot(_) => {}
                    Key::Cold(window) => {
                        if self.missed.remove(&window).is_some() {
                            self.policy.handle_miss_answered(io.now());
                        }
                    }
                }
                News::Piece(key)
            }
        };
        self.turn(io);
        news
    }

    /// Blocks of a hot chunk, to be put into a page cache.
    pub(crate) fn blocks_of(&self, key: Key) -> Vec<(u64, u64)> {
        match key {
            Key::Hot(chunk) => {
                let extents = &self.layout.hot[chunk as usize].extents;
                extents.iter().map(|run| (run.start.0, run.end().0)).collect()
            }
            Key::Cold(_) => Vec::new(),
        }
    }
}
