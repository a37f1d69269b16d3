//! The flag for changes that last.

use std::path::PathBuf;

use clap::Args;

/// The file for what is written.
#[derive(Debug, Args)]
pub(crate) struct KeepFlag {
    /// Keep what is written to the disk in FILE, which is made if it is not there. It belongs to this disk,
    /// and one process uses it at a time.
    #[arg(long, value_name = "FILE", help_heading = "Changes")]
    pub keep: Option<PathBuf>,
}
