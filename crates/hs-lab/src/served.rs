//! An image as it is served to one client: the disk engine, before a simulated medium.
//!
//! Every decision is the engine's ([`DiskEngine`]). Here its actions become requests of the simulation, a
//! chunk takes processor time to be decompressed, and a delivery to the page cache takes none. Not modelled:
//! damage, a machine short of memory, and requests that are broken off.

mod image_map;
mod layout;

use std::collections::{BTreeMap, VecDeque};

use hs_engine::disk::{
    Action, ChunkKey, Delivered, DiskConfig, DiskEngine, FetchChunk, FetchId, Form, ImageMap, ReadId,
    Requester,
};
use hs_engine::queue::{Class, ClientKey, Direction, QueueConfig};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Nanos};

pub use self::image_map::LayoutMap;
pub use self::layout::{HotChunk, ImageLayout};
use crate::simulation::{Io, Run, Station, Workload, simulate};

/// A request to the medium.
#[derive(Debug)]
struct UnderWay {
    /// By which the engine knows it; the opening request may bring nothing that the engine has to know.
    fetch: Option<FetchId>,
    /// Where the tables end, if it opens the image.
    tables_end: Option<u64>,
    /// What it brings, in order, and how many of them have come.
    chunks: Vec<FetchChunk>,
    came: usize,
    is_stream: bool,
}

/// Something that happens later.
#[derive(Clone, Copy, Debug)]
enum Later {
    /// The first piece of a request has come.
    FirstPiece(usize),
    /// The next chunk of a request has come.
    Came(usize),
    /// A chunk is decompressed.
    Decoded(ChunkKey),
    /// The tables have come.
    Opened,
    /// The engine wanted to be asked again.
    Poll,
}

/// What has become readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServedEvent {
    /// The disk can be read from now on.
    Opened,
    /// A read has its bytes.
    Answered(ReadId),
    /// The page cache takes this hot chunk. Blocks of it that reads wait for are on their way there already.
    Delivered(u32),
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

/// The processors that decompress. A live server has a thread for each core, and two at least; here the
/// engine's [`DiskConfig`] says how many.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Processors {
    /// Bytes that a core decompresses in a second.
    pub decode_bytes_per_s: f64,
    /// What the clients' processors are, where they are not each client's own.
    pub shared: Option<SharedProcessors>,
}

impl Processors {
    /// Decompressing takes no time.
    pub const INSTANT: Self = Self { decode_bytes_per_s: f64::INFINITY, shared: None };
}

/// An image that is served to one client.
pub struct ServedImage<'a> {
    processors: Processors,
    client: ClientKey,
    engine: DiskEngine<LayoutMap<'a>>,
    /// By the request.
    under_way: BTreeMap<usize, UnderWay>,
    later: BTreeMap<u64, Later>,
    next_later: u64,
    /// When the engine is asked again at the latest.
    planned: Option<Nanos>,
    /// Until when the shared processors have enough to do with what has come.
    busy_until: Nanos,
    events: VecDeque<ServedEvent>,
    /// When the last chunk of the stream had come.
    pub streamed: Option<Nanos>,
}

/// Marks tokens of [`Io::wake`] that are a served image's; the client's number and its own follow.
pub const SERVED: u64 = 1 << 63;

/// Media hand out the bytes of a streamed request in such pieces (`hs_store::Emulate`): what has come is
/// known piece by piece, and a request that is broken off brings one at least.
const PIECE_BYTES: u64 = 64 << 10;

/// Requests that one client's reader has under way at once, and its prefetch.
pub const FETCHERS: u32 = 8 + hs_engine::Prefetch::MOST_UNDER_WAY as u32;
/// Requests that open an image, at most.
pub(crate) const OPENING: u32 = 2;

/// A queue that lets everything through, up to `depth` requests: each client's engine has its own.
pub(crate) fn pass_through(depth: u32) -> QueueConfig {
    let mut config = QueueConfig::default();
    for class in &mut config.classes {
        (class.merge_bytes, class.hold_off, class.depth) = (0, Nanos::ZERO, depth);
    }
    config
}

/// Runs a workload whose only client reads a [`ServedImage`]: the queue is the engine's.
pub fn simulate_served(station: impl Station + 'static, until: Nanos, workload: &mut impl Workload) -> Run {
    simulate(pass_through(FETCHERS + OPENING), station, until, workload)
}

impl<'a> ServedImage<'a> {
    /// One that is opened at `began`.
    #[must_use]
    pub fn new(
        config: DiskConfig,
        processors: Processors,
        map: LayoutMap<'a>,
        client: ClientKey,
        began: Nanos,
    ) -> Self {
        Self {
            engine: DiskEngine::new(began, config, map),
            processors,
            client,
            under_way: BTreeMap::new(),
            later: BTreeMap::new(),
            next_later: 0,
            planned: None,
            busy_until: Nanos::ZERO,
            events: VecDeque::new(),
            streamed: None,
        }
    }

    /// Asks for what opens the image: tables, and the first of the hot region.
    pub fn open(&mut self, io: &mut Io, file_bytes: u64) {
        let layout = self.engine.map().layout();
        let tables = layout.tables;
        let Some(config) = self.engine.config().prefetch else {
            // Superblock, then the tables.
            let range = if tables.len > 0 { tables } else { ByteRange::new(0, BLOCK_BYTES) };
            return self.ask_opening(io, range, 0);
        };
        let limit = (2 * config.first_request_bytes).min(file_bytes);
        let origin = if tables.offset > BLOCK_BYTES { tables.offset } else { 0 };
        let fits = |chunk: &&HotChunk| chunk.at.end() <= origin + limit;
        let chunks = layout.hot.iter().take_while(fits).count();
        let end = match layout.hot[..chunks].last() {
            Some(last) => last.at.end(),
            None if tables.len > 0 => tables.end(),
            None => PIECE_BYTES.min(file_bytes),
        };
        if origin > 0 {
            // The first piece says that the tables lie elsewhere.
            let piece = ByteRange::new(0, PIECE_BYTES.min(file_bytes));
            io.request(Class::Demand, self.client, Direction::Read, piece);
        }
        self.ask_opening(io, ByteRange::new(origin, end - origin), chunks as u32);
    }

    fn ask_opening(&mut self, io: &mut Io, range: ByteRange, chunks: u32) {
        let tables_end = self.engine.map().layout().tables.end();
        let before = tables_end.saturating_sub(range.offset);
        let fetch = self.engine.handle_opening(io.now(), chunks, before);
        let chunks = fetch.map_or(Vec::new(), |fetch| self.engine.fetch(fetch).chunks.to_vec());
        let is_stream = fetch.is_some();
        // Without tables the superblock opens it.
        let tables_end = Some(tables_end.max(range.offset + BLOCK_BYTES.min(range.len)));
        let request = io.request(Class::Demand, self.client, Direction::Read, range);
        self.under_way.insert(request, UnderWay { fetch, tables_end, chunks, came: 0, is_stream });
    }

    /// A reader reads these blocks. An event says when they are there.
    pub fn read(&mut self, io: &mut Io, blocks: BlockRange) -> ReadId {
        let range = ByteRange::new(blocks.start.byte_offset(), blocks.bytes());
        let read = self.engine.handle_read(io.now(), Requester::waiting(self.client), range);
        self.drive(io);
        read
    }

    /// What has become readable since the last time, one by one.
    pub fn next_event(&mut self) -> Option<ServedEvent> {
        self.events.pop_front()
    }

    /// The engine, to be looked at and to be told what no read tells. [`ServedImage::drive`] follows.
    pub const fn engine(&mut self) -> &mut DiskEngine<LayoutMap<'a>> {
        &mut self.engine
    }

    /// The layout of the image.
    pub const fn layout(&self) -> &'a ImageLayout {
        self.engine.map().layout()
    }

    /// Whether the hot region has a block.
    pub(crate) fn is_hot(&self, block: u64) -> bool {
        self.engine.map().hot_block(Lba(block)).is_some()
    }

    /// Does what the engine wants done.
    pub fn drive(&mut self, io: &mut Io) {
        loop {
            match self.engine.poll(io.now()) {
                Action::Answer(read) => self.events.push_back(ServedEvent::Answered(read)),
                Action::Fail(_, why) => unreachable!("{why:?}, where nothing fails"),
                Action::Drop(key, Form::Raw) => self.engine.map_mut().remove(key),
                // Nothing is left out elsewhere, and nothing else asks for the medium.
                Action::Drop(..) | Action::CancelFetch(_) | Action::HoldBack { .. } | Action::Grant(_) => {}
                Action::Fetch { id, range, class } => self.fetch(io, id, range, class),
                Action::Decode { key, .. } => self.decode(io, key),
                Action::Deliver { key, .. } => {
                    if let ChunkKey::Hot(chunk) = key {
                        self.events.push_back(ServedEvent::Delivered(chunk));
                    }
                    self.engine.handle_delivered(io.now(), key, Delivered::Taken);
                }
                Action::WaitUntil(then) => {
                    if self.planned.is_none_or(|planned| then < planned || planned <= io.now()) {
                        self.planned = Some(then);
                        self.plan(io, then, Later::Poll);
                    }
                    return;
                }
                Action::Wait | Action::Idle | Action::Done => return,
            }
        }
    }

    fn fetch(&mut self, io: &mut Io, id: FetchId, range: ByteRange, class: Class) {
        let view = self.engine.fetch(id);
        let (chunks, is_stream) = (view.chunks.to_vec(), view.is_stream);
        // To a network it is a part of the stream, however urgent it has become.
        let class = if is_stream { Class::Prefetch } else { class };
        let request = io.request(class, self.client, Direction::Read, range);
        let under_way = UnderWay { fetch: Some(id), tables_end: None, chunks, came: 0, is_stream };
        self.under_way.insert(request, under_way);
    }

    fn decode(&mut self, io: &mut Io, key: ChunkKey) {
        let bytes = self.engine.map().raw_bytes(key);
        let takes = Nanos::from_secs_f64(bytes as f64 / self.processors.decode_bytes_per_s);
        let mut decoded = io.now() + takes;
        if let Some(shared) = self.processors.shared {
            let takes = bytes as f64 * shared.seconds_per_byte * shared.clients_each;
            self.busy_until = self.busy_until.max(io.now()) + Nanos::from_secs_f64(takes);
            decoded = decoded.max(self.busy_until);
        }
        self.plan(io, decoded, Later::Decoded(key));
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

    /// The first byte of a request has come.
    pub fn handle_first_byte(&mut self, io: &mut Io, request: usize) {
        let Some(under_way) = self.under_way.get(&request) else { return };
        let ends: Vec<u64> = under_way.chunks.iter().map(|chunk| chunk.range.end()).collect();
        let tables_end = under_way.tables_end;
        let range = io.sent_for(request).dispatch.range;
        self.plan_arrival(io, request, range.offset + 1, Later::FirstPiece(request));
        if let Some(end) = tables_end {
            self.plan_arrival(io, request, end, Later::Opened);
        }
        for end in ends {
            self.plan_arrival(io, request, end, Later::Came(request));
        }
    }

    /// A request has ended.
    pub fn handle_done(&mut self, io: &mut Io, request: usize) {
        // What came with its last byte.
        self.handle_first_piece(io, request);
        while self.handle_came(io, request) {}
        let Some(under_way) = self.under_way.remove(&request) else { return };
        if let Some(fetch) = under_way.fetch {
            self.engine.handle_fetch_done(io.now(), fetch);
        }
        if under_way.is_stream {
            self.streamed = Some(io.now());
        }
        self.drive(io);
    }

    /// The first piece of a request has come, if it is under way.
    fn handle_first_piece(&mut self, io: &Io, request: usize) {
        if let Some(fetch) = self.under_way.get(&request).and_then(|under_way| under_way.fetch) {
            let bytes = PIECE_BYTES.min(io.sent_for(request).dispatch.range.len);
            self.engine.handle_first_byte(io.now(), fetch, bytes);
        }
    }

    /// The next chunk of a request has come, if there is one.
    fn handle_came(&mut self, io: &Io, request: usize) -> bool {
        let Some(under_way) = self.under_way.get_mut(&request) else { return false };
        let Some((fetch, chunk)) = under_way.fetch.zip(under_way.chunks.get(under_way.came)) else {
            return false;
        };
        under_way.came += 1;
        // Whether its bytes are kept is of no matter: there are none.
        let _ = self.engine.handle_stored(io.now(), fetch, chunk.key, chunk.range.len);
        true
    }

    /// A time has come that was planned with this token, which has [`SERVED`].
    pub fn handle_wake(&mut self, io: &mut Io, token: u64) {
        match self.later.remove(&(token & u64::from(u32::MAX))) {
            Some(Later::FirstPiece(request)) => self.handle_first_piece(io, request),
            Some(Later::Came(request)) => {
                self.handle_came(io, request);
            }
            Some(Later::Decoded(key)) => {
                self.engine.map_mut().insert(key);
                self.engine.handle_decoded(io.now(), key, Ok(()));
            }
            Some(Later::Opened) => self.events.push_back(ServedEvent::Opened),
            Some(Later::Poll) | None => {}
        }
        self.drive(io);
    }
}
