//! What a decision of the engine costs, as one JSON object.
//!
//! ```text
//! cargo run --release -p hs-queue --example decision -- [QUEUED] [REQUESTS] [CASE]
//! ```
//!
//! Keeps QUEUED requests waiting (10,000): each that ends is replaced by a new one, REQUESTS times (400,000).
//! The total time divided by the number of requests is the cost of one request: taking it in, choosing it and
//! ending it. Of two workloads `random` has nothing to merge, and `streams` has readers whose blocks lie next
//! to each other. It also measures the cost of recording an event. With CASE, only cases whose name contains
//! it run.
#![allow(clippy::disallowed_types, reason = "the engine is pure; what measures it is not")]

use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use hs_queue::{
    Class, ClientKey, Direction, ElevatorKind, MediumTraits, Poll, Queue, QueueConfig, Request, RequestTag,
};
use hs_queue::{Event, Recorder};
use hs_units::{ByteRange, Nanos, Prng};

const CLIENTS: u64 = 16;
/// Requests in one of the runs whose median counts.
const RUN: u64 = 2_000;
const BLOCK_BYTES: u64 = 4096;
const MEDIUM_BLOCKS: u64 = 1 << 28;

/// Where requests come from; the next one costs a few nanoseconds, which count as the engine's.
struct Workload {
    prng: Prng,
    streams: bool,
    positions: [u64; CLIENTS as usize],
    tag: u64,
}

impl Workload {
    fn next(&mut self) -> Request {
        let random = self.prng.next_u64();
        let client = random % CLIENTS;
        let block = if self.streams {
            self.positions[client as usize] += 1;
            client * (MEDIUM_BLOCKS / CLIENTS) + self.positions[client as usize]
        } else {
            (random >> 8) % MEDIUM_BLOCKS
        };
        self.tag += 1;
        Request {
            tag: RequestTag(self.tag),
            class: Class::ALL[if self.streams { client } else { random >> 60 } as usize % Class::COUNT],
            client: ClientKey(client),
            direction: if random >> 40 & 7 == 0 { Direction::Write } else { Direction::Read },
            range: ByteRange::new(block * BLOCK_BYTES, BLOCK_BYTES),
        }
    }
}

/// Nanoseconds a request: the median of many short runs, so that other load on the machine does not count.
fn decisions(config: QueueConfig, streams: bool, queued: u64, requests: u64) -> f64 {
    let mut queue = Queue::new(config);
    let mut workload = Workload { prng: Prng::new(1), streams, positions: [0; CLIENTS as usize], tag: 0 };
    let mut now = Nanos::ZERO;
    for _ in 0..queued {
        queue.handle_request(now, workload.next());
    }
    // The queue has settled when everything that waited at first is gone.
    serve(&mut queue, &mut workload, &mut now, 2 * queued);
    let mut runs: Vec<f64> =
        (0..requests / RUN).map(|_| serve(&mut queue, &mut workload, &mut now, RUN)).collect();
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// Serves this many requests, and returns the nanoseconds that each took.
fn serve(queue: &mut Queue, workload: &mut Workload, now: &mut Nanos, requests: u64) -> f64 {
    let began = Instant::now();
    let mut ended = 0;
    while ended < requests {
        match queue.poll(*now) {
            Poll::Dispatch(dispatch) => {
                *now += Nanos(100_000);
                let some = queue.handle_done(*now, dispatch.id, dispatch.range.len).count() as u64;
                for _ in 0..some {
                    queue.handle_request(*now, workload.next());
                }
                ended += some;
            }
            Poll::WaitUntil(then) => *now = then,
            Poll::Idle => unreachable!("requests wait"),
        }
    }
    began.elapsed().as_nanos() as f64 / ended as f64
}

/// Nanoseconds an event.
fn recording(events: u64) -> f64 {
    let mut recorder = Recorder::new(1 << 16);
    let began = Instant::now();
    for number in 0..events {
        let range = ByteRange::new(number * BLOCK_BYTES, BLOCK_BYTES);
        let (class, direction) = (Class::Demand, Direction::Read);
        let event =
            Event::Requested { tag: RequestTag(number), class, direction, client: ClientKey(number), range };
        recorder.record(Nanos(number), black_box(event));
    }
    black_box(&mut recorder);
    began.elapsed().as_nanos() as f64 / events as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let queued = arguments.next().map_or(Ok(10_000), |queued| queued.parse())?;
    let requests = arguments.next().map_or(Ok(400_000), |requests| requests.parse())?;
    let only = arguments.next().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    write!(out, "{{\"queued\": {queued}, \"requests\": {requests}")?;
    for elevator in ElevatorKind::ALL {
        for (workload, streams) in [("random", false), ("streams", true)] {
            for shared in [true, false] {
                let traits = MediumTraits { rotational: true, overlaps: false, bytes_per_s: None };
                let base = QueueConfig::for_medium(traits);
                // Looking for a stream is part of a decision; waiting for its next request is not.
                let config = QueueConfig {
                    elevator,
                    slice_idle: Nanos(1),
                    fairness: base.fairness.filter(|_| shared),
                    ..base
                };
                let shares = if shared { "shares" } else { "no shares" };
                let case = format!("{} {workload} {shares}", elevator.name());
                if case.contains(&only) {
                    let ns = decisions(config, streams, queued, requests);
                    write!(out, ", \"{case}\": {ns:.1}")?;
                }
            }
        }
    }
    writeln!(out, ", \"recording an event\": {:.1}}}", recording(10_000_000))?;
    Ok(())
}
