//! Flags of the commands that start a program: `headstart run` and `headstart profile`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hs_units::ByteSize;

use super::cache::CacheFlags;
use super::contain::ContainFlags;
use super::emulation::EmulationFlags;
use super::image::ImageArg;
use super::insecure::InsecureFlag;
use super::keep::KeepFlag;
use super::learn::LearnFlags;
use super::prefetch::PrefetchFlags;
use super::seconds;
use super::volume::VolumeFlags;

/// The medium and the caches of a start.
#[derive(Clone, Debug, Args)]
pub(crate) struct StartFlags {
    #[command(flatten)]
    pub emulation: EmulationFlags,
    /// The command is ready when a line of its output matches. Default: when it ends.
    #[arg(long, value_name = "REGEX")]
    pub ready: Option<regex::Regex>,
    /// Fail when the command is not ready after this many seconds.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", default_value = "300", value_parser = seconds::parse)]
    pub ready_timeout: Duration,
    /// Kernel read-ahead of the mounted file system. Default: 128; without root 0 if the image is prefetched
    /// from a network, a rotating disk or an emulated medium.
    #[arg(long, value_name = "KIB", help_heading = "Prefetch and cache", hide_short_help = true)]
    pub read_ahead: Option<u32>,
    /// Start this program in place of the image's entrypoint, with CMD as its arguments. Empty: CMD alone.
    ///
    /// An image that was built from a container's image has a command of its own, by the rules of containers:
    /// CMD replaces the arguments (`Cmd`), not the program (`Entrypoint`). /.headstart/config.json in the
    /// image has it.
    #[arg(long, value_name = "PROGRAM", hide_short_help = true)]
    pub entrypoint: Option<OsString>,
    /// Memory for what the command writes, also to /tmp and /dev/shm. It is discarded at the end; writes that
    /// do not fit fail with "No space left on device".
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_scratch, hide_short_help = true)]
    pub scratch: ByteSize,
    /// Trust the image: allow set-user-id programs and device nodes.
    #[arg(long, help_heading = "Containment")]
    pub trusted: bool,
    #[command(flatten)]
    pub volume: VolumeFlags,
    #[command(flatten)]
    pub contain: ContainFlags,
    #[command(flatten)]
    pub insecure: InsecureFlag,
}

/// The kernel takes a file system in memory of no bytes as one without a bound.
fn parse_scratch(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(0..4096)) => Err("a root needs 4K for its writes at least".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(format!("{error}")),
    }
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
    /// The medium and when the command is ready.
    #[command(flatten)]
    pub start: StartFlags,
    /// Keep recording for this many seconds after the command is ready, then end it.
    #[arg(long = "record-after-ready", alias = "grace", value_name = "SECONDS", default_value = "1", value_parser = seconds::parse)]
    pub grace: Duration,
    /// Record with the kernel's read-ahead on, which records neighbouring blocks too. Without this flag only
    /// blocks that the command reads are recorded.
    #[arg(long, hide_short_help = true)]
    pub keep_read_ahead: bool,
    /// Also write the profile of a command that fails.
    #[arg(long, hide_short_help = true)]
    pub keep_failed: bool,
    /// Print the result as JSON. The output of the command goes to standard error then.
    #[arg(long)]
    pub json: bool,
    /// The command, after `--`. An image of a container has one of its own.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Flags of `headstart run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub image: ImageArg,
    /// The medium and when the command is ready.
    #[command(flatten)]
    pub start: StartFlags,
    /// The default of --prefetch is warm, and push without root.
    #[command(flatten)]
    pub prefetch: PrefetchFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    #[command(flatten)]
    pub keep: KeepFlag,
    #[command(flatten)]
    pub learn: LearnFlags,
    /// The file is a plain disk (raw ext4, squashfs, erofs), not an image: mount it directly.
    #[arg(long = "raw", alias = "foreign", hide_short_help = true, conflicts_with_all = ["learn", "keep"])]
    pub foreign: bool,
    /// Observe by kernel tracing which prefetched bytes were used, late or unused.
    #[arg(long, hide_short_help = true)]
    pub observe: bool,
    /// Write the kernel's reads, what was prefetched, and the processes of the command to FILE as CSV, for
    /// `headstart report`.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub trace: Option<PathBuf>,
    /// Print the run summary as JSON at the end; with --json=FILE, write it to FILE. While it is printed to
    /// standard output, the output of the command goes to standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = STDOUT)]
    pub json: Option<PathBuf>,
    /// The command, after `--`. An image of a container has one of its own.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// The file of `--json` without one.
pub(crate) const STDOUT: &str = "-";

impl Run {
    /// Whether the summary goes to standard output.
    pub(crate) fn prints_json(&self) -> bool {
        self.json.as_ref().is_some_and(|path| path.as_os_str() == STDOUT)
    }
}
