//! The requests of a served disk as CSV: reads of the kernel, and what was prefetched for them; with the
//! processes of the start, where they were seen.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hs_disk::{DemandEvent, FetchEvent, FetchPurpose, Watch};
use hs_output::whole_file::write_whole;
use hs_trace::limits;
use hs_units::{BLOCK_BYTES, ByteRange, Digest, Nanos};
use parking_lot::Mutex;
use serde_json::json;

use crate::process_log::{CpuUse, ProcessLife, ProcessLog};

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
    /// The disk in the image.
    pub disk_digest: Digest,
    /// Its size.
    pub disk_bytes: u64,
    /// What was started.
    pub command: String,
    /// The medium.
    pub medium: String,
    /// When it was ready.
    pub ready_s: Option<f64>,
    /// When it ended.
    pub ended_s: f64,
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

    /// Writes what was seen. `headstart report` reads it: the first line says what it is of.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, of: &Traced) -> anyhow::Result<()> {
        let head = json!({
            "disk_digest": of.disk_digest.to_string(),
            "disk_bytes": of.disk_bytes,
            "command": of.command,
            "medium": of.medium,
            "ready_s": of.ready_s,
            "ended_s": of.ended_s,
        });
        let mut rows = self.rows.rows.lock();
        if rows.len() as u64 == limits::MAX_READS {
            log::warn!("requests beyond {} are not in the trace", limits::MAX_READS);
        }
        rows.sort_by_key(|row| row.at);
        let (lives, used) = self.processes.take();
        write_whole(&self.file, table(&head, &rows, &lives, &used).as_bytes())
    }
}

fn table(head: &serde_json::Value, rows: &[Row], lives: &[ProcessLife], used: &[CpuUse]) -> String {
    let columns = "at_s,kind,offset,bytes,service_s,request,process,pid,parent,cpu_s";
    let mut text = format!("# {head}\n{columns}\n");
    for Row { at, kind, bytes, service, request } in rows {
        let (at, service) = (at.as_secs_f64(), service.as_secs_f64());
        let _ = writeln!(text, "{at:.9},{kind},{},{},{service:.9},{request},,,,", bytes.offset, bytes.len);
    }
    for ProcessLife { pid, parent, name, from, to, cpu } in lives {
        let (at, service, cpu) =
            (from.as_secs_f64(), to.saturating_sub(*from).as_secs_f64(), cpu.as_secs_f64());
        let name = name.replace('"', "\"\"");
        let _ = writeln!(text, "{at:.9},process,,,{service:.9},,\"{name}\",{pid},{parent},{cpu:.3}");
    }
    for CpuUse { from, span, cpu } in used {
        let (at, service, cpu) = (from.as_secs_f64(), span.as_secs_f64(), cpu.as_secs_f64());
        let _ = writeln!(text, "{at:.9},cpu,,,{service:.9},,,,,{cpu:.3}");
    }
    text
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
