//! A flag of the servers of disks.

use clap::Args;

/// Whether a server fills the cache on disk.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct BackgroundFillFlag {
    /// Download the whole remote image into the disk cache while no reader waits.
    #[arg(long, help_heading = "Remote images")]
    pub fill: bool,
}
