//! Eight boots over one slow link.
//!
//! Each boot reads what its profile says: much in its first fifth, little later, as systems do. Each has a
//! prefetch of its own that knows nothing of the others; they meet at the link, which divides its rate among
//! them. *Full*: every prefetch goes as fast as it can. A boot that began earlier then brings what it needs
//! in a minute, while a new boot waits for what it needs now. *By deadline*: no prefetch brings anything long
//! before the profile's think times say that it is needed.

use hs_device::Medium;
use hs_engine::{PrefetchConfig, PrefetchRate};
use hs_units::Nanos;

use crate::models::Model;
use crate::prefetching::Stream;
use crate::report::{Cell, Figure, Report, Target};
use crate::simulation::{Io, Workload, simulate};

/// 24 Mbit/s: enough for all that the boots need, not for all of it at once.
const LINK: &str = "flat-10ms-3mbs";
const BOOTS: u8 = 8;
const CHUNKS: u32 = 48;
const CHUNK_BYTES: u64 = 128 << 10;

/// The machine's own time until it is ready.
const THINK: Nanos = Nanos::from_millis(20_000);

/// Three fifths of the chunks are needed in the first fifth of the time.
fn needed(chunk: u32) -> Nanos {
    let early = CHUNKS * 3 / 5;
    let fifth = THINK.0 / 5;
    if chunk < early {
        return Nanos(fifth * u64::from(chunk) / u64::from(early));
    }
    Nanos(fifth + 4 * fifth * u64::from(chunk - early) / u64::from(CHUNKS - early))
}

struct Boot {
    stream: Stream,
    begins: Nanos,
    next: u32,
    waiting: bool,
    ready: Option<Nanos>,
}

impl Boot {
    /// The machine wants its next chunk.
    fn read(&mut self, io: &mut Io) {
        if self.next == 0 {
            let deadlines = (0..CHUNKS).map(needed).collect();
            self.stream.policy().set_deadlines(io.now(), deadlines);
        }
        self.stream.policy().handle_wanted(io.now(), self.next);
        self.waiting = true;
        self.stream.turn(io);
        self.go_on(io);
    }

    /// Goes on if what it waits for has come.
    fn go_on(&mut self, io: &mut Io) {
        if !self.waiting || !self.stream.has(self.next) {
            return;
        }
        self.waiting = false;
        let used = needed(self.next);
        self.next += 1;
        let last = self.next == CHUNKS;
        let until = if last { THINK } else { needed(self.next) };
        let then = io.now() + until.saturating_sub(used);
        if last {
            self.ready = Some(then.saturating_sub(self.begins));
        } else {
            io.wake(then, self.stream.token());
        }
    }
}

struct Boots(Vec<Boot>);

impl Workload for Boots {
    fn start(&mut self, io: &mut Io) {
        for boot in &self.0 {
            io.wake(boot.begins, boot.stream.token());
        }
    }

    fn handle_first_byte(&mut self, io: &mut Io, requests: &[usize]) {
        let now = io.now();
        for boot in self.0.iter_mut().filter(|boot| boot.begins <= now) {
            boot.stream.handle_first_byte(io, requests);
        }
    }

    fn handle_wake(&mut self, io: &mut Io, token: u64) {
        let boot = &mut self.0[Stream::client_of(token)];
        match boot.stream.handle_wake(io, token) {
            None => boot.read(io),
            Some(_) => boot.go_on(io),
        }
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        if let Some(boot) =
            self.0.iter_mut().find_map(|boot| boot.stream.handle_done(io, request).then_some(boot))
        {
            boot.go_on(io);
        }
    }
}

/// Times to ready, of boots that begin `apart`.
fn boot(rate: PrefetchRate, apart: Nanos) -> Vec<f64> {
    let model = Model::Medium(Medium::parse(LINK).expect("the link is described"));
    let boot = |client: u8| Boot {
        stream: Stream::new(Some(PrefetchConfig { rate, ..PrefetchConfig::default() }), CHUNKS, CHUNK_BYTES)
            .of_client(client),
        begins: Nanos(apart.0 * u64::from(client)),
        next: 0,
        waiting: false,
        ready: None,
    };
    let mut boots = Boots((0..BOOTS).map(boot).collect());
    simulate(model.config(), model.station(), Nanos(u64::MAX), &mut boots);
    boots.0.iter().map(|boot| boot.ready.expect("every boot ends").as_secs_f64()).collect()
}

pub(super) fn run(_seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for apart in [0, 500, 1_000, 2_000] {
        let worst =
            [("full", PrefetchRate::Full), ("by deadline", PrefetchRate::ByDeadline)].map(|(name, rate)| {
                let ready = boot(rate, Nanos::from_millis(apart));
                let worst = ready.iter().copied().fold(0.0, f64::max);
                let mean = ready.iter().sum::<f64>() / ready.len() as f64;
                let waits = worst - THINK.as_secs_f64();
                rows.push(vec![
                    Cell::Number(apart as f64 / 1e3, 1),
                    name.into(),
                    Cell::Number(worst, 2),
                    Cell::Number(mean, 2),
                    Cell::Number(waits, 2),
                ]);
                (worst, waits)
            });
        let [full, paced] = worst;
        let apart = apart as f64 / 1e3;
        let ready = format!("worst time to ready by deadline ÷ full, boots {apart} s apart");
        figures.push(Figure::new(ready, paced.0 / full.0));
        if apart <= 1.0 {
            let waits = format!("what the worst boot waits by deadline ÷ full, boots {apart} s apart");
            figures.push(Figure::new(waits, paced.1 / full.1).off(1.0).target(Target::AtMost(0.95)));
        }
    }
    let columns = vec!["begun apart (s)", "prefetch", "worst (s)", "mean (s)", "of the worst, waiting (s)"];
    Report { columns, rows, figures, seed: None }
}
