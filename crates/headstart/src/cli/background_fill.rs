//! A flag of the servers of disks.

use clap::Args;

/// Whether a server fills the cache on disk.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct BackgroundFillFlag {
    /// Bring all of an image from elsewhere into the cache on disk, while nobody waits for it.
    #[arg(long)]
    pub fill: bool,
}
