//! `headstart lab`: its commands and flags.

mod calibrate;
mod predict;
mod replay;
mod trace;

use std::path::PathBuf;
use std::str::FromStr;

use crate::cli::plain::{Plain, same_names};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use hs_device::Medium;
use hs_lab_real::experiments::{Run, Which};
use hs_nbd::NbdAddress;

use hs_start::medium::Damage;

use super::emulation::{DamageFlags, MediumParser};

pub(crate) use self::calibrate::LabCalibrate;
pub(crate) use self::predict::LabPredict;
pub(crate) use self::replay::LabReplay;
pub(crate) use self::trace::LabTrace;

/// Commands of `headstart lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Show a file on an emulated medium to other programs, as DIR/NAME or over NBD, and count its requests.
    Disk(LabDisk),
    /// List the emulated media.
    Media(LabMedia),
    /// Predict how long a start takes from a medium, and why.
    ///
    /// The recorded program runs in virtual time: its reads go through a model of the kernel's read-ahead and
    /// the engine's policies to a model of the medium. docs/LAB.md compares predictions with starts in real
    /// time.
    Predict(Box<LabPredict>),
    /// Replay a profile, a fio iolog or blkparse text on a model or a real device.
    Replay(LabReplay),
    /// Measure a device or file by reading it, and fit a model.
    ///
    /// The result is a model file for --emulate FILE.toml, with its error. docs/LAB.md says what is measured.
    Calibrate(LabCalibrate),
    /// Record every request to a real device: process, address, waiting and service time.
    Trace(LabTrace),
    /// List the experiments.
    List(LabList),
    /// Run an experiment with the engine on models of media, in virtual time.
    ///
    /// The same seed gives the same figures on every machine. `all` runs every experiment and ends with each
    /// published figure beside ours. `--real` also runs what this machine's kernel can show. docs/LAB.md
    /// says how to read them, and docs/PAPERS.md has those of the papers that the list calls seeds 000 to
    /// 004.
    Run(LabRun),
}

/// Flags of `headstart lab disk`.
#[derive(Debug, Args)]
pub(crate) struct LabDisk {
    /// The file on the medium.
    pub file: PathBuf,
    /// An empty directory. The file appears in it under its own name.
    #[arg(required_unless_present = "nbd")]
    pub dir: Option<PathBuf>,
    /// Serve it over NBD at HOST, HOST:PORT or unix:PATH, under its own name and as the default export.
    #[arg(long, value_name = "ADDR", value_parser = NbdAddress::from_str)]
    pub nbd: Option<NbdAddress>,
    /// The medium.
    #[arg(long = "emulate", alias = "medium", value_name = "MEDIUM", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Plain<DamageFlags, Damage>,
    /// Print the medium's counters as JSON at the end.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart lab media`.
#[derive(Debug, Args)]
pub(crate) struct LabMedia {
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart lab list`.
#[derive(Debug, Args)]
pub(crate) struct LabList {
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart lab run`, as the laboratory knows them.
pub(crate) type LabRun = Plain<RunFlags, Run>;

/// Flags of `headstart lab run`.
#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    /// The experiment, or `all`.
    #[arg(value_name = "NAME", value_parser = experiment_parser())]
    pub which: Which,
    /// Seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write NAME.csv (figures), NAME-rows.csv and NAME.json to this directory, which is created.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also run on this machine's kernel where possible: elevators of a loop device, memory limited by a
    /// cgroup. Needs root.
    #[arg(long)]
    pub real: bool,
    /// Write the tables of this document anew, between `<!-- lab: NAME -->` and `<!-- lab end -->`, from
    /// every experiment with seed 1, and print nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "out", "real", "seed"])]
    pub markdown: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

same_names!(RunFlags => Run { which, seed, out, real, markdown, json });

/// The word for all of them.
const ALL: &str = "all";

/// The name of an experiment, with all of them in help, completions and errors.
fn experiment_parser() -> impl TypedValueParser<Value = Which> {
    let named = hs_papers::all().map(|experiment| PossibleValue::new(experiment.name).help(experiment.about));
    let values = named.chain([PossibleValue::new(ALL).help("Every experiment, one after another")]);
    PossibleValuesParser::new(values).map(|name| {
        if name == ALL {
            return Which::All;
        }
        let found = hs_papers::all().find(|experiment| experiment.name == name);
        Which::One(*found.expect("the parser lets only known names through"))
    })
}
