//! A sync storm on a large dirty cache (Tezuka 1991, section 2, side effect b).
//!
//! A buffer cache as large as memory makes `sync` take very long. Here a program writes a file, as fast
//! as its writes are taken; when all are, another program makes one synchronous write of 4 KiB.
//!
//! - *Without a bound*: all that was written waits in memory, as in the paper's cache.
//! - *In bytes*: the write engine's limit of 16 MiB, whatever the medium.
//! - *By time*: the engine as it is. It gathers what the medium writes in a quarter of a second.

use hs_lab::{Cell, Figure, Model, OverlayConfig, Report, Target, simulate_overlay};
use hs_lab::{OverlayIo, OverlayWorkload};
use hs_overlay::Limits;
use hs_units::{BLOCK_BYTES, Nanos};

/// Blocks of a MiB.
const MIB: u64 = (1 << 20) / BLOCK_BYTES;
/// MiB that are dirty.
const DIRTY: [u64; 3] = [4, 16, 64];
/// The paper's disk, and one of 2005.
const DISKS: [&str; 2] = ["hd286", "hdd-7200"];

/// What bounds the dirty share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    None,
    Bytes,
    Time,
}

impl Bound {
    const ALL: [Self; 3] = [Self::None, Self::Bytes, Self::Time];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bytes => "16 MiB",
            Self::Time => "by time",
        }
    }

    fn config(self) -> OverlayConfig {
        let config = OverlayConfig { is_paced: self == Self::Time, ..OverlayConfig::new(512 << 20) };
        let limits = match self {
            Self::None => {
                Limits { write_back_bytes: u64::MAX, gathered_bytes: u64::MAX, ..Limits::default() }
            }
            Self::Bytes | Self::Time => Limits::default(),
        };
        OverlayConfig { limits, ..config }
    }
}

/// A program that writes a file, and one that waits for its end to write a block.
struct Storm {
    mib: u64,
    taken: u64,
    /// When all was taken.
    came: Nanos,
    /// When the block, and with it all that was taken before, was on the medium.
    done: Nanos,
}

/// The number of the block's write.
const BLOCK_TOKEN: u64 = 1 << 32;

impl OverlayWorkload for Storm {
    fn start(&mut self, io: &mut OverlayIo<'_>) {
        io.write(0, 0, &[(0, MIB)]);
    }

    fn handle_taken(&mut self, io: &mut OverlayIo<'_>, token: u64) {
        if token == BLOCK_TOKEN {
            return io.flush(token);
        }
        self.taken += 1;
        if self.taken < self.mib {
            return io.write(0, self.taken, &[(self.taken * MIB, MIB)]);
        }
        self.came = io.now();
        io.write(1, BLOCK_TOKEN, &[(self.mib * MIB, 1)]);
    }

    fn handle_flushed(&mut self, io: &mut OverlayIo<'_>, _token: u64) {
        self.done = io.now();
        io.stop();
    }
}

/// Seconds that the synchronous write waits, and until all is on the medium.
fn storm(model: &Model, mib: u64, bound: Bound) -> [f64; 2] {
    let mut programs = Storm { mib, taken: 0, came: Nanos::ZERO, done: Nanos::ZERO };
    let station = model.writable_station().expect("the disk can be written to");
    simulate_overlay(bound.config(), model.kernel_config(), station, &mut programs);
    [(programs.done - programs.came).as_secs_f64(), programs.done.as_secs_f64()]
}

pub(crate) fn run(_seed: u64) -> Report {
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for disk in DISKS {
        let model = Model::writable(disk);
        let measured = DIRTY.map(|mib| Bound::ALL.map(|bound| storm(&model, mib, bound)));
        for (mib, measured) in DIRTY.iter().zip(measured) {
            for (bound, [wait, all]) in Bound::ALL.iter().zip(measured) {
                let words = [disk.into(), Cell::Number(*mib as f64, 0), bound.name().into()];
                rows.push(words.into_iter().chain([wait, all].map(|time| Cell::Number(time, 2))).collect());
            }
        }
        let [_, [none_of_less, _, by_time_of_less], [none, _, by_time]] = measured;
        figures.extend([
            Figure::new(format!("wait of a synchronous write behind 64 MiB (s), {disk}"), by_time[0])
                .off(none[0])
                .target(Target::AtMost(0.6)),
            Figure::new(format!("wait behind 64 MiB ÷ behind 16, {disk}"), by_time[0] / by_time_of_less[0])
                .off(none[0] / none_of_less[0])
                .target(Target::AtMost(1.2)),
            Figure::new(
                format!("until all 64 MiB are written ÷ without a bound, {disk}"),
                by_time[1] / none[1],
            )
            .off(1.0),
        ]);
    }
    let columns =
        vec!["disk", "written (MiB)", "bound", "wait of a synchronous write (s)", "all written (s)"];
    Report { columns, rows, figures, seed: None }
}
