//! Flags of `headstart lab predict`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hs_device::Medium;
use hs_engine::queue::ElevatorKind;

use crate::cli::seconds;
use crate::medium::{MediumParser, named};

/// Flags of `headstart lab predict`.
#[derive(Debug, Args)]
pub(crate) struct LabPredict {
    /// An image, with the profile of a start beside it, or a profile alone.
    #[arg(value_name = "IMAGE|PROFILE")]
    pub input: PathBuf,
    /// The start: its order and its program's own time.
    #[arg(short, long, value_name = "P")]
    pub profile: Option<PathBuf>,
    /// The medium.
    #[arg(long, value_name = "M", value_parser = MediumParser, required_unless_present = "compare")]
    pub medium: Option<Medium>,
    /// How the disk lies on it; `optimised` where the image has a hot region, else `unoptimised`.
    #[arg(long, value_enum)]
    pub layout: Option<Layout>,
    /// In which order requests are served that wait at the same time.
    #[arg(long, value_name = "NAME", default_value = "headstart", value_parser = scheduler)]
    pub scheduler: ElevatorKind,
    /// So many start, from one medium: at most 10000 over one link, which they share, else 1000. Each number gets a row.
    #[arg(long, value_name = "N,...", default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: Vec<u32>,
    /// They begin evenly within so many seconds, not all at one moment.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds::parse)]
    pub within: Duration,
    /// A cache lies near the clients, who reach it over this link, and fetches what it lacks over the link of --medium.
    #[arg(long, value_name = "LINK", value_parser = MediumParser)]
    pub edge_cache: Option<Medium>,
    /// So many processors are shared by all clients, as in a benchmark on one machine. Otherwise each client has enough of its own.
    #[arg(long, value_name = "N", requires = "client_cpu", conflicts_with = "within", value_parser = clap::value_parser!(u32).range(1..))]
    pub cores: Option<u32>,
    /// Processor time that a client takes for all of a start, with --cores; `http_clients.py` measures it.
    #[arg(long, value_name = "SECONDS", requires = "cores", value_parser = seconds::parse)]
    pub client_cpu: Option<Duration>,
    /// Media, layouts and schedulers, in any order: every combination of them gets a row.
    #[arg(long, value_name = "WORD,...", value_delimiter = ',', value_parser = Compared::from_str)]
    pub compare: Vec<Compared>,
    /// What the program takes with everything in memory, from a start of its own; else as recorded.
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse)]
    pub own_time: Option<Duration>,
    /// When one of its processes waits, the others have so much to do before they wait as well: 4 for a system that boots,
    /// 0 for other programs when not given.
    #[arg(long, value_name = "MS")]
    pub overlap: Option<u16>,
    /// How far the kernel reads ahead in the disk.
    #[arg(long, value_name = "KIB", default_value = "128", value_parser = clap::value_parser!(u16).range(..=1024))]
    pub read_ahead: u16,
    /// Megabytes of the disk that a core decompresses in a second.
    #[arg(long, value_name = "MB", default_value = "400", value_parser = clap::value_parser!(u32).range(1..))]
    pub decode_rate: u32,
    /// Bytes that a profile's disk takes in an image, in per cent, where no image tells.
    #[arg(long, value_name = "PERCENT", default_value = "35", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub ratio: u8,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print the table as comma-separated values.
    #[arg(long)]
    pub csv: bool,
}

/// How the disk lies on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// As it is, uncompressed.
    Raw,
    /// An image without a hot region.
    Unoptimised,
    /// An image with one.
    Optimised,
}

impl Layout {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Unoptimised => "unoptimised",
            Self::Optimised => "optimised",
        }
    }
}

/// A word of `--compare`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compared {
    Medium(Medium),
    Layout(Layout),
    Scheduler(ElevatorKind),
}

impl FromStr for Compared {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if let Ok(layout) = Layout::from_str(word, false) {
            return Ok(Self::Layout(layout));
        }
        if let Ok(elevator) = scheduler(word) {
            return Ok(Self::Scheduler(elevator));
        }
        named(word).map(Self::Medium).map_err(|error| {
            let schedulers = ElevatorKind::ALL.map(ElevatorKind::name).join(", ");
            format!(
                "neither a layout (raw, unoptimised, optimised) nor a scheduler ({schedulers}), and {error:#}"
            )
        })
    }
}

fn scheduler(name: &str) -> Result<ElevatorKind, String> {
    let known = ElevatorKind::ALL.into_iter().find(|kind| kind.name() == name);
    known.ok_or_else(|| format!("use one of {}", ElevatorKind::ALL.map(ElevatorKind::name).join(", ")))
}
