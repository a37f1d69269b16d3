//! Shares of clients.
//!
//! Sixteen clients read at random, each in its own part of the medium, and always want more.
//!
//! - *Alike*: each has four requests under way. Shares must cost nothing here.
//! - *Unequal*: some have two requests under way, others sixteen. Without shares, a client with more requests
//!   gets more. Where a head moves, sixteen requests of one client are served with less seeking than two each
//!   of eight. So shares have a price, which is stated.
//! - *Ten connections*: one client opens ten where the others have one each, and each connection asks as much
//!   as any other.

use hs_engine::queue::{Class, ClientKey, Direction, ElevatorKind, QueueConfig, jain_index};
use hs_units::{ByteRange, Nanos};

use crate::models::Model;
use crate::report::{Cell, Figure, Report, Target};
use crate::simulation::{Io, Run, Workload, simulate};
use crate::streams::{Pattern, Stream, Streams};

const CLIENTS: u64 = 16;
const CONNECTIONS: u32 = 10;
const BYTES: u64 = 64 << 10;

/// How many requests, one after the other, a run is long.
const REQUESTS: u64 = 4_000;

fn stream(model: &Model, client: u64, depth: u32) -> Stream {
    let part = model.file_bytes() / CLIENTS / BYTES * BYTES;
    Stream {
        client: ClientKey(client),
        class: Class::Demand,
        direction: Direction::Read,
        pattern: Pattern::Random,
        region: ByteRange::new(client * part, part),
        bytes: BYTES,
        depth,
        think: Nanos::ZERO,
        begins: Nanos::ZERO,
    }
}

/// Clients that ask alike.
fn alike(model: &Model) -> Vec<Stream> {
    (0..CLIENTS).map(|client| stream(model, client, 4)).collect()
}

/// Clients of which every fourth has so many requests under way.
fn unequal(model: &Model) -> Vec<Stream> {
    (0..CLIENTS).map(|client| stream(model, client, 2 << (client % 4))).collect()
}

/// The streams of one client's many connections, and one of each of the others.
fn connections(model: &Model) -> Vec<Stream> {
    let many = (0..CONNECTIONS).map(|_| stream(model, 0, 2));
    many.chain((1..CLIENTS).map(|client| stream(model, client, 2))).collect()
}

/// Opens every stream's connection before it begins.
struct Connected(Streams, Vec<ClientKey>);

impl Workload for Connected {
    fn start(&mut self, io: &mut Io) {
        for client in &self.1 {
            io.queue().open_connection(*client);
        }
        self.0.start(io);
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        self.0.handle_done(io, request);
    }

    fn handle_wake(&mut self, io: &mut Io, token: u64) {
        self.0.handle_wake(io, token);
    }
}

fn play(model: &Model, config: QueueConfig, streams: Vec<Stream>, seed: u64) -> Run {
    let clients = streams.iter().map(|stream| stream.client).collect();
    let until = Nanos(model.request_time(BYTES).0 * REQUESTS);
    simulate(config, model.station(), until, &mut Connected(Streams::new(streams, seed), clients))
}

/// Bytes of each client.
fn shares(run: &Run) -> Vec<f64> {
    let mut shares = vec![0.0; CLIENTS as usize];
    for answer in run.requests.iter().filter(|answer| answer.done.is_some()) {
        shares[answer.client.0 as usize] += answer.range.len as f64;
    }
    shares
}

/// Bytes a second of all clients together.
fn throughput(run: &Run) -> f64 {
    shares(run).iter().sum::<f64>() / run.ended.as_secs_f64()
}

/// The result of one queue on one medium.
struct Outcome {
    alike: f64,
    alike_rate: f64,
    unequal: f64,
    unequal_rate: f64,
    many: f64,
}

/// The figures of a medium: of deadline, of ours without shares, and of ours.
fn judge(medium: &str, [deadline, without, ours]: &[Outcome; 3]) -> [Figure; 5] {
    let jain = |what, ours: f64, without| {
        Figure::new(format!("Jain's index of 16 clients, {what}, {medium}"), ours)
            .off(without)
            .target(Target::AtLeast(0.99))
    };
    let rate = |what, ours: f64, without: f64, deadline: f64| {
        Figure::new(format!("throughput ÷ deadline's, {what}, {medium}"), ours / deadline)
            .off(without / deadline)
    };
    [
        jain("alike", ours.alike, without.alike),
        rate("alike", ours.alike_rate, without.alike_rate, deadline.alike_rate).target(Target::AtLeast(0.95)),
        jain("unequal", ours.unequal, without.unequal),
        rate("unequal", ours.unequal_rate, without.unequal_rate, deadline.unequal_rate),
        Figure::new(format!("shares of a client with 10 connections, {medium}"), ours.many)
            .off(without.many)
            .target(Target::AtMost(1.1)),
    ]
}

pub(super) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for model in Model::all() {
        let name = model.name();
        let ours = model.config();
        let without = QueueConfig { fairness: None, ..ours };
        let deadline = QueueConfig { elevator: ElevatorKind::Deadline, ..without };
        let cases = [("deadline", deadline), ("headstart, no shares", without), ("headstart", ours)];
        let results = cases.map(|(what, config)| {
            let alike = play(&model, config, alike(&model), seed);
            let unequal = play(&model, config, unequal(&model), seed);
            let ten = shares(&play(&model, config, connections(&model), seed));
            let result = Outcome {
                alike: jain_index(shares(&alike)),
                alike_rate: throughput(&alike),
                unequal: jain_index(shares(&unequal)),
                unequal_rate: throughput(&unequal),
                many: ten[0] / ten.iter().sum::<f64>() * CLIENTS as f64,
            };
            rows.push(vec![
                name.as_str().into(),
                what.into(),
                Cell::Number(result.alike, 4),
                Cell::Number(result.alike_rate / 1e6, 3),
                Cell::Number(result.unequal, 4),
                Cell::Number(result.unequal_rate / 1e6, 3),
                Cell::Number(result.many, 3),
            ]);
            result
        });
        figures.extend(judge(&name, &results));
    }
    let columns = vec![
        "medium",
        "queue",
        "Jain, alike",
        "MB/s, alike",
        "Jain, unequal",
        "MB/s, unequal",
        "shares of 10 connections",
    ];
    Report { columns, rows, figures, seed: Some(seed) }
}
