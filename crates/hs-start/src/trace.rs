//! The requests of a served disk in a start, as CSV: reads of the kernel, and what was prefetched for them.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use hs_disk::{DemandEvent, FetchEvent, FetchPurpose, Watch};
use hs_output::whole_file::write_whole;
use hs_trace::limits;
use hs_units::{BLOCK_BYTES, ByteRange, Nanos};
use parking_lot::Mutex;
use serde_json::json;

use crate::open::open_image;
use crate::record::command_line;
use crate::start::{Disk, Start, Started};

/// A row of the table.
#[derive(Debug)]
struct Row {
    at: Nanos,
    kind: &'static str,
    bytes: ByteRange,
    service: Nanos,
}

/// What a served disk reads and brings, up to the limit of a profile.
#[derive(Debug, Default)]
struct Rows(Mutex<Vec<Row>>);

impl Rows {
    fn add(&self, row: Row) {
        let mut rows = self.0.lock();
        if (rows.len() as u64) < limits::MAX_READS {
            rows.push(row);
        }
    }
}

/// Writes the trace of a start, where one is wanted.
pub struct Tracer<'a>(Option<(&'a Path, Arc<Rows>)>);

impl<'a> Tracer<'a> {
    /// Watches this start when there is a file to write.
    pub fn of(start: &mut Start, file: Option<&'a Path>) -> Self {
        Self(file.map(|file| {
            let rows = Arc::new(Rows::default());
            start.watch = Some(rows.clone());
            (file, rows)
        }))
    }

    /// Writes what was seen. `headstart report` reads it: the first line says which start it was.
    ///
    /// # Errors
    /// When the start was of no image, or the file cannot be written.
    pub fn write(&self, start: &Start, started: &Started) -> anyhow::Result<()> {
        let Some((path, rows)) = &self.0 else { return Ok(()) };
        let Disk::Image { image, .. } = &start.disk else { bail!("--trace is of starts from an image") };
        let image = open_image(image.as_ref())?;
        let head = json!({
            "disk_digest": image.disk_digest().to_string(),
            "disk_bytes": image.disk_bytes(),
            "command": command_line(start),
            "medium": start.medium.to_string(),
            "ready_s": started.summary.ready_s,
            "ended_s": started.summary.wall_s,
        });
        let mut text = format!("# {head}\nat_s,kind,offset,bytes,service_s\n");
        let mut rows = rows.0.lock();
        if rows.len() as u64 == limits::MAX_READS {
            log::warn!("requests beyond {} are not in the trace", limits::MAX_READS);
        }
        rows.sort_by_key(|row| row.at);
        for Row { at, kind, bytes, service } in rows.iter() {
            let (at, service) = (at.as_secs_f64(), service.as_secs_f64());
            let _ = writeln!(text, "{at:.9},{kind},{},{},{service:.9}", bytes.offset, bytes.len);
        }
        write_whole(path, text.as_bytes())
    }
}

impl Watch for Rows {
    fn demand(&self, event: &DemandEvent) {
        let kind = if event.expected { "warm" } else { "demand" };
        self.add(Row { at: event.at, kind, bytes: event.range, service: event.cost });
    }

    fn fetched(&self, event: FetchEvent) {
        let kind = match event.purpose {
            // The reads that wait for it are there already.
            FetchPurpose::Demand => return,
            FetchPurpose::Prefetch => "prefetch",
            FetchPurpose::Background => "background",
        };
        for run in event.blocks {
            let bytes = ByteRange::new(run.start.byte_offset(), run.count * BLOCK_BYTES);
            self.add(Row { at: event.at, kind, bytes, service: event.cost });
        }
    }
}
