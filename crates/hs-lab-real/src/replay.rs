//! `headstart lab replay`

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_lab::{Pace, Replay, ReplayOutcome, Replayed};
use hs_output::show;
use hs_trace::{BlockLog, BlockLogKind, BlockRequest, Profile};
use hs_units::ByteSize;
use serde_json::{Value, json};

use crate::program::Program;
use crate::real_file::{Readers, RealFile};

/// Bytes of the longest line; what is longer is no line of a trace.
const MAX_LINE_BYTES: u64 = 4096;
/// Requests under way at once when a trace's own times are kept on a real device.
const RECORDED_DEPTH: usize = 32;
/// Bytes of the file on a model: whatever the trace asks for lies in it, where the medium has no end.
const ENDLESS_BYTES: u64 = 1 << 62;

/// What is replayed, and how.
#[derive(Clone, Debug)]
pub struct Replaying {
    /// A profile, a fio iolog, or blkparse text; `-` is standard input.
    pub trace: PathBuf,
    /// The model, in virtual time.
    pub medium: Option<Medium>,
    /// The file or device.
    pub on: Option<PathBuf>,
    /// Requests in flight, without the times of the trace.
    pub depth: Option<u32>,
    /// Each read after its think time.
    pub think_times: bool,
    /// Of a profile, only what comes before its program was ready.
    pub until_ready: bool,
    /// Through the page cache.
    pub cached: bool,
    /// Print the result as JSON.
    pub json: bool,
}

/// Replays a trace on a model, or on a real file or device.
pub fn run(args: &Replaying) -> anyhow::Result<()> {
    let mut trace = Trace::open(&args.trace)?;
    if args.until_ready {
        trace
            .end_when_ready()
            .with_context(|| format!("replay {} until it is ready", args.trace.display()))?;
    }
    let pace = match args.depth {
        Some(depth) => Pace::Depth(depth),
        None if args.think_times => {
            trace.think().with_context(|| format!("replay {} as its program", args.trace.display()))?;
            Pace::Thinking
        }
        None if trace.has_times() => Pace::Recorded,
        None => Pace::Depth(1),
    };
    let outcome = match (&args.medium, &args.on) {
        (Some(medium), _) => on_model(medium, pace, &mut trace)?,
        (None, Some(path)) => {
            let file = if args.cached { RealFile::cached(path)? } else { RealFile::direct(path)? };
            for_real(file, path, pace, &mut trace)?
        }
        (None, None) => bail!("give a medium with --emulate, or a file or device with --on"),
    };
    let on = args.medium.map_or_else(|| "the device".to_owned(), |medium| medium.to_string());
    if args.json {
        return show::json(&to_json(&on, &outcome));
    }
    let latencies = &outcome.latencies;
    let seconds = outcome.ended.as_secs_f64();
    show::line(format!(
        "{} requests, {} in {seconds:.2} s on {on}: {:.2} MB/s, {:.0} requests a second",
        latencies.count(),
        ByteSize(outcome.bytes),
        outcome.bytes as f64 / 1e6 / seconds,
        latencies.count() as f64 / seconds
    ));
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|quantile| latencies.quantile(quantile));
    show::line(format!(
        "latency: mean {}, p50 {p50}, p90 {p90}, p99 {p99}, most {}",
        latencies.mean(),
        latencies.most()
    ));
    if outcome.skipped > 0 {
        show::line(format!("{} writes were left out: it can only be read", outcome.skipped));
    }
    Ok(())
}

fn to_json(on: &str, outcome: &ReplayOutcome) -> Value {
    let latencies = &outcome.latencies;
    let quantile = |quantile| latencies.quantile(quantile).as_secs_f64();
    json!({
        "on": on,
        "requests": latencies.count(),
        "bytes": outcome.bytes,
        "skipped_writes": outcome.skipped,
        "seconds": outcome.ended.as_secs_f64(),
        "mean_s": latencies.mean().as_secs_f64(),
        "p50_s": quantile(0.5),
        "p90_s": quantile(0.9),
        "p99_s": quantile(0.99),
        "max_s": latencies.most().as_secs_f64(),
    })
}

fn on_model(medium: &Medium, pace: Pace, trace: &mut Trace) -> anyhow::Result<ReplayOutcome> {
    let file_bytes = medium.capacity_bytes().unwrap_or(ENDLESS_BYTES);
    let replayed = match medium.writable_device(file_bytes)? {
        Some(device) => Replayed::Writable(device),
        None => Replayed::Readable(
            medium.device(file_bytes)?.context("the medium 'none' is the real one: name it with --on")?,
        ),
    };
    let mut replay = Replay::new(replayed, pace);
    trace.each(&mut |request| {
        if !request.range.fits_in(file_bytes) {
            bail!("the bytes {} do not lie on {medium}, which has {file_bytes}", request.range);
        }
        replay.handle(request);
        Ok(())
    })?;
    Ok(replay.finish())
}

fn for_real(file: RealFile, path: &Path, pace: Pace, trace: &mut Trace) -> anyhow::Result<ReplayOutcome> {
    let (bytes, mut skipped) = (file.bytes(), 0);
    let mut reader = match pace {
        Pace::Recorded => Reader::Times(Readers::start(file, RECORDED_DEPTH)?),
        Pace::Depth(depth) => Reader::Depth(Readers::start(file, depth as usize)?),
        Pace::Thinking => Reader::Program(Program::begin(file)),
    };
    trace.each(&mut |request| {
        if request.writes {
            skipped += 1;
            return Ok(());
        }
        if !request.range.fits_in(bytes) {
            bail!("the bytes {} do not lie in {}, which has {bytes}", request.range, path.display());
        }
        match &mut reader {
            Reader::Times(readers) => readers.ask(request.range, Some(request.at)),
            Reader::Depth(readers) => readers.ask(request.range, None),
            Reader::Program(program) => program.ask(request.range, request.at),
        }
    })?;
    let read = match reader {
        Reader::Times(readers) | Reader::Depth(readers) => readers.finish()?,
        Reader::Program(program) => program.finish()?,
    };
    Ok(ReplayOutcome { latencies: read.latencies, bytes: read.bytes, skipped, ended: read.ended })
}

/// Who makes the reads of a real file.
enum Reader {
    Times(Readers),
    Depth(Readers),
    Program(Program),
}

/// What is replayed.
enum Trace {
    Profile(Box<Profile>),
    Log { log: BlockLog, name: String, lines: Box<dyn BufRead>, first: Option<BlockRequest> },
}

impl Trace {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let file: Box<dyn Read> = if path.as_os_str() == "-" {
            Box::new(std::io::stdin())
        } else {
            Box::new(File::open(path).with_context(|| format!("open {name}"))?)
        };
        let mut lines = BufReader::with_capacity(1 << 16, file);
        let begins = lines.fill_buf().with_context(|| format!("read {name}"))?;
        if begins.starts_with(b"HSPROF\0\0") {
            let mut bytes = Vec::new();
            lines.read_to_end(&mut bytes).with_context(|| format!("read {name}"))?;
            let profile =
                Profile::decode(&bytes).with_context(|| format!("{name} is not a usable profile"))?;
            return Ok(Self::Profile(Box::new(profile)));
        }
        let mut trace = Self::Log { log: BlockLog::new(), name, lines: Box::new(lines), first: None };
        // The first line says who wrote it.
        if let Some(request) = trace.next_line()?.flatten()
            && let Self::Log { first, .. } = &mut trace
        {
            *first = Some(request);
        }
        Ok(trace)
    }

    /// Leaves out what was read after the recorded program was ready.
    fn end_when_ready(&mut self) -> anyhow::Result<()> {
        let Self::Profile(profile) = self else { bail!("only a profile knows when its program was ready") };
        let ready = profile.ready.context("the profile does not say when the program was ready")?;
        profile.reads.retain(|read| read.at <= ready);
        Ok(())
    }

    /// What it says of each read is from now on the program's own time until it.
    fn think(&mut self) -> anyhow::Result<()> {
        let Self::Profile(profile) = self else { bail!("only a profile knows how long its program thought") };
        let times = profile.think_times();
        for (read, own) in profile.reads.iter_mut().zip(times) {
            read.at = own;
        }
        Ok(())
    }

    fn has_times(&self) -> bool {
        !matches!(self, Self::Log { log, .. } if log.kind() == Some(BlockLogKind::FioV2))
    }

    /// The request of the next line, if it has one; nothing at the end.
    fn next_line(&mut self) -> anyhow::Result<Option<Option<BlockRequest>>> {
        let Self::Log { log, name, lines, .. } = self else { return Ok(None) };
        let mut line = Vec::new();
        let read = lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        if read.with_context(|| format!("read {name}"))? == 0 {
            return Ok(None);
        }
        if line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            bail!("{name} is no trace: a line has more than {MAX_LINE_BYTES} bytes");
        }
        let line = String::from_utf8_lossy(&line);
        Ok(Some(log.handle_line(&line).with_context(|| format!("{name} cannot be replayed"))?))
    }

    fn each(&mut self, handle: &mut dyn FnMut(&BlockRequest) -> anyhow::Result<()>) -> anyhow::Result<()> {
        if let Self::Profile(profile) = self {
            for read in &profile.reads {
                let range = hs_units::ByteRange::new(read.blocks.start.byte_offset(), read.blocks.bytes());
                handle(&BlockRequest { at: read.at, writes: false, range })?;
            }
            return Ok(());
        }
        if let Self::Log { first, .. } = self
            && let Some(request) = first.take()
        {
            handle(&request)?;
        }
        while let Some(found) = self.next_line()? {
            if let Some(request) = found {
                handle(&request)?;
            }
        }
        if let Self::Log { log, name, .. } = self {
            log.finish().with_context(|| format!("{name} cannot be replayed"))?;
        }
        Ok(())
    }
}
