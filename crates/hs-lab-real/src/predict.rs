//! `headstart lab predict`

mod code;
mod crowds;
mod inode_tables;
mod layouts;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_engine::PrefetchConfig;
use hs_engine::queue::ElevatorKind;
use hs_image::{Blocks, Image};
use hs_lab::predict::{Disk, Files, Front, Limit, Predicted, Prediction, Program, ServedConfig};
use hs_serve::{ONE_READERS_CACHE_BYTES, ReadOptions};
use hs_trace::Profile;
use hs_units::Nanos;
use serde_json::{Value, json};

use self::layouts::OnMedium;
use hs_output::show;
use hs_start::open::{open_image, read_profile, read_profile_head};

/// What a row is of.
#[derive(Clone, Copy)]
struct Case {
    medium: Medium,
    layout: Layout,
    scheduler: ElevatorKind,
    clients: NonZeroU32,
}

/// What is known of the start.
struct Known {
    image: Option<Image>,
    profile: Profile,
    program: Program,
    overlap: Nanos,
    /// Files that are read ahead in.
    files: Option<Files>,
}

/// What the processes of a booting Debian still have to do when one of them waits; from its boot off a raw
/// hard disk (docs/LAB.md, `predict`).
const OVERLAP_OF_BOOTS: Nanos = Nanos::from_millis(4);

/// Blocks of inode tables that the kernel reads at once: of a disk that is mounted as it is the kernel's own
/// choice, of an image one (`inode_readahead_blks`; docs/decisions/002-read-ahead-and-page-caches.md).
const INODE_AHEAD_OF_FOREIGN: u64 = 32;
const INODE_AHEAD: u64 = 1;

struct Row {
    case: Case,
    estimated: bool,
    predicted: Predicted,
    limit: Option<Limit>,
}

/// What is predicted.
#[derive(Clone, Debug)]
pub struct Question {
    /// An image, or a profile alone.
    pub input: PathBuf,
    /// The recorded start, with an image.
    pub profile: Option<PathBuf>,
    /// The medium, where none is compared.
    pub medium: Option<Medium>,
    /// How the disk lies on it.
    pub layout: Option<Layout>,
    /// What orders waiting requests.
    pub scheduler: ElevatorKind,
    /// Numbers of clients, one row each.
    pub clients: Vec<u32>,
    /// In which they start, evenly spread.
    pub within: Duration,
    /// The link to a cache that fetches over the medium.
    pub edge_cache: Option<Medium>,
    /// Processors that all clients share.
    pub cores: Option<u32>,
    /// Processor time of one start, with `cores`.
    pub client_cpu: Option<Duration>,
    /// Media, layouts and schedulers to compare.
    pub compare: Vec<Compared>,
    /// Time that the program takes with everything in memory; as recorded when `None`.
    pub own_time: Option<Duration>,
    /// Milliseconds of work that other processes have while one waits.
    pub overlap: Option<u16>,
    /// Kernel read-ahead of the disk, in KiB.
    pub read_ahead: u16,
    /// Millions of bytes a second that a core decompresses.
    pub decode_rate: u32,
    /// Compressed size in per cent, without an image.
    pub ratio: u8,
    /// Show what no start can be quicker than.
    pub limit: bool,
    /// Print the result as JSON.
    pub json: bool,
    /// Print the table as CSV.
    pub csv: bool,
}

/// How the disk lies on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Uncompressed.
    Raw,
    /// An image without a hot region.
    Unoptimized,
    /// An image with a hot region.
    Optimized,
}

impl Layout {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Raw, Self::Unoptimized, Self::Optimized];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Unoptimized => "unoptimized",
            Self::Optimized => "optimized",
        }
    }

    /// What it is.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Raw => "Uncompressed",
            Self::Unoptimized => "An image without a hot region",
            Self::Optimized => "An image with a hot region",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.name() == name)
    }
}

/// One of several that are compared.
#[derive(Clone, Copy, Debug)]
pub enum Compared {
    /// A medium.
    Medium(Medium),
    /// A layout.
    Layout(Layout),
    /// A scheduler.
    Scheduler(ElevatorKind),
}

/// Says how long a start would take.
pub fn run(args: &Question) -> anyhow::Result<()> {
    let known = known(args)?;
    let rows = cases(args, known.image.as_ref())
        .into_iter()
        .map(|case| predict(args, &known, case))
        .collect::<anyhow::Result<Vec<Row>>>()?;
    if args.json {
        let rows: Vec<Value> = rows.iter().map(to_json).collect();
        let program_s = known.program.own_time.as_secs_f64();
        return show::json(&json!({
            "command": known.profile.command,
            "within_s": args.within.as_secs_f64(),
            "edge_cache": args.edge_cache.map(|link| link.to_string()),
            "program_s": program_s,
            "overlap_s": known.overlap.as_secs_f64(),
            "rows": rows,
        }));
    }
    if args.csv {
        show::line(CSV_COLUMNS.join(","));
        rows.iter().for_each(|row| show::line(csv_line(&to_json(row))));
        return Ok(());
    }
    let is_crowd = args.clients != [1];
    let mut columns = if is_crowd { crowds::COLUMNS.to_vec() } else { COLUMNS.to_vec() };
    let cells = if is_crowd { crowds::cells } else { cells };
    if args.limit {
        columns.extend(LIMIT_COLUMNS);
    }
    let mut table = show::table(&columns);
    for row in &rows {
        let limit = args.limit.then(|| limit_cells(row));
        table.add_row(cells(row).into_iter().chain(limit.into_iter().flatten()));
    }
    show::line(table);
    show::line(format!("The program itself takes {:.2} s.", known.program.own_time.as_secs_f64()));
    if rows.iter().any(|row| row.estimated) {
        show::line("* the layout was not there and is estimated from what is.");
    }
    Ok(())
}

fn known(args: &Question) -> anyhow::Result<Known> {
    let mut magic = [0; 8];
    let is_profile = std::fs::File::open(&args.input)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic))
        .map(|()| &magic == b"HSPROF\0\0")
        .with_context(|| format!("read {}", args.input.display()))?;
    let (image, profile) = match (&args.profile, is_profile) {
        (None, true) => (None, read_profile(&args.input)?),
        (Some(path), false) => {
            let image = open_image(&args.input)?;
            read_profile_head(path)?.check_disk(image.disk_digest(), image.disk_bytes())?;
            (Some(image), read_profile(path)?)
        }
        (Some(_), true) => {
            bail!("{} is a profile already: give the image, or no --profile", args.input.display())
        }
        (None, false) => bail!("an image does not say when its blocks are needed: give --profile"),
    };
    if profile.reads.is_empty() {
        bail!("the profile has no reads");
    }
    let overlap =
        args.overlap.map_or_else(|| overlap_of(&profile), |millis| Nanos::from_millis(millis.into()));
    let files = files(&profile, image.as_ref());
    let program = Program::recorded(&profile, files.as_ref(), args.own_time.map(Into::into));
    Ok(Known { image, profile, program, overlap, files })
}

/// What other processes have to do when one waits.
fn overlap_of(profile: &Profile) -> Nanos {
    if profile.command.starts_with("boot ") { OVERLAP_OF_BOOTS } else { Nanos::ZERO }
}

/// The files that are read, with what the image says of them.
fn files(profile: &Profile, image: Option<&Image>) -> Option<Files> {
    let files = Files::recorded(profile)?;
    let Some(image) = image else { return Some(files) };
    let mut blocks = Blocks::new(image);
    let files = files.with_code(|lba| code::pages(blocks.block(lba).ok()?));
    Some(files.with_inode_tables(inode_tables::of_image(image)))
}

/// Every combination of what is to be compared.
fn cases(args: &Question, image: Option<&Image>) -> Vec<Case> {
    let (mut media, mut layouts, mut schedulers) = (Vec::new(), Vec::new(), Vec::new());
    for word in &args.compare {
        match word {
            Compared::Medium(medium) => media.push(*medium),
            Compared::Layout(layout) => layouts.push(*layout),
            Compared::Scheduler(scheduler) => schedulers.push(*scheduler),
        }
    }
    if media.is_empty() {
        media.extend(args.medium);
    }
    if layouts.is_empty() {
        let has_hot = image.is_some_and(|image| image.hot_chunk_count() > 0);
        layouts.push(args.layout.unwrap_or(if has_hot { Layout::Optimized } else { Layout::Unoptimized }));
    }
    if schedulers.is_empty() {
        schedulers.push(args.scheduler);
    }
    let clients: Vec<NonZeroU32> = args
        .clients
        .iter()
        .map(|clients| NonZeroU32::new(*clients).expect("the parser lets no zero through"))
        .collect();
    let mut cases = Vec::new();
    for medium in media {
        for &layout in &layouts {
            for &scheduler in &schedulers {
                cases.extend(clients.iter().map(|&clients| Case { medium, layout, scheduler, clients }));
            }
        }
    }
    cases
}

fn on_medium(args: &Question, known: &Known, layout: Layout) -> anyhow::Result<Option<OnMedium>> {
    if layout == Layout::Raw {
        return Ok(None);
    }
    let found = match &known.image {
        Some(image) => layouts::of_image(image)?,
        None => layouts::of_ratio(known.profile.disk_bytes, f64::from(args.ratio) / 100.0)?,
    };
    Ok(Some(match (layout, found.layout.hot.is_empty()) {
        (Layout::Unoptimized, false) => found.without_hot(),
        (Layout::Optimized, true) => found.with_hot(&known.profile),
        _ => found,
    }))
}

fn predict(args: &Question, known: &Known, case: Case) -> anyhow::Result<Row> {
    let disk_bytes = known.profile.disk_bytes;
    let (disk, file_bytes, estimated) = match on_medium(args, known, case.layout)? {
        Some(OnMedium { layout, file_bytes, estimated }) => (Disk::Image(layout), file_bytes, estimated),
        None => (Disk::Raw, disk_bytes, false),
    };
    let has_hot = matches!(&disk, Disk::Image(layout) if !layout.hot.is_empty());
    let prediction = Prediction {
        program: &known.program,
        disk: &disk,
        disk_bytes,
        file_bytes,
        medium: case.medium,
        crowd: crowds::crowd(args, case)?,
        front: Front {
            files: known.files.as_ref(),
            inode_ahead_blocks: if case.layout == Layout::Raw { INODE_AHEAD_OF_FOREIGN } else { INODE_AHEAD },
            read_ahead_pages: u64::from(args.read_ahead) / 4,
            pushed: has_hot,
            overlap: known.overlap,
        },
        served: ServedConfig {
            prefetch: has_hot.then(|| prefetch_on(case.medium)),
            decode_bytes_per_s: f64::from(args.decode_rate) * 1e6,
            read_ahead_bytes: ReadOptions::default().read_ahead_bytes,
            cache_bytes: ONE_READERS_CACHE_BYTES,
            shared_processors: crowds::shared_processors(args, case, known.program.bytes()),
        },
        elevator: case.scheduler,
    };
    let predicted =
        prediction.run()?.context("the medium 'none' is the real one, of which nothing can be predicted")?;
    let Prediction { crowd, .. } = prediction;
    // A cache at the edge may have everything.
    let limit = match crowd.edge {
        None => Limit::new(&known.program, &disk, file_bytes, case.medium, known.overlap)?,
        Some(_) => None,
    };
    Ok(Row { case, estimated, predicted, limit })
}

/// What a start that `profile` recorded cannot be quicker than, from the image at `path` on `medium`, where
/// the program takes `own_time` with everything in memory; nothing on a medium that is not modelled.
///
/// # Errors
/// When the image cannot be read, or does not fit on the medium.
pub fn limit(
    path: &Path,
    profile: &Profile,
    medium: Medium,
    own_time: Duration,
) -> anyhow::Result<Option<Limit>> {
    let image = open_image(path)?;
    let program = Program::recorded(profile, Files::recorded(profile).as_ref(), Some(own_time.into()));
    let OnMedium { layout, file_bytes, .. } = layouts::of_image(&image)?;
    Ok(Limit::new(&program, &Disk::Image(layout), file_bytes, medium, overlap_of(profile))?)
}

/// How an image on `medium` is prefetched: over a link it comes from a server, by HTTP.
fn prefetch_on(medium: Medium) -> PrefetchConfig {
    match medium.link() {
        Some(_) => PrefetchConfig::default().over_a_network(),
        None => PrefetchConfig::default(),
    }
}

const COLUMNS: [&str; 13] = [
    "medium",
    "layout",
    "scheduler",
    "ready (s)",
    "opening (s)",
    "program (s)",
    "waits (s)",
    "waited",
    "streamed (s)",
    "requests",
    "seeks",
    "MiB read",
    "busy (s)",
];

/// The columns of `--csv`: keys of the JSON object, all but the list of clients.
const CSV_COLUMNS: [&str; 18] = [
    "medium",
    "layout",
    "scheduler",
    "clients",
    "estimated",
    "ready_s",
    "median_ready_s",
    "opening_s",
    "program_s",
    "wait_s",
    "waits",
    "streamed_s",
    "store_requests",
    "store_bytes",
    "seeks",
    "medium_busy_s",
    "jain_index",
    "limit_s",
];

/// A row as it is, not rounded; nothing where there is no figure. No name of a medium has a comma in it.
fn csv_line(row: &Value) -> String {
    let cells = CSV_COLUMNS.map(|column| match &row[column] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    cells.join(",")
}

fn seconds(time: Nanos) -> String {
    format!("{:.2}", time.as_secs_f64())
}

/// The layout, with a star where it was made up.
fn layout_of(row: &Row) -> String {
    format!("{}{}", row.case.layout.name(), if row.estimated { "*" } else { "" })
}

fn cells(row: &Row) -> Vec<String> {
    let start = row.predicted.slowest();
    let Predicted { requests, bytes, seeks, busy, .. } = row.predicted;
    vec![
        row.case.medium.to_string(),
        layout_of(row),
        row.case.scheduler.name().to_owned(),
        seconds(start.ready),
        seconds(start.opened),
        seconds(start.own),
        seconds(start.waited),
        start.waits.to_string(),
        start.streamed.map(seconds).unwrap_or_default(),
        requests.to_string(),
        seeks.to_string(),
        show::mib(bytes),
        seconds(busy),
    ]
}

/// Columns of `--limit`.
const LIMIT_COLUMNS: [&str; 2] = ["limit (s)", "ready ÷ limit"];

fn limit_cells(row: &Row) -> [String; 2] {
    let Some(limit) = row.limit else { return Default::default() };
    let ready = row.predicted.slowest().ready.as_secs_f64();
    [seconds(limit.ready), format!("{:.3}", ready / limit.ready.as_secs_f64())]
}

fn to_json(row: &Row) -> Value {
    let start = row.predicted.slowest();
    let mut ready: Vec<f64> = row.predicted.starts.iter().map(|start| start.ready.as_secs_f64()).collect();
    ready.sort_by(f64::total_cmp);
    json!({
        "medium": row.case.medium.to_string(),
        "layout": row.case.layout.name(),
        "estimated": row.estimated,
        "scheduler": row.case.scheduler.name(),
        "clients": row.case.clients,
        "ready_s": start.ready.as_secs_f64(),
        "median_ready_s": row.predicted.median_ready().as_secs_f64(),
        "jain_index": row.predicted.jain_index(),
        "opening_s": start.opened.as_secs_f64(),
        "program_s": start.own.as_secs_f64(),
        "wait_s": start.waited.as_secs_f64(),
        "waits": start.waits,
        "streamed_s": start.streamed.map(Nanos::as_secs_f64),
        "store_requests": row.predicted.requests,
        "store_bytes": row.predicted.bytes,
        "seeks": row.predicted.seeks,
        "medium_busy_s": row.predicted.busy.as_secs_f64(),
        "limit_s": row.limit.map(|limit| limit.ready.as_secs_f64()),
        "clients_ready_s": ready,
    })
}
