//! Many clients that start at once from one server. The slides of 2004 leave this open ("one client takes up
//! to 40 Mbit/s; how is that spread?").
//!
//! All clients begin within ten seconds, and share the wire of 580 Mbit/s through the engine's queue at the
//! server. The slides do not say where SFS spends its own time, so both ends are shown: at each client, or at
//! the server for all.

use hs_engine::queue::{Class, ClientKey, Direction, MediumTraits, QueueConfig, jain_index};
use hs_lab::{Cell, Figure, Io, Report, Workload, simulate};
use hs_units::{Nanos, Prng};

use crate::sfs::{BLOCK, COMPUTING, GIGABIT, KNOPPIX_BYTES, Sfs, place};

/// The time within which clients are switched on.
const SPREAD: Nanos = Nanos::from_millis(10_000);

/// How many clients.
const CLIENTS: [u64; 4] = [1, 4, 16, 64];

/// Starts, one a client.
struct Starts {
    begins: Vec<Nanos>,
    /// Blocks that each client has received, and when it received the last.
    had: Vec<u64>,
    ended: Vec<Nanos>,
    /// Blocks that a client requests at once: one, as cloop does, or several by a prefetch.
    together: u64,
    blocks: u64,
    think: Nanos,
}

impl Starts {
    fn new(seed: u64, clients: u64, together: u64) -> Self {
        let mut prng = Prng::new(seed);
        let blocks = KNOPPIX_BYTES / BLOCK;
        Self {
            begins: (0..clients).map(|_| Nanos(prng.below(SPREAD.0))).collect(),
            had: vec![0; clients as usize],
            ended: vec![Nanos::ZERO; clients as usize],
            together,
            blocks,
            think: Nanos::from_secs_f64(COMPUTING / blocks as f64),
        }
    }

    /// Seconds from switching each client on to the end of its start.
    fn took(&self) -> Vec<f64> {
        let both = self.ended.iter().zip(&self.begins);
        both.map(|(ended, begins)| (*ended - *begins).as_secs_f64()).collect()
    }
}

impl Workload for Starts {
    fn start(&mut self, io: &mut Io) {
        for (client, begins) in self.begins.iter().enumerate() {
            io.wake(*begins, client as u64);
        }
    }

    fn handle_wake(&mut self, io: &mut Io, client: u64) {
        let had = self.had[client as usize];
        let blocks = self.together.min(self.blocks - had);
        let range = place(client, had * BLOCK, blocks * BLOCK);
        io.request(Class::Demand, ClientKey(client), Direction::Read, range);
    }

    fn handle_done(&mut self, io: &mut Io, request: usize) {
        let answer = io.requests()[request];
        let client = answer.client.0 as usize;
        let blocks = answer.range.len / BLOCK;
        self.had[client] += blocks;
        let then = io.now() + Nanos(self.think.0 * blocks);
        self.ended[client] = then;
        if self.had[client] < self.blocks {
            io.wake(then, client as u64);
        }
    }
}

/// The result for this many clients.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    mean: f64,
    worst: f64,
    jain: f64,
}

fn measure(seed: u64, clients: u64, at_server: bool, together: u64, rate: f64) -> Outcome {
    let mut starts = Starts::new(seed, clients, together);
    let traits = MediumTraits { rotational: false, overlaps: true, bytes_per_s: Some(rate / 8.0) };
    simulate(
        QueueConfig::for_medium(traits),
        Sfs::new(rate, clients, at_server),
        Nanos(u64::MAX),
        &mut starts,
    );
    let took = starts.took();
    let waited: Vec<f64> = took.iter().map(|all| 1.0 / (all - COMPUTING)).collect();
    Outcome {
        mean: took.iter().sum::<f64>() / took.len() as f64,
        worst: took.iter().copied().fold(0.0, f64::max),
        jain: jain_index(waited),
    }
}

pub(crate) fn run(seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for (end, at_server) in [("clients", false), ("server", true)] {
        for (name, rate) in [("1 Gbit/s", GIGABIT), ("100 Mbit/s", 100e6)] {
            let alone = measure(seed, 1, at_server, 1, rate).mean;
            for clients in CLIENTS {
                let served = measure(seed, clients, at_server, 1, rate);
                let number = |value, digits| Cell::Number(value, digits);
                rows.push(vec![
                    end.into(),
                    name.into(),
                    number(clients as f64, 0),
                    number(served.mean, 1),
                    number(served.worst, 1),
                    number(served.jain, 4),
                ]);
                if clients == 64 {
                    let what = format!("mean start of 64 clients ÷ of one, SFS's time at the {end}, {name}");
                    figures.push(Figure::new(what, served.mean / alone).off(1.0));
                    let what =
                        format!("Jain's index of waiting, 64 clients, SFS's time at the {end}, {name}");
                    figures.push(Figure::new(what, served.jain));
                }
            }
        }
    }
    let columns = vec![
        "SFS's time at the",
        "wire",
        "clients",
        "mean start (s)",
        "worst (s)",
        "Jain's index of waiting",
    ];
    Report { columns, rows, figures, seed: Some(seed) }
}
