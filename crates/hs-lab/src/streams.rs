//! Programs that always have requests under way.

use hs_engine::queue::{Class, ClientKey, Direction};
use hs_units::{ByteRange, Nanos, Prng};

use crate::simulation::{Io, Workload};

/// Where a program's next request is.
#[derive(Clone, Copy, Debug)]
pub enum Pattern {
    /// Anywhere in the region.
    Random,
    /// Where the last request ended; from the region's end back to its beginning.
    Sequential,
}

/// A program that keeps a number of requests under way, and thinks between the end of one and the next.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The client.
    pub client: ClientKey,
    /// The urgency.
    pub class: Class,
    /// The direction.
    pub direction: Direction,
    /// The order.
    pub pattern: Pattern,
    /// Its part of the medium.
    pub region: ByteRange,
    /// Bytes of each request.
    pub bytes: u64,
    /// Requests under way.
    pub depth: u32,
    /// Time from the end of a request to the next.
    pub think: Nanos,
    /// When it begins.
    pub begins: Nanos,
}

/// Many of them.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    next: Vec<u64>,
    /// The stream of each request.
    of: Vec<usize>,
    prng: Prng,
}

impl Streams {
    /// These streams, with random places from `seed`.
    #[must_use]
    pub fn new(streams: Vec<Stream>, seed: u64) -> Self {
        let next = streams.iter().map(|stream| stream.region.offset).collect();
        Self { streams, next, of: Vec::new(), prng: Prng::new(seed) }
    }

    fn ask(&mut self, io: &mut Io, number: usize) {
        let stream = &self.streams[number];
        let offset = match stream.pattern {
            Pattern::Random => {
                let places = stream.region.len / stream.bytes;
                stream.region.offset + self.prng.below(places) * stream.bytes
            }
            Pattern::Sequential => {
                let offset = self.next[number];
                let end = offset + stream.bytes;
                let again = end + stream.bytes > stream.region.end();
                self.next[number] = if again { stream.region.offset } else { end };
                offset
            }
        };
        let range = ByteRange::new(offset, stream.bytes);
        let request = io.request(stream.class, stream.client, stream.direction, range);
        assert_eq!(request, self.of.len(), "only the streams ask");
        self.of.push(number);
    }
}

impl Workload for Streams {
    fn start(&mut self, io: &mut Io) {
        for number in 0..self.streams.len() {
            for _ in 0..self.streams[number].depth {
                io.wake(self.streams[number].begins, number as u64);
            }
        }
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        let number = self.of[request];
        io.wake(io.now() + self.streams[number].think, number as u64);
    }

    fn handle_wake(&mut self, io: &mut Io, token: u64) {
        self.ask(io, token as usize);
    }
}
