//! Flags of `headstart resume`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hs_start::location::ImageLocation;
use hs_units::ByteSize;

use super::emulation::EmulationFlags;
use super::guest_network::NetworkFlags;
use super::image::ImageArg;
use super::insecure::InsecureFlag;
use super::keep::KeepFlag;
use super::prefetch::PrefetchLimits;
use super::seconds;

/// The help of the snapshot.
const SNAPSHOT: &str = "A snapshot that `boot --snapshot-out` wrote (file or address, as for `run`)";

/// The help of the file for what the guest writes.
const KEEP: &str = "Keep what the guest writes to its disk in FILE, which is made if it is not there";
const KEEP_LONG: &str = "Keep what the guest writes to its disk in FILE, which is made if it is not there

FILE begins with what the guest had written when it was saved. When more was written, `boot DISK --keep FILE` \
goes on from there. The saved guest goes on with FILE only after `overlay revert` to the snapshot of its \
beginning, which FILE has: the guest's memory knows no other disk.";

/// Flags of `headstart resume`.
#[derive(Debug, Args)]
#[command(mut_arg("image", |arg| arg.value_name("SNAPSHOT").help(SNAPSHOT).long_help(SNAPSHOT)))]
#[command(mut_arg("keep", |arg| arg.help(KEEP).long_help(KEEP_LONG).conflicts_with("record")))]
pub(crate) struct Resume {
    #[command(flatten)]
    pub snapshot: ImageArg,
    #[command(flatten)]
    pub insecure: InsecureFlag,
    /// The image that the guest was booted from. Default: the image of that name beside the snapshot.
    ///
    /// Pages of the snapshot that are blocks of its disk are read from there. --base is for a disk that has a
    /// base itself.
    #[arg(long, value_name = "IMAGE", value_parser = super::image::location_parser())]
    pub disk: Option<ImageLocation>,
    #[command(flatten)]
    pub emulation: EmulationFlags,
    /// Read the whole snapshot into the page cache before the resume begins: the lower limit of any resume.
    #[arg(long, conflicts_with_all = ["medium", "bad_sectors", "record"], hide_short_help = true)]
    pub warm: bool,
    /// Type this line at the console: the first at once, each further one at the next prompt. Repeatable.
    #[arg(long = "type", value_name = "TEXT", allow_hyphen_values = true)]
    pub typed: Vec<String>,
    /// What a prompt is: the end of an unfinished line that matches.
    #[arg(long, value_name = "REGEX", default_value = r"[#$>:] ?$", hide_short_help = true)]
    pub prompt: regex::Regex,
    /// The guest is ready when a line on its console matches, such as the right answer to what was typed.
    #[arg(long, value_name = "REGEX", default_value = hs_guest::console::READY)]
    pub ready: regex::Regex,
    /// Fail when the guest is not ready after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds::parse)]
    pub ready_timeout: Duration,
    /// Keep the guest running for this many seconds after it is ready, then end it.
    #[arg(long = "run-after-ready", alias = "grace", value_name = "SECONDS", default_value = "0", value_parser = seconds::parse, hide_short_help = true)]
    pub grace: Duration,
    /// Memory for the guest's writes to its disk. They are discarded at the end.
    #[arg(long, value_name = "SIZE", default_value = "1G", help_heading = "Guest", hide_short_help = true)]
    pub scratch: ByteSize,
    #[command(flatten)]
    pub keep: KeepFlag,
    #[command(flatten)]
    pub network: NetworkFlags,
    /// Write the console's output to FILE. The output of a failed resume is always kept.
    #[arg(long, help_heading = "Guest", value_name = "FILE")]
    pub console: Option<PathBuf>,
    /// Record the touched pages into profile P, for `optimize SNAPSHOT -p P`. Turns prefetch off.
    #[arg(long, value_name = "P")]
    pub record: Option<PathBuf>,
    /// Record what is read of the disk meanwhile into profile P.
    #[arg(long, value_name = "P", requires = "record", hide_short_help = true)]
    pub record_disk: Option<PathBuf>,
    /// Do not prefetch: fetch only what is touched.
    #[arg(long, help_heading = "Prefetch and cache", hide_short_help = true)]
    pub no_prefetch: bool,
    #[command(flatten)]
    pub limits: PrefetchLimits,
    /// Print the run summary as JSON.
    #[arg(long)]
    pub json: bool,
}
