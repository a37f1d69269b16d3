//! CSV: a row for each request.

use anyhow::Context;
use hs_units::{Lba, Nanos};

use super::kind_name;
use crate::recording::Recording;

const HEADER: [&str; 12] = [
    "input",
    "at_s",
    "process",
    "pid",
    "kind",
    "offset",
    "bytes",
    "queued_s",
    "service_s",
    "request",
    "file",
    "stage",
];

/// All requests, with nanoseconds. `report` reads it again.
pub(crate) fn csv(recordings: &[Recording]) -> anyhow::Result<Vec<u8>> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(HEADER)?;
    for recording in recordings {
        let files = recording.file_map();
        let mut number = 0;
        for request in &recording.requests {
            number += u64::from(!request.is_part);
            let process = &recording.processes[request.process as usize];
            let of = request.of(recording);
            let file = files.locate(Lba(request.first_block()));
            table.write_record([
                recording.name.as_str(),
                &seconds(request.at),
                &process.name,
                &process.pid.map(|pid| pid.to_string()).unwrap_or_default(),
                kind_name(request.kind),
                &request.bytes.offset.to_string(),
                &request.bytes.len.to_string(),
                &seconds(request.queued),
                &seconds(request.service),
                &number.to_string(),
                file.map_or(&of.file, |(file, _)| &file.path),
                &of.stage,
            ])?;
        }
    }
    table.into_inner().context("write the table")
}

fn seconds(time: Nanos) -> String {
    format!("{}.{:09}", time.0 / 1_000_000_000, time.0 % 1_000_000_000)
}
