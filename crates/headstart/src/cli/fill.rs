//! Flags of the commands for files that fill themselves.

use std::path::PathBuf;

use clap::Args;
use hs_device::Medium;

use super::PrefetchLimits;
use super::access::AccessFlags;
use super::image::{ImageArg, RemoteFlags};
use crate::filling::Descriptors;
use crate::medium::{Damage, MediumParser};

/// Flags of `headstart attach`.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    #[command(flatten)]
    pub image: ImageArg,
    /// The file, on ext4, XFS or btrfs; made when it does not exist, gone on with when it does.
    pub file: PathBuf,
    /// Stay in the foreground; Ctrl-C or SIGTERM ends it.
    #[arg(short, long)]
    pub foreground: bool,
    #[command(flatten)]
    pub access: AccessFlags,
    /// Fill only what is read and what the image says that a start needs, not the rest.
    #[arg(long)]
    pub no_hydrate: bool,
    /// Read the image from an emulated medium.
    #[arg(long, value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Prefetch nothing.
    #[arg(long)]
    pub no_prefetch: bool,
    #[command(flatten)]
    pub limits: PrefetchLimits,
    #[arg(long, hide = true)]
    pub(crate) ready_fd: Option<i32>,
    /// This process fills; its parent guards.
    #[arg(long, hide = true)]
    pub(crate) descriptors: Option<Descriptors>,
    /// This process stands by until all that hold the other end of this pipe have died.
    #[arg(long, hide = true, requires = "descriptors")]
    pub(crate) standby: Option<i32>,
    /// Where its messages go once its file can be read, where the system has no log.
    #[arg(long, hide = true)]
    pub(crate) log_file: Option<PathBuf>,
}

/// Flags of `headstart detach`.
#[derive(Debug, Args)]
pub(crate) struct Detach {
    /// The file.
    pub file: PathBuf,
    /// Also when it is not complete: from then on, reads give zeros where blocks are missing.
    #[arg(long)]
    pub incomplete: bool,
}

/// Flags of `headstart hydrate`.
#[derive(Debug, Args)]
pub(crate) struct Hydrate {
    /// The file.
    pub file: PathBuf,
    /// The image, where nothing fills the file now and the image is not where it was.
    #[arg(long)]
    pub image: Option<PathBuf>,
    #[command(flatten)]
    pub remote: RemoteFlags,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
