//! Demand reads while a hot region is read ahead.
//!
//! The engine's prefetch policy and its queue together, against the same demand without prefetch. Three kinds of demand:
//! *misses* outside the hot region, isolated or in bursts, which only lose by a prefetch; and a *start*, a program that
//! reads what the profile says and now and then something else, for which prefetch is made. Each run is a start of its
//! own: the policy knows nothing of the medium when it begins, and demand begins when the opening request has come.

use hs_engine::PrefetchConfig;
use hs_engine::queue::{Class, ClientKey, Direction};
use hs_units::{ByteRange, Nanos, Prng};

use crate::models::Model;
use crate::prefetching::Stream;
use crate::report::{Cell, Figure, Report, Target};
use crate::simulation::{Io, Workload, simulate};
use crate::statistics::Latencies;

/// Stored bytes of a chunk, and of what a miss brings.
const CHUNK: u64 = 64 << 10;

/// The hot region is what the medium delivers in the time of so many requests elsewhere.
const HOT: u64 = 300;

/// Starts, each with a seed of its own.
const STARTS: u64 = 40;

/// What a program does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Misses, some ten request times apart (exponentially distributed).
    Isolated,
    /// Eight misses one after the other with two milliseconds between them, then a pause of twenty request times.
    Bursts,
    /// The hot chunks in order, two milliseconds apart; a tenth of all reads are misses.
    Start,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Isolated, Self::Bursts, Self::Start];

    const fn name(self) -> &'static str {
        match self {
            Self::Isolated => "isolated misses",
            Self::Bursts => "bursts of misses",
            Self::Start => "a start",
        }
    }
}

/// What the program waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    Nothing,
    Request(usize),
    Chunk(u32),
}

struct Program {
    kind: Kind,
    stream: Stream,
    prng: Prng,
    request_time: Nanos,
    file_bytes: u64,
    /// Reads done, and the next hot chunk.
    reads: u64,
    next_chunk: u32,
    waiting: Waiting,
    since: Nanos,
    /// How long each read took.
    latencies: Vec<Nanos>,
}

const READ: u64 = 0;
const THINK: Nanos = Nanos::from_millis(2);

impl Program {
    /// Time from the end of a read to the next.
    fn think(&mut self) -> Nanos {
        match self.kind {
            Kind::Isolated => {
                let uniform = (self.prng.below(1 << 32) + 1) as f64 / (1_u64 << 32) as f64;
                Nanos((-uniform.ln() * 10.0 * self.request_time.0 as f64) as u64)
            }
            Kind::Bursts if self.reads % 8 == 0 => Nanos(self.request_time.0 * 20),
            Kind::Bursts | Kind::Start => THINK,
        }
    }

    fn read(&mut self, io: &mut Io) {
        self.since = io.now();
        if self.kind == Kind::Start && self.prng.below(10) != 0 {
            let chunk = self.next_chunk;
            if u64::from(chunk) * CHUNK >= self.stream.bytes() {
                return io.stop();
            }
            self.next_chunk += 1;
            if self.stream.has(chunk) {
                return self.finish(io);
            }
            if self.stream.joins(chunk) {
                self.waiting = Waiting::Chunk(chunk);
                return;
            }
        }
        let first = self.stream.bytes() / CHUNK;
        let place = first + self.prng.below(self.file_bytes / CHUNK - first);
        self.stream.policy().handle_miss(io.now());
        let range = ByteRange::new(place * CHUNK, CHUNK);
        self.waiting = Waiting::Request(io.request(Class::Demand, ClientKey(1), Direction::Read, range));
    }

    fn finish(&mut self, io: &mut Io) {
        self.waiting = Waiting::Nothing;
        self.latencies.push(io.now().saturating_sub(self.since));
        self.reads += 1;
        let then = io.now() + self.think();
        io.wake(then, READ);
    }
}

impl Workload for Program {
    fn start(&mut self, io: &mut Io) {
        self.stream.turn(io);
        if !self.stream.is_running() {
            io.wake(self.request_time, READ);
        }
    }

    fn handle_first_byte(&mut self, io: &mut Io, requests: &[usize]) {
        self.stream.handle_first_byte(io, requests);
    }

    fn handle_wake(&mut self, io: &mut Io, token: u64) {
        match self.stream.handle_wake(io, token) {
            None => self.read(io),
            Some(Some(chunk)) if self.waiting == Waiting::Chunk(chunk) => self.finish(io),
            Some(_) => {}
        }
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        if self.waiting == Waiting::Request(request) {
            self.stream.policy().handle_fetched(self.since, io.now(), CHUNK);
            self.stream.policy().handle_miss_answered(io.now());
            self.finish(io);
            self.stream.turn(io);
            return;
        }
        self.stream.handle_done(io, request);
        if request == 0 {
            // The opening request: now the disk is there.
            let then = io.now() + self.think();
            io.wake(then, READ);
        } else if let Waiting::Chunk(chunk) = self.waiting
            && self.stream.has(chunk)
        {
            self.finish(io);
        }
    }
}

/// Latencies of all starts, and the time in which the hot region was there, in the mean.
fn measure(model: &Model, kind: Kind, prefetch: Option<PrefetchConfig>, seed: u64) -> (Latencies, f64) {
    let request_time = model.request_time(CHUNK);
    let hot = Nanos(request_time.0 * HOT);
    let chunks = (model.bytes_per_s() * hot.as_secs_f64()) as u64 / CHUNK;
    let mut all = Vec::new();
    let mut ready = 0.0;
    for start in 0..STARTS {
        let mut program = Program {
            kind,
            stream: Stream::new(prefetch, chunks as u32, CHUNK),
            prng: Prng::new(seed.wrapping_mul(STARTS) + start),
            request_time,
            file_bytes: model.file_bytes(),
            reads: 0,
            next_chunk: 0,
            waiting: Waiting::Nothing,
            since: Nanos::ZERO,
            latencies: Vec::new(),
        };
        let until = if kind == Kind::Start { Nanos(u64::MAX) } else { hot };
        let run = simulate(model.config(), model.station(), until, &mut program);
        let streamed = run.requests.iter().filter(|answer| answer.class == Class::Prefetch);
        ready += streamed.filter_map(|answer| answer.done).max().unwrap_or(run.ended).as_secs_f64()
            / STARTS as f64;
        all.extend(program.latencies);
    }
    (all.into_iter().collect(), ready)
}

pub(super) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for model in Model::all() {
        for kind in Kind::ALL {
            let (without, _) = measure(&model, kind, None, seed);
            let (with, hot) = measure(&model, kind, Some(PrefetchConfig::default()), seed);
            let of_ms = |latencies: &Latencies, quantile| {
                Cell::Number(latencies.quantile(quantile).as_secs_f64() * 1e3, 1)
            };
            rows.push(vec![
                model.name().into(),
                kind.name().into(),
                Cell::Number(with.count() as f64, 0),
                of_ms(&without, 0.5),
                of_ms(&with, 0.5),
                of_ms(&without, 0.99),
                of_ms(&with, 0.99),
                Cell::Number(hot, 2),
            ]);
            let ratio = with.quantile(0.99).as_secs_f64() / without.quantile(0.99).as_secs_f64();
            let name = format!("p99 with prefetch ÷ without, {}, {}", kind.name(), model.name());
            figures.push(Figure::new(name, ratio).off(1.0).target(Target::AtMost(1.5)));
        }
    }
    let columns = vec![
        "medium",
        "demand",
        "reads",
        "p50 without (ms)",
        "p50 with (ms)",
        "p99 without (ms)",
        "p99 with (ms)",
        "hot region there (s)",
    ];
    Report { columns, rows, figures, seed: Some(seed) }
}
