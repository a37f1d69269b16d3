//! Flags of `headstart lab trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hs_lab_real::trace::Tracing;

use crate::cli::plain::{Plain, same_names};
use crate::cli::seconds;

/// Flags of `headstart lab trace`, as the laboratory knows them.
pub(crate) type LabTrace = Plain<TraceFlags, Tracing>;

/// Flags of `headstart lab trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceFlags {
    /// A block device, or a file on it.
    pub path: PathBuf,
    /// Trace this long. Default: until the command ends, or Ctrl-C.
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse)]
    pub time: Option<Duration>,
    /// Write every request to FILE as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// A command to run while tracing.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

same_names!(TraceFlags => Tracing { path, time, csv, json, command });
