//! Flags of the commands that start a program: `headstart run` and `headstart profile`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hs_device::Medium;

use super::cache::CacheFlags;
use super::contain::ContainFlags;
use super::image::ImageArg;
use super::insecure::InsecureFlag;
use super::prefetch::PrefetchFlags;
use super::seconds;
use crate::medium::Damage;
use crate::medium::MediumParser;

/// The medium and the caches of a start.
#[derive(Clone, Debug, Args)]
pub(crate) struct StartFlags {
    /// Read the image from an emulated medium; `none` is the real one, and `flat-<N>ms-<M>mbs[-serial]` makes others.
    #[arg(long, value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Ready when a line of the command's output matches; when not given, when the command ends.
    #[arg(long, value_name = "REGEX")]
    pub ready: Option<regex::Regex>,
    /// Give up when the command is not ready after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds::parse)]
    pub ready_timeout: Duration,
    /// Kernel read-ahead on the mounted file system, in KiB; when not given 128, but 0 without root if the image is prefetched and its medium is
    /// a network, a disk that turns, or emulated.
    #[arg(long, value_name = "KIB")]
    pub read_ahead: Option<u32>,
    /// Honour set-user-id programs and device nodes in the image.
    #[arg(long)]
    pub trusted: bool,
    #[command(flatten)]
    pub contain: ContainFlags,
    #[command(flatten)]
    pub insecure: InsecureFlag,
}

impl StartFlags {
    /// Kernel read-ahead, in KiB.
    pub(crate) fn read_ahead_kib(&self) -> u32 {
        self.read_ahead.unwrap_or(128)
    }
}

/// Flags of `headstart profile`.
#[derive(Debug, Args)]
pub(crate) struct Profile {
    #[command(flatten)]
    pub image: ImageArg,
    /// The profile to write.
    #[arg(short, long, value_name = "P")]
    pub output: PathBuf,
    /// The medium and when the command counts as ready.
    #[command(flatten)]
    pub start: StartFlags,
    /// Go on recording for so many seconds after ready, then end the command.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds::parse)]
    pub grace: Duration,
    /// Record with the kernel's read-ahead on, neighbours included. Off, exactly what is used is recorded.
    #[arg(long)]
    pub keep_read_ahead: bool,
    /// Write the profile of a command that failed, too.
    #[arg(long)]
    pub keep_failed: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// The command, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Flags of `headstart run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub image: ImageArg,
    /// The medium and when the command counts as ready.
    #[command(flatten)]
    pub start: StartFlags,
    /// How prefetch behaves; the default is warm, and push without root.
    #[command(flatten)]
    pub prefetch: PrefetchFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// The image is a plain disk of some other system (raw ext4, squashfs, erofs): mount it as it is.
    #[arg(long)]
    pub foreign: bool,
    /// Observe, by kernel tracing, which prefetched bytes were used, late or unused.
    #[arg(long)]
    pub observe: bool,
    /// Write the run summary as one JSON object to FILE, or to standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "/dev/stderr")]
    pub json: Option<PathBuf>,
    /// The command, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
