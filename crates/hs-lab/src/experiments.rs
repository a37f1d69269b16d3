//! The experiments about the engine, one a file.

mod ageing;
mod deadlines;
mod demand_p99;
mod elevators;
mod fairness;

use crate::report::Report;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// Runs it with a seed; experiments without random numbers ignore it.
    pub run: fn(u64) -> Report,
}

/// Those of this crate.
pub const EXPERIMENTS: &[Experiment] = &[
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
