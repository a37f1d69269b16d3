//! Flash whose service time depends on the address step: one thread (Nakamura and others 2013, figures 1, 2,
//! 5 and 6).
//!
//! The figures have no numbers in the text, so only directions are judged. The model takes from the paper
//! that going up is cheaper than going down. So figures 5 and 6 are no test of it, and only show it.

use hs_engine::queue::{Class, ClientKey, Direction, ElevatorKind};
use hs_engine::{ReadAhead, ReadAheadConfig};
use hs_lab::{Cell, Claim, Figure, Io, Report, Run, Station, Streams, Target, Workload, simulate};
use hs_units::{ByteRange, Nanos, Prng};

use crate::flash::{FILE, PAGE, TELEPHONES, THINK, queue, threads, without_steps};
use crate::replay::{Read, replay};

/// Reads of figure 1, and of figure 2.
const READS: u64 = 1_000;
const SINGLE: u64 = 1_024;

/// Bytes from one read of `sort` to the next.
const STRIDE: u64 = 1 << 20;

/// The time of the paper's observer for 1,000 records.
const RECORD: f64 = 850e-6 / 1_000.0;

/// One thread that reads block after block, with the engine's read-ahead or without.
struct Sequential {
    read_ahead: Option<ReadAhead>,
    next: u64,
    /// Blocks before this one have come or are on their way, and before that one have come.
    asked: u64,
    come: u64,
    /// The last block of each request.
    ends: Vec<u64>,
}

impl Workload for Sequential {
    fn start(&mut self, io: &mut Io) {
        io.wake(THINK, 0);
    }

    fn handle_wake(&mut self, io: &mut Io, _token: u64) {
        let block = self.next;
        let ahead = self.read_ahead.as_mut().map(|ahead| ahead.handle_read(block).fetch).unwrap_or(0..0);
        let end = ahead.end.max(block + 1).min(READS);
        if end > self.asked {
            let class = if self.asked == block { Class::Demand } else { Class::ReadAhead };
            let range = ByteRange::new(self.asked * PAGE, (end - self.asked) * PAGE);
            io.request(class, ClientKey(0), Direction::Read, range);
            self.ends.push(end);
            self.asked = end;
        }
        self.take(io);
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        let waited = self.come <= self.next;
        self.come = self.come.max(self.ends[request]);
        if waited {
            self.take(io);
        }
    }
}

impl Sequential {
    /// Goes on when the block has come.
    fn take(&mut self, io: &mut Io) {
        if self.next < self.come {
            self.next += 1;
            if self.next < READS {
                io.wake(io.now() + THINK, 0);
            }
        }
    }
}

fn sequential(station: Box<dyn Station>, ahead: bool) -> f64 {
    let config = ReadAheadConfig { limit: 32, ..ReadAheadConfig::default() };
    let read_ahead = ahead.then(|| ReadAhead::new(config));
    let mut thread = Sequential { read_ahead, next: 0, asked: 0, come: 0, ends: Vec::new() };
    let run = simulate(queue(ElevatorKind::Cfq), station, Nanos(u64::MAX), &mut thread);
    assert!(thread.next == READS, "all blocks are read");
    run.ended.as_secs_f64()
}

/// One thread that reads these pages, each when the one before has come.
fn pages(station: Box<dyn Station>, offsets: impl Iterator<Item = u64>) -> f64 {
    let reads =
        offsets.map(|offset| Read { think: THINK, range: ByteRange::new(offset / PAGE * PAGE, PAGE) });
    replay(queue(ElevatorKind::Cfq), station, reads.collect()).all
}

/// Seconds of `sort`, `shuffle` and `rand`.
fn orders(seed: u64, station: impl Fn() -> Box<dyn Station>) -> [f64; 3] {
    let mut prng = Prng::new(seed);
    let sorted: Vec<u64> = (0..SINGLE).map(|number| number * STRIDE).collect();
    let mut shuffled = sorted.clone();
    (1..shuffled.len()).rev().for_each(|last| shuffled.swap(last, prng.below(last as u64 + 1) as usize));
    let anywhere: Vec<u64> = (0..SINGLE).map(|_| prng.below(FILE)).collect();
    [sorted, shuffled, anywhere].map(|offsets| pages(station(), offsets.into_iter()))
}

/// Mean seconds of service where the address grew, and where it fell.
fn by_step(run: &Run) -> [f64; 2] {
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 2]);
    for pair in run.sent.windows(2) {
        let falls = usize::from(pair[1].dispatch.range.offset < pair[0].dispatch.range.end());
        let service = pair[1].service;
        sums[falls] += (service.done - service.starts).as_secs_f64();
        counts[falls] += 1.0;
    }
    [sums[0] / counts[0], sums[1] / counts[1]]
}

pub(crate) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for telephone in TELEPHONES {
        let name = telephone.name;
        let station = || telephone.station();
        let random = {
            let mut prng = Prng::new(seed);
            let offsets: Vec<u64> = (0..READS).map(|_| prng.below(FILE)).collect();
            pages(station(), offsets.into_iter())
        };
        let (ahead, plain) = (sequential(station(), true), sequential(station(), false));
        let [sort, shuffle, rand] = orders(seed, station);
        let [flat_sort, flat_shuffle, _] = orders(seed, without_steps);
        let until = Nanos::from_millis(4_000);
        let mut sixteen = Streams::new(threads(128 << 20), seed);
        let steps = simulate(queue(ElevatorKind::Deadline), station(), until, &mut sixteen);
        let [up, down] = by_step(&steps);
        for (what, seconds) in [
            ("1,000 reads, sequential", ahead),
            ("1,000 reads, sequential, no read-ahead", plain),
            ("1,000 reads, random", random),
            ("sort", sort),
            ("shuffle", shuffle),
            ("rand", rand),
            ("one read, address up", up),
            ("one read, address down", down),
        ] {
            rows.push(vec![name.into(), what.into(), Cell::Number(seconds * 1e3, 3)]);
        }
        figures.extend([
            Figure::new(format!("sequential rate ÷ random, {name}"), random / ahead)
                .off(random / plain)
                .published("004 figure 1", Claim::More),
            Figure::new(format!("time of sort ÷ of shuffle, {name}"), sort / shuffle)
                .off(flat_sort / flat_shuffle)
                .published("004 figure 2", Claim::Less),
            Figure::new(format!("service time, address up ÷ down, {name}"), up / down)
                .off(1.0)
                .published("004 figures 5, 6", Claim::Less)
                .arithmetic(),
            Figure::new(format!("a record of 0.85 µs ÷ a read, {name}"), RECORD / up)
                .target(Target::AtMost(0.01))
                .published("004 section 6.2", Claim::Less)
                .arithmetic(),
        ]);
    }
    Report { columns: vec!["device", "what", "ms"], rows, figures, seed: Some(seed) }
}
