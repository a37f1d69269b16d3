//! The experiments, one a file.

mod ageing;
mod deadlines;
mod demand_p99;
mod elevators;
mod fairness;
mod kernel_1991;
mod merge_1991;
mod nfs;
mod priority_1991;
mod read_ahead_1991;

use crate::report::Report;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// What it is called.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// Runs it with a seed, which those ignore that have nothing random.
    pub run: fn(u64) -> Report,
}

/// All of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "merge-1991",
        about: "Merging adjacent requests on the SCSI disks of a workstation of 1991, writing and reading",
        run: merge_1991::run,
    },
    Experiment {
        name: "priority-1991",
        about: "Synchronous writes before asynchronous ones on a magneto-optical disk of 1989",
        run: priority_1991::run,
    },
    Experiment {
        name: "read-ahead-1991",
        about: "Reading one and four blocks ahead through NFS over an Ethernet of 10 Mbit/s",
        run: read_ahead_1991::run,
    },
    Experiment {
        name: "fairness",
        about: "Shares of sixteen clients that ask unequally, and of one with ten connections",
        run: fairness::run,
    },
    Experiment {
        name: "demand-p99",
        about: "How much longer demand reads take while a hot region is read ahead",
        run: demand_p99::run,
    },
    Experiment {
        name: "deadlines",
        about: "Eight boots over one slow link, each as fast as it can or as late as it may",
        run: deadlines::run,
    },
    Experiment {
        name: "elevators",
        about: "The five elevators on every medium: throughput, latency, jumps and merging",
        run: elevators::run,
    },
    Experiment {
        name: "ageing",
        about: "How long a less urgent class waits while demand keeps the medium busy",
        run: ageing::run,
    },
];
