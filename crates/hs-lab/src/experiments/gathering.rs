//! Flushes of many writers as one append.
//!
//! Writers write 4 KiB at random and flush, again and again. *Gathered*: the write engine as it is: all that
//! comes during an append is the next one, which waits a moment for the writers that were just answered. *At
//! once*: it does not wait. *Not gathered*: a flush for each writer, one append after another.
//! *In place*: no overlay; each write goes to its own place, synchronously.

use hs_engine::queue::{Class, ClientKey, Direction};
use hs_units::{BLOCK_BYTES, ByteRange, Nanos};

use crate::models::Model;
use crate::overlay_disk::{OverlayConfig, simulate_overlay};
use crate::report::{Cell, Figure, Report, Target};
use crate::simulation::simulate;
use crate::streams::{Pattern, Stream, Streams};
use crate::writers::{Writer, Writers};

/// Writers at a time.
const WRITERS: [u64; 3] = [1, 8, 32];
/// Writes of all of them together.
const WRITES: u64 = 1_600;
/// Blocks of the disk: 256 MiB.
const BLOCKS: u64 = 1 << 16;
/// Two media that turn, and one that does not.
const MEDIA: [&str; 3] = ["hd286", "hdd-7200", "ssd-sata"];
/// What a client needs from an answer to its next write: a round trip over a socket of this machine.
const ROUND_TRIP: Nanos = Nanos(50_000);

/// Writes a second.
fn appended(model: &Model, writers: u64, config: OverlayConfig, seed: u64) -> f64 {
    let part = BLOCKS / writers;
    let writer = |number: u64| Writer {
        requester: number,
        pattern: Pattern::Random,
        region: (number * part, part),
        blocks: 1,
        depth: 1,
        syncs: true,
        think: ROUND_TRIP,
        begins: Nanos::ZERO,
        writes: Some(WRITES / writers),
    };
    let mut programs = Writers::new((0..writers).map(writer).collect(), seed);
    let station = model.writable_station().expect("the medium can be written to");
    simulate_overlay(config, model.kernel_config(), station, &mut programs);
    WRITES as f64 / programs.finished().as_secs_f64()
}

/// The same without an overlay.
fn in_place(model: &Model, writers: u64, seed: u64) -> f64 {
    let part = BLOCKS * BLOCK_BYTES / writers;
    let stream = |number: u64| Stream {
        client: ClientKey(number),
        class: Class::Demand,
        direction: Direction::Write,
        pattern: Pattern::Random,
        region: ByteRange::new(number * part, part),
        bytes: BLOCK_BYTES,
        depth: 1,
        think: ROUND_TRIP,
        begins: Nanos::ZERO,
    };
    let mut streams = Streams::new((0..writers).map(stream).collect(), seed);
    let station = model.writable_station().expect("the medium can be written to");
    let until = Nanos(model.request_time(BLOCK_BYTES).0 * WRITES / 4);
    let run = simulate(model.kernel_config(), station, until, &mut streams);
    let done = run.requests.iter().filter(|answer| answer.done.is_some()).count();
    done as f64 / run.ended.as_secs_f64()
}

pub(super) fn run(seed: u64) -> Report {
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for name in MEDIA {
        let model = Model::writable(name);
        for writers in WRITERS {
            let config = OverlayConfig::new(BLOCKS * BLOCK_BYTES);
            let off = appended(&model, writers, OverlayConfig { gathers: false, ..config }, seed);
            let on = appended(&model, writers, config, seed);
            let at_once = OverlayConfig { waits_for_writers: false, ..config };
            let at_once = appended(&model, writers, at_once, seed);
            let place = in_place(&model, writers, seed);
            let numbers = [place, off, at_once, on].map(|rate| Cell::Number(rate, 1));
            rows.push([name.into(), Cell::Number(writers as f64, 0)].into_iter().chain(numbers).collect());
            if writers == 1 {
                continue;
            }
            let figure =
                |what: &str, value: f64| Figure::new(format!("{what}, {writers} writers, {name}"), value);
            let alone = figure("gathered ÷ an append for each flush", on / off).off(1.0);
            let places = figure("gathered ÷ in place", on / place).off(off / place);
            let is_judged = writers == 8 && model.traits().rotational;
            figures.push(if is_judged { alone.target(Target::AtLeast(8.0)) } else { alone });
            figures.push(if is_judged { places.target(Target::AtLeast(8.0)) } else { places });
            figures.push(figure("at once ÷ an append for each flush", at_once / off));
        }
    }
    let columns =
        vec!["medium", "writers", "in place (writes/s)", "an append for each flush", "at once", "gathered"];
    Report { columns, rows, figures, seed: Some(seed) }
}
