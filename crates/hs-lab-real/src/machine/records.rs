//! What the engine's own record of what it does costs.

use std::time::Instant;

use hs_engine::queue::{
    Class, ClientKey, Direction, MediumTraits, Poll, Queue, QueueConfig, Request, RequestTag,
};
use hs_units::{ByteRange, Nanos};

use super::RealFigure;

/// Requests of a run; each leaves three records: requested, begun, ended.
const REQUESTS: u64 = 50_000;
const RECORDS: u64 = 3;

/// Runs with and without, of which the quickest count.
const RUNS: usize = 5;

/// Records that are kept.
const KEPT: usize = 4_096;

/// Seconds for all requests.
fn measure(recording: bool) -> f64 {
    let traits = MediumTraits { rotational: false, overlaps: false, bytes_per_s: Some(40e6) };
    let mut queue = Queue::new(QueueConfig::for_medium(traits));
    if recording {
        queue.start_recording(KEPT);
    }
    let began = Instant::now();
    for number in 0..REQUESTS {
        let now = Nanos(number * 1_000);
        let range = ByteRange::new(number * 7_919 % 32_768 * 4_096, 4_096);
        let (tag, client) = (RequestTag(number), ClientKey(0));
        queue.handle_request(
            now,
            Request { tag, class: Class::Demand, client, direction: Direction::Read, range },
        );
        if let Poll::Dispatch(dispatch) = queue.poll(now) {
            queue.handle_done(now, dispatch.id, dispatch.range.len).for_each(drop);
        }
    }
    began.elapsed().as_secs_f64()
}

/// Nanoseconds that a record costs.
pub(super) fn run() -> Vec<RealFigure> {
    let quickest = |recording| (0..RUNS).map(|_| measure(recording)).fold(f64::INFINITY, f64::min);
    let (off, on) = (quickest(false), quickest(true));
    let how = format!("the engine's queue, {REQUESTS} requests, quickest of {RUNS} runs each");
    let each = (on - off).max(0.0) / (REQUESTS * RECORDS) as f64;
    vec![
        RealFigure {
            name: "a record of the engine (µs; the paper's: 0.85)".to_owned(),
            value: each * 1e6,
            how: how.clone(),
        },
        RealFigure { name: "time with records ÷ without".to_owned(), value: on / off, how },
    ]
}
