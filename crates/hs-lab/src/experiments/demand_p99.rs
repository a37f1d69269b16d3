//! Demand reads while a hot region is read ahead.
//!
//! The disk engine with its prefetch, against the same engine and the same demand without one. Three kinds of
//! demand: *misses* outside the hot region, isolated or in bursts, which only lose by a prefetch; and a
//! *start*, a program that reads what the profile says and now and then something else, for which prefetch is
//! made. Each run is a start of its own: the engine knows nothing of the medium when it begins, and demand
//! begins when the request that opens the image has come.

use hs_engine::disk::{DeliveryConfig, DiskConfig, ReadId, UseVisibility};
use hs_engine::queue::{ClassConfig, ClientKey, QueueConfig};
use hs_engine::{EndReason, PrefetchConfig};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Nanos, Prng};

use crate::models::Model;
use crate::report::{Cell, Figure, Report, Target};
use crate::served::{
    FETCHERS, ImageLayout, LayoutMap, Processors, SERVED, ServedEvent, ServedImage, simulate_served,
};
use crate::simulation::{Io, Workload};
use crate::statistics::Latencies;

/// Bytes that a miss asks for.
const MISS: u64 = 64 << 10;

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

/// What the kernel's page cache has of a hot chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pages {
    /// Nothing; it was not asked for.
    Absent,
    /// The warmer has asked for all but the tripwire, where there is one; the engine has not answered.
    Coming(ReadId),
    /// All but the tripwire, where there is one.
    Cached,
}

struct Program<'a> {
    kind: Kind,
    policy: Policy,
    disk: ServedImage<'a>,
    cold_bytes: u64,
    file_bytes: u64,
    request_time: Nanos,
    prng: Prng,
    pages: Vec<Pages>,
    /// Chunks whose first block the warmer has left out.
    tripwires: Vec<bool>,
    /// The warmer has asked for the chunks before this one.
    warmed: u32,
    /// Reads done, and the next hot chunk.
    reads: u64,
    next_chunk: u32,
    /// What the read under way waits for.
    waiting: Vec<ReadId>,
    since: Nanos,
    /// How long each read took.
    latencies: Vec<Nanos>,
}

/// Token of [`Io::wake`]: the next read.
const READ: u64 = 0;

/// The think time between two consecutive reads.
const THINK: Nanos = Nanos::from_millis(2);

/// The warmer asks for pages this many chunks ahead of the stream, as that of `hs-serve` does.
const WARMED_AHEAD: u32 = 3;
/// Chunks that are held behind the warmer, likewise.
const HELD_CHUNKS: u32 = 16;

/// The request that opens the image, which is the first.
const OPENING: usize = 0;

const CLIENT: ClientKey = ClientKey(1);

fn blocks(range: ByteRange) -> BlockRange {
    BlockRange::new(Lba::containing(range.offset), range.len / BLOCK_BYTES)
}

impl Program<'_> {
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

    /// Asks for the pages of the chunks that come soon, as the warmer of `hs-serve` does: all blocks but the
    /// tripwire, and nothing ahead of the stream while the profile is doubted.
    fn warm(&mut self, io: &mut Io) {
        if self.policy != Policy::Marked {
            return;
        }
        while (self.warmed as usize) < self.pages.len() {
            let chunk = self.warmed;
            let engine = self.disk.engine();
            let prefetch = engine.prefetch();
            let waits = prefetch.is_doubted() || prefetch.is_throttled();
            let after = if waits { Some(chunk) } else { chunk.checked_sub(WARMED_AHEAD) };
            if matches!(prefetch.ended(), Some(EndReason::Memory | EndReason::NoHelp))
                || !(prefetch.ended().is_some() || after.is_none_or(|chunk| prefetch.has_arrived(chunk)))
            {
                return;
            }
            if let Some(old) = chunk.checked_sub(HELD_CHUNKS) {
                engine.handle_released(io.now(), old);
            }
            engine.handle_expected(chunk);
            let wire = engine.wants_tripwire(io.now(), chunk) && engine.handle_left_out(chunk, 0);
            self.tripwires[chunk as usize] = wire;
            let all = blocks(self.disk.layout().chunk_on_disk(chunk));
            let rest = if wire { BlockRange::new(Lba(all.start.0 + 1), all.count - 1) } else { all };
            self.warmed += 1;
            if self.pages[chunk as usize] == Pages::Absent {
                self.pages[chunk as usize] = Pages::Coming(self.disk.read(io, rest));
            }
        }
    }

    fn read(&mut self, io: &mut Io) {
        self.since = io.now();
        let chunks = self.pages.len() as u64;
        if self.kind != Kind::Start || self.prng.below(chunks) < MISSES {
            let place = self.prng.below(self.cold_bytes / MISS) * MISS;
            let range = ByteRange::new(self.disk.layout().cold_on_disk(self.cold_bytes) + place, MISS);
            self.waiting = vec![self.disk.read(io, blocks(range))];
            return;
        }
        let chunk = self.next_chunk;
        if u64::from(chunk) >= chunks {
            return io.stop();
        }
        self.next_chunk += 1;
        let all = blocks(self.disk.layout().chunk_on_disk(chunk));
        let pages = self.pages[chunk as usize];
        self.waiting.clear();
        if pages == Pages::Absent {
            self.waiting.push(self.disk.read(io, all));
        } else if std::mem::take(&mut self.tripwires[chunk as usize]) {
            self.waiting.push(self.disk.read(io, BlockRange::new(all.start, 1)));
        }
        if let Pages::Coming(read) = pages {
            self.waiting.push(read);
        }
        if self.waiting.is_empty() {
            self.finish(io);
        }
    }

    fn finish(&mut self, io: &mut Io) {
        self.latencies.push(io.now().saturating_sub(self.since));
        self.reads += 1;
        let then = io.now() + self.think();
        io.wake(then, READ);
    }

    fn handle_answered(&mut self, io: &mut Io, read: ReadId) {
        if let Some(pages) = self.pages.iter_mut().find(|pages| **pages == Pages::Coming(read)) {
            *pages = Pages::Cached;
        }
        if self.waiting.contains(&read) {
            self.waiting.retain(|other| *other != read);
            if self.waiting.is_empty() {
                self.finish(io);
            }
        }
    }

    fn take_events(&mut self, io: &mut Io) {
        self.warm(io);
        while let Some(event) = self.disk.next_event() {
            match event {
                ServedEvent::Opened => {}
                ServedEvent::Answered(read) => self.handle_answered(io, read),
                ServedEvent::Delivered(chunk) => self.pages[chunk as usize] = Pages::Cached,
            }
            self.warm(io);
        }
    }
}

impl Workload for Program<'_> {
    fn start(&mut self, io: &mut Io) {
        self.disk.open(io, self.file_bytes);
    }

    fn handle_first_byte(&mut self, io: &mut Io, requests: &[usize]) {
        requests.iter().for_each(|request| self.disk.handle_first_byte(io, *request));
    }

    fn handle_wake(&mut self, io: &mut Io, token: u64) {
        if token & SERVED == 0 {
            self.read(io);
        } else {
            self.disk.handle_wake(io, token);
        }
        self.take_events(io);
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        self.disk.handle_done(io, request);
        if request == OPENING {
            let then = io.now() + self.think();
            io.wake(then, READ);
        }
        self.take_events(io);
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

/// Stored bytes of a cold window, likewise. A miss is one of them, or four.
fn window(model: &Model) -> u64 {
    match model {
        Model::Medium(_) => MISS,
        Model::News(_) => MISS / 4,
    }
}

/// The kind of prefetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    Nothing,
    /// The engine without regard for demand, except for the classes.
    Unyielding,
    /// An NBD server: each read asks the engine.
    Ours,
    /// Chunks are pushed into the page cache, so that use of the hot region is not seen.
    Unseen,
    /// A warmer fills the page cache, and tripwires show use.
    Marked,
}

impl Policy {
    const ALL: [Self; 5] = [Self::Nothing, Self::Unyielding, Self::Ours, Self::Unseen, Self::Marked];

    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Unyielding => "does not yield",
            Self::Ours => "yields",
            Self::Unseen => "yields, use unseen",
            Self::Marked => "yields, tripwires",
        }
    }

    /// How the engine serves, as `hs-serve` would have it.
    fn disk(self, queue: QueueConfig) -> DiskConfig {
        let yields = self != Self::Unyielding;
        let unyielding = queue.classes.map(|class| ClassConfig { hold_off: Nanos::ZERO, ..class });
        let prefetch = PrefetchConfig {
            // No budget ends the prefetch, which is the harder case for demand.
            budget_bytes: 1 << 40,
            yields,
            sees_use: matches!(self, Self::Ours | Self::Marked),
            ..PrefetchConfig::default()
        };
        DiskConfig {
            queue: if yields { queue } else { QueueConfig { classes: unyielding, ..queue } },
            fetchers: FETCHERS,
            prefetch: (self != Self::Nothing).then_some(prefetch),
            readers_keep: matches!(self, Self::Unseen | Self::Marked),
            visibility: match self {
                Self::Unseen => UseVisibility::Hidden,
                Self::Marked => UseVisibility::Tripwires,
                _ => UseVisibility::Asked,
            },
            delivery: (self == Self::Unseen).then_some(DeliveryConfig { before_answers: true }),
            ..DiskConfig::default()
        }
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
    let file_bytes = model.file_bytes();
    let window_bytes = window(model);
    let cold_bytes = (file_bytes - chunks * chunk_bytes) / MISS * MISS;
    let layout = ImageLayout::hot_first(chunks as u32, chunk_bytes, cold_bytes / window_bytes, window_bytes);
    let mut latencies = Vec::new();
    let mut time = 0.0;
    for start in 0..STARTS {
        let config = policy.disk(model.config());
        let map = LayoutMap::new(&layout);
        let mut program = Program {
            kind,
            policy,
            disk: ServedImage::new(config, Processors::INSTANT, map, CLIENT, Nanos::ZERO),
            cold_bytes,
            file_bytes,
            request_time,
            prng: Prng::new(seed.wrapping_mul(STARTS) + start),
            pages: vec![Pages::Absent; chunks as usize],
            tripwires: vec![false; chunks as usize],
            warmed: 0,
            reads: 0,
            next_chunk: 0,
            waiting: Vec::new(),
            since: Nanos::ZERO,
            latencies: Vec::new(),
        };
        let until = if kind == Kind::Start { Nanos(u64::MAX) } else { hot };
        let run = simulate_served(model.station(), until, &mut program);
        let ended = if kind == Kind::Start { run.ended } else { program.disk.streamed.unwrap_or_default() };
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
            // Where the kernel answers from its pages: by tripwires, and without them.
            figures.push(
                Figure::new(
                    format!("p99 where use is seen by tripwires ÷ without, {what}"),
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
                        format!("time where use is seen by tripwires ÷ without, {what}"),
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
