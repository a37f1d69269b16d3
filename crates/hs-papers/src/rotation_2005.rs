//! The rate of a CD drive by the position on the disc (Kitagawa and others 2005, figure 1).
//!
//! Thirteen tracks of 50 MB from the inside out, read in requests of 1,024 KB as there. The figure has no
//! numbers; its text says that CLV hardly changes, that CAV is about 2.5 times as fast outside as inside, and
//! of the other kinds that inside is not faster than outside.

use hs_device::{OpticalDrive, Rotation};
use hs_lab::{Cell, Claim, Figure, Report};
use hs_units::{ByteRange, Nanos};

use crate::knoppix::queue;
use crate::replay::{Read, replay};

const TRACK: u64 = 50_000_000;
const TRACKS: u64 = 13;
const REQUEST: u64 = 1_024 << 10;

/// KiB a second of one track.
fn rate(drive: OpticalDrive, track: u64) -> f64 {
    let reads = (0..TRACK / REQUEST).map(|number| Read {
        think: Nanos::ZERO,
        range: ByteRange::new(track * TRACK + number * REQUEST, REQUEST),
    });
    let reads: Vec<Read> = reads.collect();
    let bytes = reads.len() as u64 * REQUEST;
    let took = replay(queue(), drive.device(OpticalDrive::CAPACITY), reads);
    bytes as f64 / 1_024.0 / took.all
}

pub(crate) fn run(_seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for rotation in Rotation::ALL {
        let drive = OpticalDrive { rotation, speed: 24 };
        let rates: Vec<f64> = (0..TRACKS).map(|track| rate(drive, track)).collect();
        for (track, rate) in rates.iter().enumerate() {
            let track = Cell::Number((track + 1) as f64, 0);
            rows.push(vec![drive.to_string().into(), track, Cell::Number(*rate, 0)]);
        }
        ratios.push((rotation, rates[rates.len() - 1] / rates[0]));
    }
    let constant = ratios[0].1;
    let figure = |(rotation, ratio): (Rotation, f64)| {
        let figure = Figure::new(format!("outermost track ÷ innermost, {}", rotation.name()), ratio);
        match rotation {
            Rotation::Clv => figure.published("000 figure 1", Claim::Alike).arithmetic(),
            Rotation::Cav => figure.off(constant).published("000 figure 1", Claim::Ratio(2.5)),
            _ => figure.off(constant).published("000 section 4", Claim::More).arithmetic(),
        }
    };
    let figures = ratios.into_iter().map(figure).collect();
    Report { columns: vec!["drive", "track", "KiB/s"], rows, figures, seed: None }
}
