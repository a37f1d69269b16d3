//! The five elevators on every medium.
//!
//! Eight clients: four read at random, two read one block after the other, two write at random. (On media
//! that cannot be written to, those read as well.) Seven numbers for each elevator; the engine's default for
//! a medium is chosen by them.

use hs_engine::queue::{Class, ClientKey, Direction, ElevatorKind, QueueConfig};
use hs_units::{ByteRange, Nanos};

use crate::models::Model;
use crate::report::{Cell, Figure, Report};
use crate::simulation::{Run, simulate};
use crate::statistics::Latencies;
use crate::streams::{Pattern, Stream, Streams};

const CLIENTS: u64 = 8;
const REQUESTS: u64 = 2_000;
const BYTES: u64 = 32 << 10;

fn streams(model: &Model) -> Vec<Stream> {
    let part = model.file_bytes() / CLIENTS / BYTES * BYTES;
    let writable = matches!(model, Model::News(_));
    let stream = |client: u64| {
        let pattern = if matches!(client, 4 | 5) { Pattern::Sequential } else { Pattern::Random };
        let direction = if client >= 6 && writable { Direction::Write } else { Direction::Read };
        Stream {
            client: ClientKey(client),
            class: Class::Demand,
            direction,
            pattern,
            region: ByteRange::new(client * part, part),
            bytes: BYTES,
            depth: 2,
            think: Nanos::from_millis(1),
            begins: Nanos(client),
        }
    };
    (0..CLIENTS).map(stream).collect()
}

fn latencies(run: &Run, direction: Option<Direction>) -> Latencies {
    let of = |answer: &&crate::Answer| direction.is_none_or(|direction| answer.direction == direction);
    run.requests.iter().filter(of).filter_map(crate::Answer::latency).collect()
}

/// Requests to the medium that did not begin where the one before ended.
fn seeks(run: &Run) -> usize {
    let jumps = |pair: &&[crate::Sent]| pair[0].dispatch.range.end() != pair[1].dispatch.range.offset;
    run.sent.windows(2).filter(jumps).count()
}

pub(super) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for model in Model::all() {
        let until = Nanos(model.request_time(BYTES).0 * REQUESTS);
        let mut of_noop = None;
        for elevator in ElevatorKind::ALL {
            let config = QueueConfig { elevator, fairness: None, ..model.config() };
            let run = simulate(config, model.station(), until, &mut Streams::new(streams(&model), seed));
            let done: u64 = run
                .requests
                .iter()
                .filter(|answer| answer.done.is_some())
                .map(|answer| answer.range.len)
                .sum();
            let rate = done as f64 / run.ended.as_secs_f64() / 1e6;
            let all = latencies(&run, None);
            let of_ms = |quantile| Cell::Number(all.quantile(quantile).as_secs_f64() * 1e3, 1);
            rows.push(vec![
                model.name().into(),
                elevator.name().into(),
                Cell::Number(rate, 3),
                of_ms(0.5),
                of_ms(0.99),
                Cell::Number(seeks(&run) as f64 / run.sent.len() as f64, 3),
                Cell::Number(run.requests.len() as f64 / run.sent.len() as f64, 2),
            ]);
            match of_noop {
                None => of_noop = Some(rate),
                Some(noop) => {
                    let name = format!("throughput of {} ÷ noop's, {}", elevator.name(), model.name());
                    // Without an order requests are served as noop serves them.
                    figures.push(Figure::new(name, rate / noop).off(1.0));
                }
            }
        }
    }
    let columns =
        vec!["medium", "elevator", "MB/s", "p50 (ms)", "p99 (ms)", "jumps a request", "requests in one"];
    Report { columns, rows, figures, seed: Some(seed) }
}
