//! One slow writer that hogs the disk (Tezuka 1991, section 8, b).
//!
//! A process with much slow I/O can occupy a resource, since nothing in Unix plans I/O. Here a program writes
//! large pieces, many at a time and without waiting for the medium; another one writes a block now and then,
//! and waits until it is on the medium.
//!
//! - *As it is*: the engine gathers what the medium writes in a quarter of a second, and takes small and
//!   large writes that wait for room in turn.
//! - *In order of arrival*: the engine's limit is in bytes, and writes are taken in the order in which they
//!   came: the block waits behind all pieces.
//! - *Eight small*: eight such programs without a pause, whose flushes could keep the large one from its
//!   turn.

use hs_lab::{
    Cell, Figure, Latencies, Model, OverlayConfig, Pattern, Report, Target, Writer, Writers, simulate_overlay,
};
use hs_units::{BLOCK_BYTES, Nanos};

/// All programs are those of one kernel.
const KERNEL: u64 = 0;
/// Blocks of a piece: 1 MiB.
const PIECE: u64 = (1 << 20) / BLOCK_BYTES;
/// Pieces under way: what a kernel writes back at a time.
const DEPTH: u64 = 32;
/// Blocks of the large program's file, which it writes again and again: 32 MiB. Those of the others lie
/// behind it.
const LARGE: u64 = 1 << 13;
const SMALL: u64 = 1 << 10;
/// Synchronous writes of each small program, and its pause between two of them.
const WRITES: u64 = 10;
const PAUSE: Nanos = Nanos::from_millis(100);
/// The paper's disk, and one of 2005.
const DISKS: [&str; 2] = ["hd286", "hdd-7200"];

fn large() -> Writer {
    Writer {
        requester: KERNEL,
        pattern: Pattern::Sequential,
        region: (0, LARGE),
        blocks: PIECE,
        depth: DEPTH,
        syncs: false,
        think: Nanos::ZERO,
        begins: Nanos::ZERO,
        writes: None,
    }
}

fn small(number: u64, think: Nanos) -> Writer {
    Writer {
        requester: KERNEL,
        pattern: Pattern::Random,
        region: (LARGE + number * SMALL, SMALL),
        blocks: 1,
        depth: 1,
        syncs: true,
        think,
        begins: Nanos::from_millis(1_000),
        writes: Some(WRITES),
    }
}

/// What the programs found.
struct Outcome {
    /// Median and longest wait of a small write.
    waits: [f64; 2],
    /// Of the large program, in MB/s.
    rate: f64,
}

fn measure(model: &Model, writers: Vec<Writer>, is_on: bool, seed: u64) -> Outcome {
    let config = OverlayConfig {
        is_paced: is_on,
        takes_in_turn: is_on,
        ..OverlayConfig::new((LARGE + 8 * SMALL) * BLOCK_BYTES)
    };
    let count = writers.len();
    let mut programs = Writers::new(writers, seed);
    let station = model.writable_station().expect("the disk can be written to");
    simulate_overlay(config, model.kernel_config(), station, &mut programs);
    let waits: Latencies = (1..count).flat_map(|writer| programs.waits(writer)).collect();
    let waits = [0.5, 1.0].map(|quantile| waits.quantile(quantile).as_secs_f64());
    Outcome { waits, rate: programs.bytes_per_s(0) / 1e6 }
}

/// The large program by itself, in MB/s.
fn alone(model: &Model) -> f64 {
    let writes = if model.bytes_per_s() < 5e6 { 64 } else { 256 };
    let mut programs = Writers::new(vec![Writer { writes: Some(writes), ..large() }], 1);
    let config = OverlayConfig::new((LARGE + 8 * SMALL) * BLOCK_BYTES);
    let station = model.writable_station().expect("the disk can be written to");
    simulate_overlay(config, model.kernel_config(), station, &mut programs);
    programs.bytes_per_s(0) / 1e6
}

pub(crate) fn run(seed: u64) -> Report {
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for disk in DISKS {
        let model = Model::writable(disk);
        let alone = alone(&model);
        let one = || vec![large(), small(0, PAUSE)];
        let eight = || std::iter::once(large()).chain((0..8).map(|each| small(each, Nanos::ZERO))).collect();
        let [off, on] = [false, true].map(|is_on| measure(&model, one(), is_on, seed));
        let many = measure(&model, eight(), true, seed);
        for (name, found) in [("in order of arrival", &off), ("as it is", &on), ("eight small", &many)] {
            let numbers = [found.waits[0], found.waits[1], found.rate, alone];
            let numbers = numbers.map(|number| Cell::Number(number, 2));
            rows.push([disk.into(), name.into()].into_iter().chain(numbers).collect());
        }
        let longest = Figure::new(format!("longest wait of a small write (s), {disk}"), on.waits[1]);
        let longest = longest.off(off.waits[1]);
        // On a disk of 1.3 MB/s the first append, of a MiB, takes longer: the engine does not know it yet.
        figures.extend([
            if disk == DISKS[1] { longest.target(Target::AtMost(0.6)) } else { longest },
            Figure::new(format!("rate of the large program ÷ alone, {disk}"), on.rate / alone)
                .off(off.rate / alone)
                .target(Target::AtLeast(0.8)),
            Figure::new(format!("rate of the large program beside eight ÷ alone, {disk}"), many.rate / alone)
                .target(Target::AtLeast(0.5)),
        ]);
    }
    let columns = vec![
        "disk",
        "programs",
        "median wait (s)",
        "longest wait (s)",
        "large program (MB/s)",
        "alone (MB/s)",
    ];
    Report { columns, rows, figures, seed: Some(seed) }
}
