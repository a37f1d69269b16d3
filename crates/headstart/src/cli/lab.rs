//! `headstart lab`: its commands and flags.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use hs_device::Medium;
use hs_lab::{EXPERIMENTS, Experiment};

use crate::medium::{Damage, MediumParser};

/// Commands of `headstart lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Show FILE as DIR/NAME on an emulated medium, for any other program; the medium counts.
    Disk(LabDisk),
    /// Say which media are modelled.
    Media(LabMedia),
    /// Say which experiments there are.
    List(LabList),
    /// Run an experiment with the engine on models of media, in virtual time, and print what comes out.
    ///
    /// Nothing is read, and nothing is really slow: the same seed gives the same figures on every machine. docs/LAB.md says
    /// what each experiment is for, and where its models come from.
    Run(LabRun),
}

/// Flags of `headstart lab disk`.
#[derive(Debug, Args)]
pub(crate) struct LabDisk {
    /// The file that the medium holds.
    pub file: PathBuf,
    /// An empty directory, in which it appears under its own name.
    pub dir: PathBuf,
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
    /// The experiment.
    #[arg(value_name = "NAME", value_parser = experiment_parser())]
    pub experiment: Experiment,
    /// From which random numbers follow.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The name of an experiment, with all of them in help, completions and errors.
fn experiment_parser() -> impl TypedValueParser<Value = Experiment> {
    let values =
        EXPERIMENTS.iter().map(|experiment| PossibleValue::new(experiment.name).help(experiment.about));
    PossibleValuesParser::new(values).map(|name| {
        let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
        *found.expect("the parser lets only known names through")
    })
}
