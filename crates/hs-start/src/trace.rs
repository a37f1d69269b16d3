//! The requests of a start as CSV: reads of the kernel, and what was prefetched for them, or reads of the
//! medium that firmware starts from; with the stages and the processes of the start, where they were seen.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, bail};
use hs_disk::{DemandEvent, FetchEvent, FetchPurpose, Watch};
use hs_output::whole_file::write_whole;
use hs_trace::{limits, quoted};
use hs_units::{BLOCK_BYTES, ByteRange, Digest, Nanos};
use parking_lot::Mutex;
use serde_json::json;

use crate::boot::{BootDisk, BootSpec, Booted, MediumStart};
use crate::open::open_image;
use crate::process_log::{CpuUse, ProcessLife, ProcessLog};
use crate::record::command_line;
use crate::stage_spans::{StageSpan, stage_at};
use crate::start::{Disk, Start};
use crate::summary::Summary;

/// Names of files on a hostile medium are long: rows beyond so many bytes are left out.
const MOST_TEXT_BYTES: usize = 256 << 20;
const COLUMNS: &str = "at_s,kind,offset,bytes,service_s,request,process,pid,parent,cpu_s,stage,file";

/// A row of the table.
#[derive(Debug)]
struct Row {
    at: Nanos,
    kind: &'static str,
    bytes: ByteRange,
    service: Nanos,
    /// The number of the request that it belongs to. One that brought several runs of blocks has several
    /// rows.
    request: u64,
}

/// What a served disk reads and brings, up to the limit of a profile.
#[derive(Debug, Default)]
struct Rows {
    rows: Mutex<Vec<Row>>,
    requests: AtomicU64,
}

impl Rows {
    fn add(&self, rows: impl Iterator<Item = Row>) {
        let mut all = self.rows.lock();
        let free = (limits::MAX_READS as usize).saturating_sub(all.len());
        all.extend(rows.take(free));
    }

    fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed)
    }
}

/// What a trace is of.
#[derive(Debug)]
pub struct Traced {
    /// The disk in the image; `None` of a medium.
    pub disk_digest: Option<Digest>,
    /// Its size, or that of the medium.
    pub disk_bytes: u64,
    /// What was started.
    pub command: String,
    /// The medium.
    pub medium: String,
    /// When it was ready.
    pub ready_s: Option<f64>,
    /// When it ended.
    pub ended_s: f64,
    /// Its stages, where the console of a guest showed them.
    pub stages: Vec<StageSpan>,
    /// The profile that a guest recorded of itself, meanwhile.
    pub profile: Option<OwnProfile>,
}

impl Traced {
    /// What the trace of this start is of, before it begins.
    ///
    /// # Errors
    /// When it is not from an image.
    pub fn of_start(start: &Start) -> anyhow::Result<Self> {
        let Disk::Image { image, .. } = &start.disk else { bail!("--trace is of starts from an image") };
        let image = open_image(image.as_ref())?;
        let disk = (Some(image.disk_digest()), image.disk_bytes());
        Ok(Self::new(disk, command_line(start), start.medium.to_string()))
    }

    /// What the trace of this boot is of, before it begins.
    ///
    /// # Errors
    /// When it is neither from an image nor from a bootable ISO.
    pub fn of_boot(spec: &BootSpec) -> anyhow::Result<Self> {
        let disk = match &spec.disk {
            BootDisk::Image(image, _) => {
                let image = open_image(&**image)?;
                (Some(image.disk_digest()), image.disk_bytes())
            }
            BootDisk::Raw(path) if spec.starts_from_medium() => {
                let bytes = File::open(path).and_then(|mut medium| medium.seek(SeekFrom::End(0)));
                (None, bytes.with_context(|| format!("open {}", path.display()))?)
            }
            BootDisk::Raw(_) => bail!("--trace is of boots from an image or a bootable ISO"),
        };
        Ok(Self::new(disk, format!("boot --vmm {}", spec.vmm.as_str()), spec.medium.to_string()))
    }

    fn new((disk_digest, disk_bytes): (Option<Digest>, u64), command: String, medium: String) -> Self {
        let (ready_s, ended_s, stages, profile) = (None, 0.0, Vec::new(), None);
        Self { disk_digest, disk_bytes, command, medium, ready_s, ended_s, stages, profile }
    }

    /// When it was ready and ended.
    #[must_use]
    pub fn started(self, summary: &Summary) -> Self {
        Self { ready_s: summary.ready_s, ended_s: summary.wall_s, ..self }
    }

    /// The same of a boot, with its stages.
    #[must_use]
    pub fn booted(self, booted: &Booted) -> Self {
        let ended_s = booted.ended.as_secs_f64();
        Self { ended_s, stages: booted.stages(), ..self.started(&booted.summary) }
    }
}

/// Which profile a guest recorded of itself, and where it lies on the time axis of the whole start.
#[derive(Clone, Copy, Debug)]
pub struct OwnProfile {
    /// The disk that it is of.
    pub disk_digest: Digest,
    /// Its own length, which tells it from others of this disk.
    pub ended_s: f64,
    /// Start → its first moment.
    pub from_s: f64,
}

/// Writes the trace of a start.
#[derive(Debug)]
pub struct Tracer {
    file: PathBuf,
    rows: Arc<Rows>,
    processes: Arc<ProcessLog>,
}

impl Tracer {
    /// One that will write this file.
    #[must_use]
    pub fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), rows: Arc::default(), processes: Arc::default() }
    }

    /// What sees the requests.
    #[must_use]
    pub fn watch(&self) -> Arc<dyn Watch> {
        self.rows.clone()
    }

    /// What sees the processes.
    #[must_use]
    pub fn processes(&self) -> Arc<ProcessLog> {
        Arc::clone(&self.processes)
    }

    /// Writes what was seen, and what was read of the medium that a guest started from. `headstart report`
    /// reads it: the first line says what it is of.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, of: &Traced, medium: Option<&MediumStart>) -> anyhow::Result<()> {
        let mut table = Table::new(of);
        let mut rows = self.rows.rows.lock();
        rows.sort_by_key(|row| row.at);
        rows.iter().for_each(|row| table.request(row, None));
        medium.iter().for_each(|medium| table.medium(medium));
        let (lives, used) = self.processes.take();
        lives.iter().for_each(|life| table.life(life));
        used.iter().for_each(|used| table.cpu_use(used));
        if table.requests as u64 >= limits::MAX_READS || table.is_full() {
            log::warn!("requests beyond {} are not in the trace", table.requests);
        }
        write_whole(&self.file, table.text.as_bytes())
    }
}

/// A table that is written.
struct Table<'a> {
    text: String,
    stages: &'a [StageSpan],
    /// What runs a guest goes on for a while, to take its recording.
    ended: Nanos,
    /// Rows of requests.
    requests: usize,
}

impl<'a> Table<'a> {
    fn new(of: &'a Traced) -> Self {
        let head = json!({
            "disk_digest": of.disk_digest.map(|digest| digest.to_string()),
            "disk_bytes": of.disk_bytes,
            "command": of.command,
            "medium": of.medium,
            "ready_s": of.ready_s,
            "ended_s": of.ended_s,
            "profile": of.profile.as_ref().map(|own| json!({
                "disk_digest": own.disk_digest.to_string(),
                "ended_s": own.ended_s,
                "from_s": own.from_s,
            })),
        });
        let mut text = format!("# {head}\n{COLUMNS}\n");
        for StageSpan { name, from, to } in &of.stages {
            let (at, service) = (from.as_secs_f64(), to.saturating_sub(*from).as_secs_f64());
            let _ = writeln!(text, "{at:.9},stage,,,{service:.9},,,,,,{name},");
        }
        Self { text, stages: &of.stages, ended: Nanos::from_secs_f64(of.ended_s), requests: 0 }
    }

    fn is_full(&self) -> bool {
        self.text.len() >= MOST_TEXT_BYTES
    }

    fn request(&mut self, row: &Row, file: Option<&str>) {
        if self.requests as u64 >= limits::MAX_READS || self.is_full() || row.at > self.ended {
            return;
        }
        self.requests += 1;
        let Row { at, kind, bytes, service, request } = row;
        let stage = stage_at(self.stages, *at).unwrap_or_default();
        let file = quoted(file.unwrap_or_default());
        let (at, service, ByteRange { offset, len }) = (at.as_secs_f64(), service.as_secs_f64(), bytes);
        let _ =
            writeln!(self.text, "{at:.9},{kind},{offset},{len},{service:.9},{request},,,,,{stage},{file}");
    }

    /// Each read of a medium, with a row for each file that it covers.
    fn medium(&mut self, medium: &MediumStart) {
        for (request, read) in (0..).zip(&medium.reads) {
            for (file, bytes) in medium.parts(read.bytes) {
                self.request(&Row { at: read.at, kind: "demand", bytes, service: read.took, request }, file);
            }
        }
    }

    fn life(&mut self, life: &ProcessLife) {
        let ProcessLife { pid, parent, name, from, to, cpu } = life;
        if *from > self.ended {
            return;
        }
        let lived = (*to).min(self.ended).saturating_sub(*from);
        let (at, service, cpu) = (from.as_secs_f64(), lived.as_secs_f64(), cpu.as_secs_f64());
        let name = name.replace('"', "\"\"");
        let _ = writeln!(self.text, "{at:.9},process,,,{service:.9},,\"{name}\",{pid},{parent},{cpu:.3},,");
    }

    fn cpu_use(&mut self, used: &CpuUse) {
        let CpuUse { from, span, cpu } = used;
        if *from > self.ended {
            return;
        }
        let (at, service, cpu) = (from.as_secs_f64(), span.as_secs_f64(), cpu.as_secs_f64());
        let _ = writeln!(self.text, "{at:.9},cpu,,,{service:.9},,,,,{cpu:.3},,");
    }
}

impl Watch for Rows {
    fn demand(&self, event: &DemandEvent) {
        let kind = if event.expected { "warm" } else { "demand" };
        let request = self.next_request();
        let row = Row { at: event.at, kind, bytes: event.range, service: event.cost, request };
        self.add(std::iter::once(row));
    }

    fn fetched(&self, event: FetchEvent) {
        let kind = match event.purpose {
            // The reads that wait for it are there already.
            FetchPurpose::Demand => return,
            FetchPurpose::Prefetch => "prefetch",
            FetchPurpose::Background => "background",
        };
        let request = self.next_request();
        self.add(event.blocks.iter().map(|run| {
            let bytes = ByteRange::new(run.start.byte_offset(), run.count * BLOCK_BYTES);
            Row { at: event.at, kind, bytes, service: event.cost, request }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_stages_and_files_of_any_name() {
        let span = |name, from: u64, to: u64| StageSpan { name, from: Nanos(from), to: Nanos(to) };
        let traced = Traced {
            disk_digest: None,
            disk_bytes: 1 << 20,
            command: "boot".to_owned(),
            medium: "none".to_owned(),
            ready_s: Some(2.0),
            ended_s: 3.0,
            stages: vec![span("boot loader", 1_000_000_000, 3_000_000_000)],
            profile: None,
        };
        let mut table = Table::new(&traced);
        let row = |at| Row {
            at: Nanos(at),
            kind: "demand",
            bytes: ByteRange::new(4096, 2048),
            service: Nanos(7),
            request: 5,
        };
        table.request(&row(500_000_000), None);
        table.request(&row(1_000_000_000), Some("/a, \"b\"\n"));
        table.life(&ProcessLife {
            pid: 7,
            parent: 1,
            name: "sh, x".to_owned(),
            from: Nanos(1),
            to: Nanos(2),
            cpu: Nanos(0),
        });
        table.cpu_use(&CpuUse { from: Nanos(0), span: Nanos(1), cpu: Nanos(1) });
        table.cpu_use(&CpuUse { from: Nanos(3_000_000_001), span: Nanos(1), cpu: Nanos(1) });
        let (head, rows) = table.text.split_once('\n').expect("a first line");
        assert!(head.starts_with("# {") && head.contains("\"disk_digest\":null"), "{head}");
        let expected = "at_s,kind,offset,bytes,service_s,request,process,pid,parent,cpu_s,stage,file\n\
            1.000000000,stage,,,2.000000000,,,,,,boot loader,\n\
            0.500000000,demand,4096,2048,0.000000007,5,,,,,,\n\
            1.000000000,demand,4096,2048,0.000000007,5,,,,,boot loader,\"/a, \"\"b\"\"\n\"\n\
            0.000000001,process,,,0.000000001,,\"sh, x\",7,1,0.000,,\n\
            0.000000000,cpu,,,0.000000001,,,,,0.000,,\n";
        assert_eq!(rows, expected);
    }

    /// A medium may have names that make any number of rows large.
    #[test]
    fn a_table_is_bounded() {
        let mut table = Table {
            ended: Nanos::ZERO,
            text: String::new(),
            stages: &[],
            requests: limits::MAX_READS as usize - 1,
        };
        let row =
            Row { at: Nanos(0), kind: "demand", bytes: ByteRange::new(0, 1), service: Nanos(0), request: 0 };
        table.request(&row, None);
        let len = table.text.len();
        table.request(&row, None);
        assert_eq!(table.text.len(), len);
    }
}
