//! `headstart lab trace`

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use comfy_table::Table;
use hs_lab::Histogram;
use hs_output::show;
use hs_serve::observe::BlockTrace;
use hs_service::signals::Ends;
use hs_trace::{BlockEvents, ServedRequest};
use hs_units::ByteSize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

/// How often it is looked whether to end.
const PAUSE: Duration = Duration::from_millis(50);
/// Processes that are told apart; all others count as one.
const MAX_PROCESSES: usize = 10_000;

/// What is traced, and for how long.
#[derive(Clone, Debug)]
pub struct Tracing {
    /// A block device, or a file on it.
    pub path: PathBuf,
    /// How long; until the command ends, or a signal, when `None`.
    pub time: Option<Duration>,
    /// A file for every request, as CSV.
    pub csv: Option<PathBuf>,
    /// Print the result as JSON.
    pub json: bool,
    /// A command to run meanwhile.
    pub command: Vec<OsString>,
}

/// Records the requests of a real device.
pub fn run(args: &Tracing, quiet: bool) -> anyhow::Result<()> {
    let signals = Ends::block()?;
    let (major, minor) = device(&args.path)?;
    let mut trace = BlockTrace::start(major, minor).map_err(|error| {
        anyhow::anyhow!("requests to {} cannot be traced: {}", args.path.display(), error.reason)
    })?;
    let mut seen = Traced::new(args.csv.as_deref())?;
    let began = Instant::now();
    let mut child = Meanwhile::start(&args.command)?;
    if !quiet && args.command.is_empty() && args.time.is_none() {
        hs_output::note!("tracing device {major}:{minor}; Ctrl-C ends it");
    }
    loop {
        seen.take(trace.lines(PAUSE).map_err(|error| anyhow::anyhow!(error.reason))?)?;
        let over = args.time.is_some_and(|time| began.elapsed() >= time);
        if over || child.has_ended()? || has_signal(&signals)? {
            break;
        }
    }
    trace.stop().map_err(|error| anyhow::anyhow!(error.reason))?;
    // What was recorded until then.
    loop {
        let lines = trace.lines(Duration::ZERO).map_err(|error| anyhow::anyhow!(error.reason))?;
        if lines.is_empty() {
            break;
        }
        seen.take(lines)?;
    }
    drop(child);
    let lost = trace.lost_events().unwrap_or_default();
    seen.finish()?;
    if args.json {
        return show::json(&seen.to_json(began.elapsed(), lost));
    }
    seen.print(lost);
    Ok(())
}

/// The disk that holds `path`: events are of whole disks.
fn device(path: &Path) -> anyhow::Result<(u32, u32)> {
    let metadata = std::fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let entry = format!("/sys/dev/block/{major}:{minor}");
    if !Path::new(&entry).exists() {
        bail!("{} lies on no block device (its device is {major}:{minor})", path.display());
    }
    if !Path::new(&entry).join("partition").exists() {
        return Ok((major, minor));
    }
    let disk = std::fs::read_to_string(format!("{entry}/../dev"))
        .with_context(|| format!("find the disk of the partition {}", path.display()))?;
    let numbers = disk
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    numbers.with_context(|| format!("'{}' is no device number", disk.trim()))
}

fn has_signal(signals: &Ends) -> anyhow::Result<bool> {
    let mut events = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    match poll(&mut events, Some(&Timespec::default())) {
        Ok(found) => Ok(found > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("look for a signal"),
    }
}

/// The command that runs meanwhile, which ends with this.
struct Meanwhile(Option<Child>);

impl Meanwhile {
    fn start(command: &[std::ffi::OsString]) -> anyhow::Result<Self> {
        let Some((program, arguments)) = command.split_first() else { return Ok(Self(None)) };
        let mut command = Command::new(program);
        // Its output is not ours.
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("run {}", program.display()))?;
        Ok(Self(Some(child)))
    }

    fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(match &mut self.0 {
            Some(child) => child.try_wait().context("wait for the command")?.is_some(),
            None => false,
        })
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Default)]
struct Of {
    requests: u64,
    bytes: u64,
    service: Histogram,
}

/// What was seen so far.
struct Traced {
    events: BlockEvents,
    csv: Option<BufWriter<File>>,
    processes: BTreeMap<(String, u32), Of>,
    queued: Histogram,
    service: Histogram,
    bytes: u64,
    /// Where the last request ended.
    last_end: Option<u64>,
}

impl Traced {
    fn new(csv: Option<&Path>) -> anyhow::Result<Self> {
        let create = |path: &Path| -> anyhow::Result<BufWriter<File>> {
            let mut out =
                BufWriter::new(File::create(path).with_context(|| format!("write {}", path.display()))?);
            writeln!(out, "at_s,process,pid,direction,offset,bytes,step,queued_s,service_s")?;
            Ok(out)
        };
        Ok(Self {
            events: BlockEvents::new(),
            csv: csv.map(create).transpose()?,
            processes: BTreeMap::new(),
            queued: Histogram::default(),
            service: Histogram::default(),
            bytes: 0,
            last_end: None,
        })
    }

    fn take(&mut self, lines: Vec<String>) -> anyhow::Result<()> {
        for line in lines {
            if let Some(request) = self.events.handle_line(&line) {
                self.note(&request)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, request: &ServedRequest) -> anyhow::Result<()> {
        let ServedRequest { at, process, pid, writes, range, queued, service } = request;
        // How far the device had to go, forwards or backwards.
        let step = self.last_end.map(|end| range.offset as i64 - end as i64);
        self.last_end = Some(range.end());
        if let Some(csv) = &mut self.csv {
            let quoted = if process.contains([',', '"']) {
                format!("\"{}\"", process.replace('"', "\"\""))
            } else {
                process.clone()
            };
            let step = step.map(|step| step.to_string()).unwrap_or_default();
            writeln!(
                csv,
                "{:.6},{quoted},{pid},{},{},{},{step},{:.6},{:.6}",
                at.as_secs_f64(),
                if *writes { "write" } else { "read" },
                range.offset,
                range.len,
                queued.as_secs_f64(),
                service.as_secs_f64()
            )
            .context("write the requests")?;
        }
        self.queued.note(*queued);
        self.service.note(*service);
        self.bytes += range.len;
        let mut who = (process.clone(), *pid);
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&who) {
            who = ("others".to_owned(), 0);
        }
        let of = self.processes.entry(who).or_default();
        of.requests += 1;
        of.bytes += range.len;
        of.service.note(*service);
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.csv.as_mut().map_or(Ok(()), BufWriter::flush).context("write the requests")
    }

    /// Jain's index of the bytes of each process: 1 when all had as much, 1/n when one had all.
    fn jain(&self) -> Option<f64> {
        let bytes = || self.processes.values().map(|of| of.bytes as f64);
        let squares: f64 = bytes().map(|bytes| bytes * bytes).sum();
        (squares > 0.0).then(|| bytes().sum::<f64>().powi(2) / (self.processes.len() as f64 * squares))
    }

    fn to_json(&self, elapsed: Duration, lost: u64) -> Value {
        let times = |times: &Histogram| {
            let quantile = |quantile| times.quantile(quantile).as_secs_f64();
            json!({
                "mean_s": times.mean().as_secs_f64(),
                "p50_s": quantile(0.5),
                "p90_s": quantile(0.9),
                "p99_s": quantile(0.99),
                "max_s": times.most().as_secs_f64(),
            })
        };
        let process = |((name, pid), of): (&(String, u32), &Of)| json!({"process": name, "pid": pid, "requests": of.requests, "bytes": of.bytes, "service": times(&of.service)});
        json!({
            "seconds": elapsed.as_secs_f64(),
            "requests": self.service.count(),
            "bytes": self.bytes,
            "queued": times(&self.queued),
            "service": times(&self.service),
            "jain": self.jain(),
            "lost_events": lost,
            "unmatched_events": self.events.unmatched(),
            "processes": self.processes.iter().map(process).collect::<Vec<_>>(),
        })
    }

    fn table(&self) -> Table {
        let mut table = show::table(&["process", "pid", "requests", "MiB", "p50", "p99", "most"]);
        for ((name, pid), of) in &self.processes {
            table.add_row([
                name.clone(),
                pid.to_string(),
                of.requests.to_string(),
                show::mib(of.bytes),
                of.service.quantile(0.5).to_string(),
                of.service.quantile(0.99).to_string(),
                of.service.most().to_string(),
            ]);
        }
        table
    }

    fn print(&self, lost: u64) {
        show::line(self.table());
        let jain =
            self.jain().map(|jain| format!("; Jain's index of their bytes {jain:.3}")).unwrap_or_default();
        show::line(format!("{} requests, {}{jain}", self.service.count(), ByteSize(self.bytes)));
        if lost > 0 {
            show::line(format!("{lost} events were lost: not everything was seen"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_mib() {
        let mut seen = Traced::new(None).expect("no file");
        seen.processes.insert(("dd".to_owned(), 7), Of { requests: 3, bytes: 3 << 19, ..Of::default() });
        let text = seen.table().to_string();
        assert!(text.contains("MiB") && text.contains(" 1.5 "), "{text}");
        assert_eq!(hs_testing::decimal_units(&text), [""; 0], "{text}");
    }
}
