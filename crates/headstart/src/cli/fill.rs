//! Flags of the commands for files that fill themselves.

use std::path::PathBuf;

use clap::Args;

use super::PrefetchLimits;
use super::access::AccessFlags;
use super::emulation::EmulationFlags;
use super::image::{ImageArg, RemoteFlags};
use hs_daemon::attach::Descriptors;

/// Flags of `headstart attach`.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    #[command(flatten)]
    pub image: ImageArg,
    /// The file, on ext4, XFS or btrfs. It is created, or continued when it exists.
    pub file: PathBuf,
    /// Stay in the foreground until Ctrl-C or SIGTERM.
    #[arg(short, long)]
    pub foreground: bool,
    #[command(flatten)]
    pub access: AccessFlags,
    /// Fill only blocks that are read and blocks of the hot region, not the rest.
    #[arg(long = "no-fill", alias = "no-hydrate")]
    pub no_hydrate: bool,
    #[command(flatten)]
    pub emulation: EmulationFlags,
    /// Do not prefetch the hot region.
    #[arg(long, help_heading = "Prefetch and cache", hide_short_help = true)]
    pub no_prefetch: bool,
    #[command(flatten)]
    pub limits: PrefetchLimits,
    /// When the file can be read, print it as JSON.
    ///
    /// One object: `file`, `image`, `state` (filling or complete), `was_attached` (whether a server filled it
    /// already), `guard` and `pid` (the processes that guard and fill it; null when it is complete),
    /// `control_socket` and `log`.
    #[arg(long)]
    pub json: bool,
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
    /// The file that fills itself.
    pub file: PathBuf,
    /// Also end an incomplete file. Missing blocks then read as zeros.
    #[arg(long)]
    pub incomplete: bool,
    /// Print the result as JSON.
    ///
    /// One object: `file`, `state` (complete or incomplete) and `was_attached` (whether a server filled it).
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart fill`.
#[derive(Debug, Args)]
pub(crate) struct Hydrate {
    /// The file that fills itself.
    pub file: PathBuf,
    /// The image, if it has moved and no server fills the file.
    #[arg(long)]
    pub image: Option<PathBuf>,
    #[command(flatten)]
    pub remote: RemoteFlags,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}
