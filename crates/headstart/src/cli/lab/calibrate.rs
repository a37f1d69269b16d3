//! Flags of `headstart lab calibrate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hs_device::ModelName;
use hs_lab_real::calibrate::Calibration;

use crate::cli::plain::{Plain, same_names};
use crate::cli::seconds;

/// Flags of `headstart lab calibrate`, as the laboratory knows them.
pub(crate) type LabCalibrate = Plain<CalibrateFlags, Calibration>;

/// Flags of `headstart lab calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateFlags {
    /// A block device, or a large file on it. It is only read.
    pub path: PathBuf,
    /// The model file to write, for --emulate.
    #[arg(short, long, value_name = "FILE.toml")]
    pub output: Option<PathBuf>,
    /// Name of the model.
    #[arg(long, value_name = "NAME", default_value = "calibrated", value_parser = parse_name)]
    pub name: ModelName,
    /// Duration of each probe.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds::parse)]
    pub time: Duration,
    /// Seed of the random addresses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

same_names!(CalibrateFlags => Calibration { path, output, name, time, seed, json });

fn parse_name(text: &str) -> Result<ModelName, String> {
    let name = ModelName::new(text).ok_or("use up to 40 of a-z, 0-9, '-', '_', '.'")?;
    if hs_device::Medium::parse(text).is_ok() {
        return Err("a built-in medium is called that".to_owned());
    }
    Ok(name)
}
