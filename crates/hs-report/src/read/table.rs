//! Traces as CSV, by the names of their columns: those of `run --trace` and `boot --trace`, of `lab trace
//! --csv`, of `inspect --csv`, and of `report --format csv`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{BufRead, Read};

use anyhow::{Context, bail};
use hs_units::{ByteRange, Nanos};
use serde::Deserialize;

use super::rows::bounded;
use crate::model::{CpuUse, InputKind, Life, Process, RequestKind, Stage};
use crate::recording::{MOST_REQUESTS, OwnProfile, Recording, Request, StageFile};
use crate::stage_files;

/// So many processes are told apart; all others count as one.
const MOST_PROCESSES: usize = 10_000;
/// No start takes longer: 127 years.
const MOST_SECONDS: u64 = 4_000_000_000;
/// Inputs that one table may have.
const MOST_INPUTS: usize = 64;
/// Stages that a start may have, and bytes of the name of one.
const MOST_STAGES: usize = 64;
const MOST_STAGE_BYTES: usize = 64;
/// Pairs of a stage and a file: a medium has fewer files.
const MOST_STAGE_FILES: usize = 100_000;
const MOST_PATH_BYTES: usize = hs_trace::limits::MAX_PATH_BYTES as usize;

struct Columns(HashMap<String, usize>);

impl Columns {
    fn text<'r>(&self, row: &'r csv::StringRecord, name: &str) -> Option<&'r str> {
        self.0.get(name).and_then(|at| row.get(*at)).filter(|text| !text.is_empty())
    }

    fn number(&self, row: &csv::StringRecord, name: &str) -> anyhow::Result<Option<u64>> {
        let parse =
            |text: &str| text.parse().with_context(|| format!("{name} '{}' is no number", short(text)));
        self.text(row, name).map(parse).transpose()
    }

    fn seconds(&self, row: &csv::StringRecord, name: &str) -> anyhow::Result<Option<Nanos>> {
        let Some(text) = self.text(row, name) else { return Ok(None) };
        nanos(text).map(Some).with_context(|| format!("{name} '{}' is no time in seconds", short(text)))
    }
}

/// A time in seconds. With up to nine decimals it is exact, so that a table that is written is read as the
/// same.
fn nanos(text: &str) -> Option<Nanos> {
    let is_exact = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((whole, part)) = text.split_once('.')
        && is_exact(whole)
        && is_exact(part)
        && part.len() <= 9
        && let Ok(whole) = whole.parse::<u64>()
        && whole < MOST_SECONDS
    {
        return Some(Nanos(whole * 1_000_000_000 + format!("{part:0<9}").parse::<u64>().ok()?));
    }
    let seconds: f64 = text.parse().ok().filter(|seconds| (0.0..MOST_SECONDS as f64).contains(seconds))?;
    Some(Nanos((seconds * 1e9).round() as u64))
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The recordings in a table: one, unless a column `input` tells several apart.
pub(super) fn read(mut file: impl BufRead, name: &str) -> anyhow::Result<Vec<Recording>> {
    let start = start_of(&mut file)?;
    let (file, bound) = bounded(file);
    let mut table = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(file);
    let columns: HashMap<_, _> =
        table.headers()?.iter().enumerate().map(|(at, name)| (name.trim().to_owned(), at)).collect();
    for needed in ["at_s", "offset", "bytes"] {
        if !columns.contains_key(needed) {
            bail!("the table has no column '{needed}'");
        }
    }
    let columns = Columns(columns);
    let mut found: Vec<Table> = Vec::new();
    let (mut requests, mut others) = (0, 0);
    for row in table.records() {
        let row = row?;
        let line = row.position().map_or(0, csv::Position::line);
        bound.move_behind(row.position().map_or(0, csv::Position::byte));
        let found_in_row = parse(&columns, &row).with_context(|| format!("line {line}"))?;
        let count = if matches!(found_in_row, Row::Request { .. }) { &mut requests } else { &mut others };
        *count += 1;
        if *count > MOST_REQUESTS {
            bail!("there are more than {MOST_REQUESTS} rows of a kind");
        }
        let input = columns.text(&row, "input").unwrap_or(name);
        let at = match found.iter().position(|table| table.recording.name == input) {
            Some(at) => at,
            None if found.len() == MOST_INPUTS => bail!("there are more than {MOST_INPUTS} inputs"),
            None => {
                let recording = Recording::new(input, InputKind::Trace);
                found.push(Table::new(recording));
                found.len() - 1
            }
        };
        match found_in_row {
            Row::Request { process, request, number, of } => {
                let stage_file = found[at].stage_file(of).with_context(|| format!("line {line}"))?;
                found[at].add(process, Request { stage_file, ..request }, number);
            }
            Row::Stage(stage) => found[at].begin(stage).with_context(|| format!("line {line}"))?,
            Row::Life(life) => found[at].recording.lives.push(life),
            Row::CpuUse(used) => found[at].recording.cpu.push(used),
        }
    }
    if found.iter().all(|table| table.recording.requests.is_empty()) {
        bail!("the table has no request");
    }
    if let (Some(start), [table]) = (&start, &mut found[..]) {
        start.describe(&mut table.recording);
    }
    let keeps_time = start.is_some() || columns.0.contains_key("input");
    let settled = found.into_iter().map(|mut table| {
        table.recording.settle(keeps_time);
        table.recording.files = stage_files::files(&table.recording);
        table.recording
    });
    Ok(settled.collect())
}

/// What the first line of a trace says of its start, after `#`.
#[derive(Deserialize)]
struct StartLine {
    disk_digest: Option<String>,
    disk_bytes: Option<u64>,
    command: Option<String>,
    medium: Option<String>,
    ready_s: Option<f64>,
    ended_s: Option<f64>,
    profile: Option<ProfileLine>,
}

/// Which profile was recorded meanwhile, and from when on.
#[derive(Deserialize)]
struct ProfileLine {
    disk_digest: String,
    ended_s: f64,
    from_s: f64,
}

/// The longest such line: a command has at most as many bytes in a profile.
const MOST_LINE_BYTES: u64 = 4 * hs_trace::limits::MAX_COMMAND_BYTES;

fn start_of(file: &mut impl BufRead) -> anyhow::Result<Option<StartLine>> {
    if file.fill_buf()?.first() != Some(&b'#') {
        return Ok(None);
    }
    let mut line = Vec::new();
    Read::take(file, MOST_LINE_BYTES).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line[1..]).ok())
}

impl StartLine {
    fn describe(&self, recording: &mut Recording) {
        let seconds = |time: Option<f64>| time.filter(|time| (0.0..=4e9).contains(time));
        recording.own_profile = self.profile.as_ref().and_then(|own| {
            Some(OwnProfile {
                disk_digest: own.disk_digest.parse().ok()?,
                ended_s: own.ended_s,
                from_s: seconds(Some(own.from_s))?,
            })
        });
        recording.disk_digest = self.disk_digest.as_ref().and_then(|digest| digest.parse().ok());
        recording.disk_bytes = self.disk_bytes.unwrap_or_default();
        recording.command.clone_from(&self.command);
        recording.medium.clone_from(&self.medium);
        recording.ready_s = seconds(self.ready_s);
        recording.ended_s = seconds(self.ended_s);
    }
}

/// A recording of a table, and the numbers of its processes.
struct Table {
    recording: Recording,
    numbers: HashMap<Process, u32>,
    /// Places in the recording's `stage_files`.
    stage_files: HashMap<StageFile, u32>,
    /// Numbers of requests that have a row already, and when they came.
    requests: HashMap<u64, Nanos>,
}

/// A row of a table.
enum Row {
    Request { process: Process, request: Request, number: Option<u64>, of: StageFile },
    Stage(Stage),
    Life(Life),
    CpuUse(CpuUse),
}

impl Table {
    fn new(recording: Recording) -> Self {
        let (numbers, requests) = (HashMap::new(), HashMap::new());
        let stage_files = recording.stage_files.iter().cloned().zip(0..).collect();
        Self { recording, numbers, stage_files, requests }
    }

    /// The number of a stage and a file.
    fn stage_file(&mut self, of: StageFile) -> anyhow::Result<u32> {
        let known = self.stage_files.len();
        match self.stage_files.entry(of) {
            Entry::Occupied(number) => Ok(*number.get()),
            Entry::Vacant(_) if known > MOST_STAGE_FILES => {
                bail!("there are more than {MOST_STAGE_FILES} stages and files")
            }
            Entry::Vacant(free) => {
                self.recording.stage_files.push(free.key().clone());
                Ok(*free.insert(known as u32))
            }
        }
    }

    fn begin(&mut self, stage: Stage) -> anyhow::Result<()> {
        let stages = &mut self.recording.stages;
        if stages.len() == MOST_STAGES {
            bail!("there are more than {MOST_STAGES} stages");
        }
        if let Some(last) = stages.last().filter(|last| last.to_s > stage.from_s) {
            bail!("stage '{}' begins before '{}' has ended", stage.name, last.name);
        }
        stages.push(stage);
        Ok(())
    }

    fn add(&mut self, process: Process, request: Request, number: Option<u64>) {
        let is_part = number.is_some_and(|number| match self.requests.entry(number) {
            Entry::Occupied(first) => *first.get() == request.at,
            Entry::Vacant(free) => {
                free.insert(request.at);
                false
            }
        });
        let known = self.numbers.len();
        let process = match self.numbers.get(&process) {
            Some(number) => *number,
            None if known > MOST_PROCESSES => MOST_PROCESSES as u32,
            None => {
                let is_last = known == MOST_PROCESSES;
                let process = if is_last { Process { name: "others".into(), pid: None } } else { process };
                self.recording.processes.push(process.clone());
                self.numbers.insert(process, known as u32);
                known as u32
            }
        };
        self.recording.requests.push(Request { process, is_part, ..request });
    }
}

fn parse(columns: &Columns, row: &csv::StringRecord) -> anyhow::Result<Row> {
    match columns.text(row, "kind") {
        Some("process") => life(columns, row).map(Row::Life),
        Some("stage") => stage(columns, row).map(Row::Stage),
        Some("cpu") => cpu_use(columns, row).map(Row::CpuUse),
        _ => request(columns, row),
    }
}

/// When the row begins, and when it ends.
fn span(columns: &Columns, row: &csv::StringRecord) -> anyhow::Result<(f64, f64)> {
    let at = columns.seconds(row, "at_s")?.context("at_s is empty")?;
    let service = columns.seconds(row, "service_s")?.unwrap_or_default();
    Ok((at.as_secs_f64(), (at + service).as_secs_f64()))
}

fn process(columns: &Columns, row: &csv::StringRecord) -> anyhow::Result<Process> {
    let pid = columns.number(row, "pid")?.and_then(|pid| u32::try_from(pid).ok());
    Ok(Process { name: columns.text(row, "process").unwrap_or_default().to_owned(), pid })
}

/// What the columns `stage` and `file` say of a row.
fn stage_file(columns: &Columns, row: &csv::StringRecord) -> anyhow::Result<StageFile> {
    let text = |name| columns.text(row, name).unwrap_or_default();
    let (stage, file) = (text("stage"), text("file"));
    if stage.len() > MOST_STAGE_BYTES || stage.contains(char::is_control) {
        bail!(
            "stage '{}' is no name: it has control characters, or more than {MOST_STAGE_BYTES} bytes",
            short(stage).escape_debug()
        );
    }
    let is_path = file.is_empty() || file.starts_with('/');
    if !is_path || file.len() > MOST_PATH_BYTES || file.contains('\0') {
        bail!("file '{}' is no absolute path of at most {MOST_PATH_BYTES} bytes", short(file).escape_debug());
    }
    Ok(StageFile { stage: stage.to_owned(), file: file.to_owned() })
}

fn stage(columns: &Columns, row: &csv::StringRecord) -> anyhow::Result<Stage> {
    let (from_s, to_s) = span(columns, row)?;
    let name = stage_file(columns, row)?.stage;
    if name.is_empty() {
        bail!("the stage has no name");
    }
    Ok(Stage { name, from_s, to_s })
}

fn life(columns: &Columns, row: &csv::StringRecord) -> anyhow::Result<Life> {
    let (from_s, to_s) = span(columns, row)?;
    Ok(Life {
        process: process(columns, row)?,
        parent: columns.number(row, "parent")?.and_then(|pid| u32::try_from(pid).ok()),
        from_s,
        to_s,
        cpu_s: columns.seconds(row, "cpu_s")?.map(Nanos::as_secs_f64),
    })
}

fn cpu_use(columns: &Columns, row: &csv::StringRecord) -> anyhow::Result<CpuUse> {
    let (from_s, to_s) = span(columns, row)?;
    Ok(CpuUse { from_s, to_s, cpu_s: columns.seconds(row, "cpu_s")?.unwrap_or_default().as_secs_f64() })
}

fn request(columns: &Columns, row: &csv::StringRecord) -> anyhow::Result<Row> {
    let need = |name: &str| columns.number(row, name)?.with_context(|| format!("{name} is empty"));
    let bytes = ByteRange::new(need("offset")?, need("bytes")?);
    if bytes.len == 0 || bytes.offset.checked_add(bytes.len).is_none_or(|end| end > 1 << 60) {
        bail!("{} bytes from {} are no request", bytes.len, bytes.offset);
    }
    let kind = match columns.text(row, "kind").or_else(|| columns.text(row, "direction")) {
        Some("write") => RequestKind::Write,
        Some("prefetch") => RequestKind::Prefetch,
        Some("background") => RequestKind::Background,
        Some("warm") => RequestKind::Warm,
        None | Some("demand" | "read") => RequestKind::Demand,
        Some(other) => bail!("'{}' is no kind of request", short(other)),
    };
    let service = match columns.seconds(row, "service_s")? {
        Some(service) => service,
        None => columns.seconds(row, "cost_s")?.unwrap_or_default(),
    };
    let request = Request {
        at: columns.seconds(row, "at_s")?.context("at_s is empty")?,
        queued: columns.seconds(row, "queued_s")?.unwrap_or_default(),
        service,
        bytes,
        kind,
        process: 0,
        is_part: false,
        stage_file: 0,
    };
    let (process, number) = (process(columns, row)?, columns.number(row, "request")?);
    Ok(Row::Request { process, request, number, of: stage_file(columns, row)? })
}
