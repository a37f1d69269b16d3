//! The experiments about the engine, one a file.

mod ageing;
mod compact;
mod deadlines;
mod demand_p99;
mod elevators;
mod fairness;
mod flash_elevators;
mod gathering;

use crate::report::Report;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// Where its parameters come from.
    pub parameters: &'static str,
    /// What of headstart's engine runs in it.
    pub engine: &'static str,
    /// Runs it with a seed; experiments without random numbers ignore it.
    pub run: fn(u64) -> Report,
}

/// Those of this crate.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "fairness",
        about: "Shares of sixteen clients that ask unequally, and of one with ten connections",
        parameters: "models of docs/MEDIA.md; sixteen clients and their depths are choices",
        engine: "the queue with shares for each client",
        run: fairness::run,
    },
    Experiment {
        name: "demand-p99",
        about: "How much longer demand reads take while a hot region is read ahead",
        parameters: "models of docs/MEDIA.md; chunks, misses and think times are choices; small windows for the disks of 1991, and that demand begins after the opening request, were chosen after a first run had missed the goal (decision 49)",
        engine: "the disk engine, as a server runs it",
        run: demand_p99::run,
    },
    Experiment {
        name: "deadlines",
        about: "Eight boots over one slow link, each as fast as it can or as late as it may",
        parameters: "a link of 3 MB/s and 10 ms; eight boots of 20 s, and when they need what, are choices",
        engine: "eight disk engines, by lab predict",
        run: deadlines::run,
    },
    Experiment {
        name: "elevators",
        about: "The five elevators on every medium: throughput, latency, jumps and merging",
        parameters: "models of docs/MEDIA.md; eight clients are a choice",
        engine: "the queue with each elevator",
        run: elevators::run,
    },
    Experiment {
        name: "flash-elevators",
        about: "Headstart's elevator before eMMC, SD card, memory stick and SSD, beside those of kernels",
        parameters: "models of docs/MEDIA.md; readers, their sizes and their files are choices",
        engine: "the queue with shares, and with the elevators",
        run: flash_elevators::run,
    },
    Experiment {
        name: "ageing",
        about: "How long a less urgent class waits while demand keeps the medium busy",
        parameters: "models of docs/MEDIA.md; 96 requests of demand are a choice",
        engine: "the queue with ageing",
        run: ageing::run,
    },
    Experiment {
        name: "gathering",
        about: "Flushes of many writers as one append, as a flush each, and writes in their places",
        parameters: "models of docs/MEDIA.md and hd286; numbers of writers and 50 µs between an answer and the next write are choices",
        engine: "the write engine; the queue",
        run: gathering::run,
    },
    Experiment {
        name: "compact",
        about: "Sequential reads of an overlay, half overwritten and compacted, beside those of a plain file",
        parameters: "models of docs/MEDIA.md and hd286; the disk, its overwrites and two windows of read-ahead are choices",
        engine: "the write engine's map and log; the queue",
        run: compact::run,
    },
];
