//! A program that reads one place after another and waits for each; with a prefetch of the same places, or
//! without.

use hs_engine::PrefetchConfig;
use hs_engine::queue::{Class, ClientKey, Direction, QueueConfig};
use hs_units::{ByteRange, Nanos};

use crate::prefetching::Stream;
use crate::simulation::{Io, Station, Workload, simulate};

/// One read of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// The program's own time before it.
    pub(super) think: Nanos,
    /// What it reads.
    pub(super) range: ByteRange,
}

/// The times of a replay, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    /// Until the program had come to its end.
    pub(super) all: f64,
    /// Of that, the waits for reads.
    pub(super) waited: f64,
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
pub(super) fn replay(config: QueueConfig, station: impl Station + 'static, reads: Vec<Read>) -> Took {
    let mut program = Program { reads, next: 0, waited: Nanos::ZERO };
    let run = simulate(config, station, Nanos(u64::MAX), &mut program);
    Took { all: run.ended.as_secs_f64(), waited: program.waited.as_secs_f64() }
}

/// A hot region at the front of the medium, and a program that needs its chunks in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) chunks: u32,
    pub(super) chunk_bytes: u64,
    /// The program's own time before each chunk.
    pub(super) think: Nanos,
}

/// The progress of a prefetched start, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Prefetched {
    /// The program had all of it.
    pub(super) all: f64,
    /// The medium had delivered all of it.
    pub(super) delivered: f64,
    /// When each chunk came.
    pub(super) arrivals: Vec<Nanos>,
}

/// A program whose reads are brought by the engine's prefetch.
struct Follower {
    stream: Stream,
    region: Region,
    next: u32,
    waits: bool,
    arrivals: Vec<Nanos>,
    ended: Nanos,
}

/// Token of [`Io::wake`]: the program needs its next chunk. The stream's tokens have higher bits.
const WANT: u64 = 0;

impl Follower {
    fn want(&mut self, io: &mut Io) {
        self.waits = self.next < self.region.chunks && !self.stream.has(self.next);
        if self.waits {
            return;
        }
        self.next += 1;
        self.ended = io.now();
        if self.next < self.region.chunks {
            io.wake(io.now() + self.region.think, WANT);
        }
    }

    fn note(&mut self, io: &Io) {
        for chunk in 0..self.region.chunks {
            if self.arrivals[chunk as usize] == Nanos(u64::MAX) && self.stream.has(chunk) {
                self.arrivals[chunk as usize] = io.now();
            }
        }
    }
}

impl Workload for Follower {
    fn start(&mut self, io: &mut Io) {
        self.stream.turn(io);
        io.wake(self.region.think, WANT);
    }

    fn handle_first_byte(&mut self, io: &mut Io, requests: &[usize]) {
        self.stream.handle_first_byte(io, requests);
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        self.stream.handle_done(io, request);
        self.note(io);
        if self.waits {
            self.want(io);
        }
    }

    fn handle_wake(&mut self, io: &mut Io, token: u64) {
        match self.stream.handle_wake(io, token) {
            None => self.want(io),
            Some(Some(chunk)) => {
                let known = &mut self.arrivals[chunk as usize];
                *known = (*known).min(io.now());
                if self.waits {
                    self.want(io);
                }
            }
            Some(None) => {}
        }
    }
}

/// Starts a program behind the engine's prefetch.
pub(super) fn prefetched(config: QueueConfig, station: impl Station + 'static, region: Region) -> Prefetched {
    let stream = Stream::new(Some(PrefetchConfig::default()), region.chunks, region.chunk_bytes);
    let arrivals = vec![Nanos(u64::MAX); region.chunks as usize];
    let mut follower = Follower { stream, region, next: 0, waits: false, arrivals, ended: Nanos::ZERO };
    simulate(config, station, Nanos(u64::MAX), &mut follower);
    assert!(follower.next == region.chunks, "the program comes to its end");
    let delivered = follower.arrivals.iter().max().copied().unwrap_or_default();
    Prefetched {
        all: follower.ended.as_secs_f64(),
        delivered: delivered.as_secs_f64(),
        arrivals: follower.arrivals,
    }
}
