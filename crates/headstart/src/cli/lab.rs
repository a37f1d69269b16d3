//! `headstart lab`: its commands and flags.

mod calibrate;
mod predict;
mod replay;
mod trace;

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use hs_device::Medium;
use hs_lab::{EXPERIMENTS, Experiment};
use hs_serve::nbd::NbdAddress;

use crate::medium::{Damage, MediumParser};

pub(crate) use self::calibrate::LabCalibrate;
pub(crate) use self::predict::{Compared, LabPredict, Layout};
pub(crate) use self::replay::LabReplay;
pub(crate) use self::trace::LabTrace;

/// Commands of `headstart lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Show FILE as DIR/NAME, or to NBD clients, on an emulated medium, for any other program; the medium counts.
    Disk(LabDisk),
    /// Say which media are modelled.
    Media(LabMedia),
    /// Predict how long a start takes from a medium, and why.
    ///
    /// The recorded program runs in virtual time: its reads go through a model of the kernel's read-ahead and the engine's own policies
    /// to the model of the medium. docs/LAB.md says what is modelled, and how far it agrees with starts in real time.
    Predict(Box<LabPredict>),
    /// Replay a recorded start, an iolog of fio or the text of blkparse on a model, or on a real device.
    Replay(LabReplay),
    /// Probe a device or a file, which is only read, and fit a model of it.
    ///
    /// A model file comes out, for --medium FILE.toml, with how far it is off. docs/LAB.md says what is probed.
    Calibrate(LabCalibrate),
    /// Record every request to a real device: who, where, how long it waited and was served.
    Trace(LabTrace),
    /// Say which experiments there are.
    List(LabList),
    /// Run an experiment with the engine on models of media, in virtual time, and print what comes out.
    ///
    /// Nothing is read, and nothing is really slow: the same seed gives the same figures on every machine. `all` runs one after
    /// another and ends with every published figure beside ours. With `--real`, what the kernel of this machine can show runs
    /// for real as well. docs/LAB.md says what each experiment is for, and where its models come from.
    Run(LabRun),
}

/// Flags of `headstart lab disk`.
#[derive(Debug, Args)]
pub(crate) struct LabDisk {
    /// The file that the medium holds.
    pub file: PathBuf,
    /// An empty directory, in which it appears under its own name.
    #[arg(required_unless_present = "nbd")]
    pub dir: Option<PathBuf>,
    /// Serve it to NBD clients here, under its own name and as the default export: HOST, HOST:PORT or unix:PATH.
    #[arg(long, value_name = "ADDR", value_parser = NbdAddress::from_str)]
    pub nbd: Option<NbdAddress>,
    /// The medium.
    #[arg(long, value_name = "M", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Print what the medium counted, as one JSON object, at the end.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart lab media`.
#[derive(Debug, Args)]
pub(crate) struct LabMedia {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart lab list`.
#[derive(Debug, Args)]
pub(crate) struct LabList {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart lab run`.
#[derive(Debug, Args)]
pub(crate) struct LabRun {
    /// The experiment, or all of them.
    #[arg(value_name = "NAME", value_parser = experiment_parser())]
    pub which: Which,
    /// From which random numbers follow.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write NAME.csv (figures), NAME-rows.csv and NAME.json into this directory, which is made if need be.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run on this machine's kernel, too, where that can be: elevators before a loop device, memory limited by a cgroup (as
    /// root).
    #[arg(long)]
    pub real: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What `headstart lab run` runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// One experiment.
    One(Experiment),
    /// One after another.
    All,
}

/// The word for all of them.
const ALL: &str = "all";

/// The name of an experiment, with all of them in help, completions and errors.
fn experiment_parser() -> impl TypedValueParser<Value = Which> {
    let named =
        EXPERIMENTS.iter().map(|experiment| PossibleValue::new(experiment.name).help(experiment.about));
    let values = named.chain([PossibleValue::new(ALL).help("One after another")]);
    PossibleValuesParser::new(values).map(|name| {
        if name == ALL {
            return Which::All;
        }
        let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
        Which::One(*found.expect("the parser lets only known names through"))
    })
}
