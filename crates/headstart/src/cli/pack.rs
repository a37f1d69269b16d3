//! Flags of `headstart pack`.

use std::path::PathBuf;

use clap::Args;
use hs_start::location::ImageLocation;

use super::image::location_parser;
use super::optimize::ProfileUse;

/// Flags of `headstart pack`.
#[derive(Debug, Args)]
pub(crate) struct Pack {
    /// A raw disk, a qcow2 file, or a block device: a file or an address. Files behind a qcow2 file lie in
    /// its folder.
    #[arg(value_parser = location_parser(), value_name = "DISK")]
    pub disk: ImageLocation,
    /// A recorded start. Several recordings of one start are merged. Without one the pack has no hot region:
    /// record a start of it, and pack again.
    #[arg(short, long = "profile", value_name = "P")]
    pub profiles: Vec<PathBuf>,
    #[command(flatten)]
    pub use_of: ProfileUse,
    /// The pack to write. A pack of that name is replaced.
    #[arg(short, long, value_name = "PACK")]
    pub output: PathBuf,
    /// Do not read the whole disk. The pack then knows the disk by its length, its time and samples, and
    /// nothing verifies what is not packed. Without this flag each window of the disk has its digest.
    #[arg(long)]
    pub sampled: bool,
    /// Also pack a disk that is mounted for writing. Reads of what changes later fail.
    #[arg(long, hide_short_help = true)]
    pub mounted: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}
