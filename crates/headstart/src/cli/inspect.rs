//! Flags of `headstart inspect` and `headstart verify`.

use std::path::PathBuf;

use clap::Args;

use super::image::ImageArg;

/// The help of the file.
const FILE: &str = "An image (file or address, as for `run`), a profile, or the trace of a start (CSV)";

/// Flags of `headstart inspect`.
#[derive(Debug, Args)]
#[command(mut_arg("image", |arg| arg.value_name("FILE").help(FILE).long_help(FILE)))]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub file: ImageArg,
    /// Print the reads of a profile as CSV.
    #[arg(long)]
    pub csv: bool,
    /// Print what the start of a profile reads at each layer: file system, this image, medium.
    #[arg(long, value_name = "IMAGE", conflicts_with = "csv")]
    pub layers: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
}

/// Flags of `headstart verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub image: ImageArg,
    /// Also compare every block with this raw disk.
    #[arg(long, value_name = "RAW")]
    pub against: Option<PathBuf>,
    /// Also check the signature by this public key: its text or a .pub file.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The signature. Default: IMAGE.minisig.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub signature: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}
