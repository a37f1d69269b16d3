//! Demand reads while a hot region is read ahead.
//!
//! The engine's prefetch policy and its queue together, against the same demand without prefetch. Three kinds
//! of demand: *misses* outside the hot region, isolated or in bursts, which only lose by a prefetch; and a
//! *start*, a program that reads what the profile says and now and then something else, for which prefetch is
//! made. Each run is a start of its own: the policy knows nothing of the medium when it begins, and demand
//! begins when the opening request has come.

use hs_engine::PrefetchConfig;
use hs_engine::queue::{Class, ClassConfig, ClientKey, Direction, QueueConfig};
use hs_units::{ByteRange, Nanos, Prng};

use crate::models::Model;
use crate::prefetching::Stream;
use crate::report::{Cell, Figure, Report, Target};
use crate::simulation::{Io, Workload, simulate};
use crate::statistics::Latencies;

/// Bytes that a miss brings.
const MISS: u64 = 64 << 10;

/// Media hand out pieces of this size (`hs_store::Emulate`), and the policy learns of the first byte with the
/// first piece.
const PIECE: u64 = 64 << 10;

/// The hot region has as many bytes as the medium delivers in the time of this many requests elsewhere.
const HOT: u64 = 600;

/// Misses of a start, in the mean.
const MISSES: u64 = 20;

/// Starts, each with a seed of its own.
const STARTS: u64 = 20;

/// What a program does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Misses, some ten request times apart (exponentially distributed).
    Isolated,
    /// Eight misses one after the other with two milliseconds between them, then a pause of twenty request
    /// times.
    Bursts,
    /// The hot chunks in order, two milliseconds apart, and about twenty misses among them: so many that the
    /// profile is still trusted.
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
    /// A separate request for a hot chunk.
    Own(usize, u32),
}

struct Program {
    kind: Kind,
    stream: Stream,
    sight: Sight,
    /// Which chunks have a marker, of those whose pages were asked for.
    marked: Vec<bool>,
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

/// Token of [`Io::wake`]: the next read.
const READ: u64 = 0;

/// The think time between two consecutive reads.
const THINK: Nanos = Nanos::from_millis(2);

impl Program {
    fn new(
        kind: Kind,
        stream: Stream,
        sight: Sight,
        prng: Prng,
        request_time: Nanos,
        file_bytes: u64,
    ) -> Self {
        Self {
            kind,
            stream,
            sight,
            marked: Vec::new(),
            prng,
            request_time,
            file_bytes,
            reads: 0,
            next_chunk: 0,
            waiting: Waiting::Nothing,
            since: Nanos::ZERO,
            latencies: Vec::new(),
        }
    }

    /// Time from the end of a read to the next.
    fn think(&mut self) -> Nanos {
        match self.kind {
            Kind::Isolated => {
                let uniform = (self.prng.below(1 << 32) + 1) as f64 / (1_u64 << 32) as f64;
                Nanos((-uniform.ln() * 10.0 * self.request_time.0 as f64) as u64)
            }
            Kind::Bursts if self.reads.is_multiple_of(8) => Nanos(self.request_time.0 * 20),
            Kind::Bursts | Kind::Start => THINK,
        }
    }

    /// Asks for the pages of chunks that come soon, as a warmer of a page cache does, and keeps back the
    /// blocks that the policy chooses.
    fn warm(&mut self, now: Nanos) {
        let policy = self.stream.policy();
        if self.sight != Sight::Markers || policy.ended().is_some() || policy.stands_back() {
            return;
        }
        let last = (policy.front() + WARMED_AHEAD).min(self.stream.chunks() - 1);
        for chunk in self.marked.len() as u32..=last {
            let policy = self.stream.policy();
            let marked = policy.handle_delivery(now, chunk);
            if marked {
                policy.handle_marker(chunk);
            }
            self.marked.push(marked);
        }
    }

    fn sees_use_of(&self, chunk: u32) -> bool {
        match self.sight {
            Sight::Every => true,
            Sight::Markers => self.marked.get(chunk as usize) == Some(&true),
            Sight::Waits => false,
        }
    }

    fn read(&mut self, io: &mut Io) {
        self.since = io.now();
        if self.kind == Kind::Start && self.prng.below(u64::from(self.stream.chunks())) >= MISSES {
            let chunk = self.next_chunk;
            if chunk >= self.stream.chunks() {
                return io.stop();
            }
            self.next_chunk += 1;
            if self.stream.has(chunk) {
                if self.sees_use_of(chunk) {
                    self.stream.policy().handle_used();
                    self.stream.turn(io);
                }
                return self.finish(io);
            }
            let hidden = (chunk as usize) < self.marked.len() && !self.sees_use_of(chunk);
            if !hidden {
                self.stream.policy().handle_wanted(io.now(), chunk);
                self.stream.turn(io);
            }
            if self.stream.joins(chunk) {
                if !hidden {
                    self.stream.hurry(io);
                }
                self.waiting = Waiting::Chunk(chunk);
                return;
            }
            if hidden {
                return self.fetch(io, chunk);
            }
        }
        let first = self.stream.bytes().div_ceil(MISS);
        let place = first + self.prng.below(self.file_bytes / MISS - first);
        self.stream.policy().handle_miss(io.now());
        let range = ByteRange::new(place * MISS, MISS);
        self.waiting = Waiting::Request(io.request(Class::Demand, ClientKey(1), Direction::Read, range));
    }

    /// Asks for a hot chunk out of turn.
    fn fetch(&mut self, io: &mut Io, chunk: u32) {
        let range = self.stream.place(chunk);
        let request = io.request(Class::Demand, ClientKey(1), Direction::Read, range);
        self.waiting = Waiting::Own(request, chunk);
    }

    /// Readers leave a stream that is stalled.
    fn leave_standing(&mut self, io: &mut Io) {
        if let Waiting::Chunk(chunk) = self.waiting
            && self.stream.policy().stands_still()
            && !self.stream.has(chunk)
        {
            self.fetch(io, chunk);
        }
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
        self.warm(io.now());
        match self.stream.handle_wake(io, token) {
            None => self.read(io),
            Some(Some(chunk)) if self.waiting == Waiting::Chunk(chunk) => self.finish(io),
            Some(_) => self.leave_standing(io),
        }
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        self.warm(io.now());
        if self.waiting == Waiting::Request(request) {
            self.stream.policy().handle_fetched(self.since, io.now(), MISS);
            self.stream.policy().handle_miss_answered(io.now());
            self.finish(io);
            self.stream.turn(io);
            return;
        }
        if let Waiting::Own(own, chunk) = self.waiting
            && own == request
        {
            let bytes = self.stream.place(chunk).len;
            self.stream.policy().handle_fetched(self.since, io.now(), bytes);
            self.stream.policy().handle_resident(chunk);
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
        self.leave_standing(io);
    }
}

/// Stored bytes of a hot chunk: as in the image of the demo's root. They are small on the slow disks of 1991,
/// for which an image would be built with small windows.
fn hot_chunk(model: &Model) -> u64 {
    match model {
        Model::Medium(_) => 160 << 10,
        Model::News(_) => 32 << 10,
    }
}

/// Which uses the policy sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sight {
    /// Each read: readers ask the server.
    Every,
    /// Reads of markers, and waits for what was not requested yet.
    Markers,
    /// Only waits for what has not come.
    Waits,
}

/// The warmer requests unread pages this many chunks ahead of the stream; a reader of these pages waits for
/// these requests.
const WARMED_AHEAD: u32 = 3;

/// The kind of prefetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    Nothing,
    /// The policy and the queue without regard for demand, except for the classes.
    Unyielding,
    Ours,
    /// The same where the kernel answers from its pages, so that use of the hot region is not seen.
    Unseen,
    /// The same with markers.
    Marked,
}

impl Policy {
    const ALL: [Self; 5] = [Self::Nothing, Self::Unyielding, Self::Ours, Self::Unseen, Self::Marked];

    fn sight(self) -> Sight {
        match self {
            Self::Unseen => Sight::Waits,
            Self::Marked => Sight::Markers,
            _ => Sight::Every,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Unyielding => "does not yield",
            Self::Ours => "yields",
            Self::Unseen => "yields, use unseen",
            Self::Marked => "yields, markers",
        }
    }

    const fn yields(self) -> bool {
        matches!(self, Self::Ours | Self::Unseen | Self::Marked)
    }

    fn prefetch(self) -> Option<PrefetchConfig> {
        let config = PrefetchConfig::default();
        (self != Self::Nothing).then_some(PrefetchConfig {
            yields: self.yields(),
            sees_use: matches!(self, Self::Ours | Self::Marked),
            ..config
        })
    }

    fn queue(self, config: QueueConfig) -> QueueConfig {
        let unyielding = config.classes.map(|class| ClassConfig { hold_off: Nanos::ZERO, ..class });
        if self.yields() { config } else { QueueConfig { classes: unyielding, ..config } }
    }
}

/// The result of all starts.
struct Outcome {
    latencies: Latencies,
    /// Mean time of a start, or until the hot region was there if it is not read.
    time: f64,
}

impl Outcome {
    fn p99(&self) -> f64 {
        self.latencies.quantile(0.99).as_secs_f64()
    }

    fn row(&self, model: &Model, kind: Kind, policy: Policy) -> Vec<Cell> {
        let of_ms = |quantile| Cell::Number(self.latencies.quantile(quantile).as_secs_f64() * 1e3, 1);
        vec![
            model.name().into(),
            kind.name().into(),
            policy.name().into(),
            Cell::Number(self.latencies.count() as f64, 0),
            of_ms(0.5),
            of_ms(0.9),
            of_ms(0.99),
            Cell::Number(self.time, 2),
        ]
    }
}

fn measure(model: &Model, kind: Kind, policy: Policy, seed: u64) -> Outcome {
    let request_time = model.request_time(MISS);
    let hot = Nanos(request_time.0 * HOT);
    let chunk_bytes = hot_chunk(model);
    let chunks = (model.bytes_per_s() * hot.as_secs_f64()) as u64 / chunk_bytes;
    let mut latencies = Vec::new();
    let mut time = 0.0;
    for start in 0..STARTS {
        let stream = Stream::new(policy.prefetch(), chunks as u32, chunk_bytes).in_pieces(PIECE);
        let prng = Prng::new(seed.wrapping_mul(STARTS) + start);
        let mut program = Program::new(kind, stream, policy.sight(), prng, request_time, model.file_bytes());
        let until = if kind == Kind::Start { Nanos(u64::MAX) } else { hot };
        let run = simulate(policy.queue(model.config()), model.station(), until, &mut program);
        let streamed = run.requests.iter().filter(|answer| answer.class == Class::Prefetch);
        let hot_there = streamed.filter_map(|answer| answer.done).max();
        let ended = if kind == Kind::Start { run.ended } else { hot_there.unwrap_or_default() };
        time += ended.as_secs_f64() / STARTS as f64;
        latencies.extend(program.latencies);
    }
    Outcome { latencies: latencies.into_iter().collect(), time }
}

pub(super) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for model in Model::all() {
        for kind in Kind::ALL {
            let outcomes = Policy::ALL.map(|policy| {
                let outcome = measure(&model, kind, policy, seed);
                rows.push(outcome.row(&model, kind, policy));
                outcome
            });
            let [nothing, unyielding, ours, unseen, marked] = outcomes;
            let what = format!("{}, {}", kind.name(), model.name());
            figures.push(
                Figure::new(format!("p99 with prefetch ÷ without, {what}"), ours.p99() / nothing.p99())
                    .off(unyielding.p99() / nothing.p99())
                    .target(Target::AtMost(1.5)),
            );
            // Where the kernel answers from its pages: by markers, and without them.
            figures.push(
                Figure::new(
                    format!("p99 where use is seen by markers ÷ without, {what}"),
                    marked.p99() / nothing.p99(),
                )
                .off(unseen.p99() / nothing.p99())
                .target(Target::AtMost(1.5)),
            );
            if kind == Kind::Start {
                figures.push(
                    Figure::new(format!("time with prefetch ÷ without, {what}"), ours.time / nothing.time)
                        .off(unyielding.time / nothing.time),
                );
                figures.push(
                    Figure::new(
                        format!("time where use is seen by markers ÷ without, {what}"),
                        marked.time / nothing.time,
                    )
                    .off(unseen.time / nothing.time),
                );
            }
        }
    }
    let columns = vec![
        "medium",
        "demand",
        "prefetch",
        "reads",
        "p50 (ms)",
        "p90 (ms)",
        "p99 (ms)",
        "start or hot region (s)",
    ];
    Report { columns, rows, figures, seed: Some(seed) }
}
