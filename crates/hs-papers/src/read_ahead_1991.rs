//! Reading ahead through NFS (Tezuka 1991, section 5, table 5).
//!
//! A program reads a file of 8 MiB from a server. With one block ahead two reads are always under way; with
//! four, five: each by a separate `biod`, except the one that the program itself waits for. The gain is the
//! work that the processors and the wire do at the same time.

use hs_device::NewsDisk;
use hs_engine::queue::QueueConfig;
use hs_lab::{Cell, Claim, Figure, Report, Target, simulate};
use hs_units::Nanos;

use crate::kernel_1991::{BLOCK, Reader, kernel, rate};
use crate::nfs::{Nfs, Source, processor_at};

/// What was chosen after the fact.
const MACHINE: &str = "judged as an MC68030, because an R3000 scaled by MIPS gives 1.00";

/// Blocks of the file.
const BLOCKS: u64 = 1_024;

/// Processes of the client that wait for reads in the background: what `rc.local` started by default.
const BIODS: u32 = 4;

/// The rate at which one Sun-3 read from another (Sandberg, "The Sun Network Filesystem: Design,
/// Implementation and Experience", 1986).
const SUN3_READS: f64 = 250e3;

/// Of a processor, as the paper's table 1 has them, in MIPS. A Sun-3 has the first.
const MC68020: f64 = 2.3;
const MC68030: f64 = 5.3;
const R3000: f64 = 25.0;

/// Nothing merges, since a read of NFS is a block; all requests of the client's processes are under way.
fn client(biods: u32) -> QueueConfig {
    let config = kernel(false, true);
    let [mut demand, mut read_ahead, prefetch, fill] = config.classes;
    demand.depth = biods + 1;
    read_ahead.depth = biods;
    QueueConfig { classes: [demand, read_ahead, prefetch, fill], ..config }
}

/// KiB a second.
fn measure(mips: f64, cached: bool, read_ahead: u64) -> f64 {
    let processor = processor_at(SUN3_READS, BLOCK).as_secs_f64() * MC68020 / mips;
    let source = if cached { Source::Cache } else { Source::disk(NewsDisk::Wren4.device()) };
    let link = Nfs::new(Nanos::from_secs_f64(processor), source);
    // The client's processor is in the link.
    let mut reader = Reader::new(0, BLOCKS, read_ahead, Nanos::ZERO);
    let run = simulate(client(BIODS), link, Nanos(u64::MAX), &mut reader);
    rate(BLOCKS * BLOCK, run.ended)
}

pub(crate) fn run(_seed: u64) -> Report {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for (machine, mips) in [("MC68030", MC68030), ("R3000", R3000)] {
        for (place, cached) in [("memory", true), ("disk", false)] {
            let rates = [0, 1, 4, 8].map(|ahead| (ahead, measure(mips, cached, ahead)));
            for (ahead, rate) in rates {
                let ahead = Cell::Number(ahead as f64, 0);
                rows.push(vec![machine.into(), place.into(), ahead, Cell::Number(rate, 1)]);
            }
            let [none, one, four, _] = rates.map(|(_, rate)| rate);
            let name = format!("four blocks ahead ÷ one, {machine}, from the server's {place}");
            let mut figure = Figure::new(name, four / one).off(none / one);
            if machine == "MC68030" && cached {
                figure = figure
                    .target(Target::AtLeast(1.248))
                    .published("002 table 5", Claim::Ratio(787.7 / 505.7))
                    .chosen(MACHINE);
            }
            figures.push(figure);
        }
    }
    Report {
        columns: vec!["machines", "file in the server's", "blocks ahead", "KiB/s"],
        rows,
        figures,
        seed: None,
    }
}
