//! Flags of `headstart lab predict`.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::plain::{Plain, same_names};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use hs_device::Medium;
use hs_engine::queue::ElevatorKind;
use hs_lab_real::predict::{Compared, Layout, Question};

use crate::cli::MediumParser;
use crate::cli::seconds;
use hs_start::medium::named;

/// Flags of `headstart lab predict`, as the laboratory knows them.
pub(crate) type LabPredict = Plain<PredictFlags, Question>;

/// Flags of `headstart lab predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictFlags {
    /// An image (with --profile) or a profile alone.
    #[arg(value_name = "IMAGE|PROFILE")]
    pub input: PathBuf,
    /// The recorded start.
    #[arg(short, long, value_name = "P")]
    pub profile: Option<PathBuf>,
    /// The medium.
    #[arg(long = "emulate", alias = "medium", value_name = "MEDIUM", value_parser = MediumParser, required_unless_present = "compare")]
    pub medium: Option<Medium>,
    /// Layout of the disk on the medium. Default: `optimized` if the image has a hot region, else
    /// `unoptimized`.
    #[arg(long, value_parser = layout_parser())]
    pub layout: Option<Layout>,
    /// Scheduler that orders waiting requests.
    #[arg(long, hide_short_help = true, value_name = "NAME", default_value = "headstart", value_parser = scheduler)]
    pub scheduler: ElevatorKind,
    /// Number of clients that start from one medium, at most 10000 over a shared link, else 1000. One row
    /// each.
    #[arg(long, value_name = "N,...", default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: Vec<u32>,
    /// Spread the clients' starts evenly over this many seconds. 0 starts all at once.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds::parse)]
    pub within: Duration,
    /// Clients reach a cache over this link, and the cache fetches what it lacks over the link of --emulate.
    #[arg(long, hide_short_help = true, value_name = "LINK", value_parser = MediumParser)]
    pub edge_cache: Option<Medium>,
    /// Processors that all clients share, as in a benchmark on one machine. Default: each client has its own.
    #[arg(long, hide_short_help = true, value_name = "N", requires = "client_cpu", conflicts_with = "within", value_parser = clap::value_parser!(u32).range(1..))]
    pub cores: Option<u32>,
    /// Processor time of one start, with --cores. `bench/http_clients.py` measures it.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", requires = "cores", value_parser = seconds::parse)]
    pub client_cpu: Option<Duration>,
    /// Media, layouts and schedulers to compare, in any order. One row per combination.
    #[arg(long, value_name = "WORD,...", value_delimiter = ',', value_parser = compared)]
    pub compare: Vec<Compared>,
    /// Time that the program takes with everything in memory. Default: as recorded.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", value_parser = seconds::parse)]
    pub own_time: Option<Duration>,
    /// Work that other processes have, in ms, while one waits. Default: 4 for a boot, 0 for a program.
    #[arg(long, hide_short_help = true, value_name = "MS")]
    pub overlap: Option<u16>,
    /// Kernel read-ahead of the disk.
    #[arg(long, hide_short_help = true, value_name = "KIB", default_value = "128", value_parser = clap::value_parser!(u16).range(..=1024))]
    pub read_ahead: u16,
    /// Rate at which a core decompresses, in millions of bytes a second.
    #[arg(long, hide_short_help = true, value_name = "N", default_value = "400", value_parser = clap::value_parser!(u32).range(1..))]
    pub decode_rate: u32,
    /// Compressed size of the disk in per cent, for a profile without an image.
    #[arg(long, hide_short_help = true, value_name = "PERCENT", default_value = "35", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub ratio: u8,
    /// Show what no start can be quicker than: the program's own time and one undisturbed stream of what it
    /// reads (`limit_s` of --json and --csv).
    #[arg(long)]
    pub limit: bool,
    /// Print the result as JSON.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print the table as CSV.
    #[arg(long)]
    pub csv: bool,
}

same_names!(PredictFlags => Question { input, profile, medium, layout, scheduler, clients, within, edge_cache, cores, client_cpu, compare, own_time, overlap, read_ahead, decode_rate, ratio, limit, json, csv });

/// The layouts, with help.
fn layout_parser() -> impl TypedValueParser<Value = Layout> {
    let values = Layout::ALL.map(|layout| PossibleValue::new(layout.name()).help(layout.about()));
    PossibleValuesParser::new(values)
        .map(|name| Layout::named(&name).expect("the parser lets only known names through"))
}

/// A word of `--compare`.
fn compared(word: &str) -> Result<Compared, String> {
    if let Some(layout) = Layout::named(word) {
        return Ok(Compared::Layout(layout));
    }
    if let Ok(elevator) = scheduler(word) {
        return Ok(Compared::Scheduler(elevator));
    }
    named(word).map(Compared::Medium).map_err(|error| {
        let schedulers = ElevatorKind::ALL.map(ElevatorKind::name).join(", ");
        format!(
            "neither a layout (raw, unoptimized, optimized) nor a scheduler ({schedulers}), and {error:#}"
        )
    })
}

fn scheduler(name: &str) -> Result<ElevatorKind, String> {
    let known = ElevatorKind::ALL.into_iter().find(|kind| kind.name() == name);
    known.ok_or_else(|| format!("use one of {}", ElevatorKind::ALL.map(ElevatorKind::name).join(", ")))
}
