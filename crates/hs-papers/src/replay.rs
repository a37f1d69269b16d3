//! A program that reads one place after another and waits for each; with a prefetch of the same places, or
//! without.

use hs_engine::disk::{DeliveryConfig, DiskConfig, ReadId, UseVisibility};
use hs_engine::queue::{Class, ClientKey, Direction, QueueConfig};
use hs_lab::{
    FETCHERS, ImageLayout, Io, LayoutMap, Processors, SERVED, ServedEvent, ServedImage, Station, Workload,
    simulate, simulate_served,
};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Nanos};

/// One read of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// The program's own time before it.
    pub(crate) think: Nanos,
    /// What it reads.
    pub(crate) range: ByteRange,
}

/// The times of a replay, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    /// Until the program had come to its end.
    pub(crate) all: f64,
    /// Of that, the waits for reads.
    pub(crate) waited: f64,
}

/// Reads without a prefetch.
struct Program {
    reads: Vec<Read>,
    next: usize,
    waited: Nanos,
}

impl Program {
    fn think(&self, io: &mut Io) {
        if let Some(read) = self.reads.get(self.next) {
            io.wake(io.now() + read.think, 0);
        }
    }
}

impl Workload for Program {
    fn start(&mut self, io: &mut Io) {
        self.think(io);
    }

    fn handle_wake(&mut self, io: &mut Io, _token: u64) {
        io.request(Class::Demand, ClientKey(0), Direction::Read, self.reads[self.next].range);
        self.next += 1;
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        self.waited += io.requests()[request].latency().unwrap_or_default();
        self.think(io);
    }
}

/// Reads one place after another through the queue.
pub(crate) fn replay(config: QueueConfig, station: impl Station + 'static, reads: Vec<Read>) -> Took {
    let mut program = Program { reads, next: 0, waited: Nanos::ZERO };
    let run = simulate(config, station, Nanos(u64::MAX), &mut program);
    Took { all: run.ended.as_secs_f64(), waited: program.waited.as_secs_f64() }
}

/// A hot region at the front of the medium, and a program that needs its chunks in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) chunks: u32,
    pub(crate) chunk_bytes: u64,
    /// The program's own time before each chunk.
    pub(crate) think: Nanos,
}

/// The progress of a prefetched start, in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Prefetched {
    /// The program had all of it.
    pub(crate) all: f64,
    /// The medium had delivered all of it.
    pub(crate) delivered: f64,
    /// When each chunk came.
    pub(crate) arrivals: Vec<Nanos>,
}

/// A program whose reads are brought by the engine's prefetch, and given to the page cache as they come.
struct Follower<'a> {
    disk: ServedImage<'a>,
    file_bytes: u64,
    region: Region,
    /// Chunks that the page cache has.
    cached: Vec<bool>,
    next: u32,
    waits_for: Option<ReadId>,
    ended: Nanos,
}

/// Token of [`Io::wake`]: the program needs its next chunk.
const WANT: u64 = 0;

impl Follower<'_> {
    fn want(&mut self, io: &mut Io) {
        if self.cached[self.next as usize] {
            return self.go_on(io);
        }
        let ByteRange { offset, len } = self.disk.layout().chunk_on_disk(self.next);
        let blocks = BlockRange::new(Lba::containing(offset), len / BLOCK_BYTES);
        self.waits_for = Some(self.disk.read(io, blocks));
    }

    /// The program has its next chunk.
    fn go_on(&mut self, io: &mut Io) {
        self.waits_for = None;
        self.next += 1;
        self.ended = io.now();
        if self.next < self.region.chunks {
            io.wake(io.now() + self.region.think, WANT);
        }
    }

    fn take_events(&mut self, io: &mut Io) {
        while let Some(event) = self.disk.next_event() {
            match event {
                ServedEvent::Delivered(chunk) => self.cached[chunk as usize] = true,
                ServedEvent::Answered(read) if self.waits_for == Some(read) => self.go_on(io),
                ServedEvent::Answered(_) | ServedEvent::Opened => {}
            }
        }
    }
}

impl Workload for Follower<'_> {
    fn start(&mut self, io: &mut Io) {
        self.disk.open(io, self.file_bytes);
        io.wake(self.region.think, WANT);
    }

    fn handle_first_byte(&mut self, io: &mut Io, requests: &[usize]) {
        requests.iter().for_each(|request| self.disk.handle_first_byte(io, *request));
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        self.disk.handle_done(io, request);
        self.take_events(io);
    }

    fn handle_wake(&mut self, io: &mut Io, token: u64) {
        if token & SERVED == 0 {
            self.want(io);
        } else {
            self.disk.handle_wake(io, token);
        }
        self.take_events(io);
    }
}

/// Starts a program behind the engine: its prefetch brings the region, and the page cache takes it.
pub(crate) fn prefetched(queue: QueueConfig, station: impl Station + 'static, region: Region) -> Prefetched {
    let layout = ImageLayout::hot_first(region.chunks, region.chunk_bytes, 0, region.chunk_bytes);
    let config = DiskConfig {
        queue,
        fetchers: FETCHERS,
        readers_keep: true,
        visibility: UseVisibility::Hidden,
        delivery: Some(DeliveryConfig { before_answers: true }),
        ..DiskConfig::default()
    };
    let map = LayoutMap::new(&layout);
    let mut follower = Follower {
        disk: ServedImage::new(config, Processors::INSTANT, map, ClientKey(0), Nanos::ZERO),
        file_bytes: u64::from(region.chunks) * region.chunk_bytes,
        region,
        cached: vec![false; region.chunks as usize],
        next: 0,
        waits_for: None,
        ended: Nanos::ZERO,
    };
    simulate_served(station, Nanos(u64::MAX), &mut follower);
    assert!(follower.next == region.chunks, "the program comes to its end");
    let arrivals = follower.disk.engine().arrivals().iter();
    let arrivals: Vec<Nanos> = arrivals.map(|then| then.expect("the stream brings each chunk")).collect();
    let delivered = arrivals.iter().max().copied().unwrap_or_default();
    Prefetched { all: follower.ended.as_secs_f64(), delivered: delivered.as_secs_f64(), arrivals }
}
