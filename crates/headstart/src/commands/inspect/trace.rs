//! `headstart inspect TRACE.csv`: what each stage of a start read, and of which files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use hs_output::printable::Printable;
use hs_output::show;
use hs_report::{FileReads, ReadTotals, StageReads, TraceTotals};
use hs_units::{BLOCK_BYTES, ByteSize};
use serde::Serialize;

/// Files beyond these are printed with `--json` only.
const MOST_FILES_SHOWN: usize = 50;
/// The first line of a trace says what it is of, the second one names its columns.
const START_BYTES: u64 = 64 << 10;
const HEADER: [&str; 7] = ["from, s", "to, s", "requests", "bytes", "unique bytes", "busy, s", "rate"];

#[derive(Serialize)]
struct Shown {
    kind: &'static str,
    #[serde(flatten)]
    totals: TraceTotals,
}

/// Whether a file begins as a trace does, with a line that names its columns.
pub(super) fn is_meant(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(START_BYTES).read_to_end(&mut start));
    read.is_ok() && String::from_utf8_lossy(&start).contains("at_s")
}

/// Prints the totals of a trace.
pub(super) fn run(path: &Path, json: bool) -> anyhow::Result<()> {
    let totals = hs_report::totals(path)?;
    if json {
        return show::json(&Shown { kind: "trace", totals });
    }
    let TraceTotals { command, medium, ready_s, recorded_s, disk_bytes, stages, files } = totals;
    let seconds = |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |time| format!("{time:.3}"));
    for (key, value) in [
        ("kind", "trace".to_owned()),
        ("command", command.unwrap_or_default()),
        ("medium", medium.unwrap_or_default()),
        ("ready_s", seconds(ready_s)),
        ("recorded_s", seconds(recorded_s)),
        ("disk_bytes", format!("{disk_bytes} ({})", ByteSize(disk_bytes))),
    ] {
        show::line(format_args!("{key:24} {}", Printable(&value)));
    }
    let mut table = show::table(&[&["stage"], &HEADER[..]].concat());
    for StageReads { stage, totals } in &stages {
        table.add_row([vec![name(stage.as_deref(), "–")], cells(totals)].concat());
    }
    show::line(&table);
    if files.iter().all(|of| of.file.is_none()) {
        return Ok(());
    }
    let mut table = show::table(&[&["file", "stage"], &HEADER[..]].concat());
    for FileReads { stage, file, totals } in files.iter().take(MOST_FILES_SHOWN) {
        let names = [name(file.as_deref(), "(in no file)"), name(stage.as_deref(), "–")];
        table.add_row([names.into(), cells(totals)].concat());
    }
    show::line(&table);
    if let more @ 1.. = files.len().saturating_sub(MOST_FILES_SHOWN) {
        hs_output::note!("{more} more files: --json");
    }
    Ok(())
}

fn name(name: Option<&str>, otherwise: &str) -> String {
    Printable(name.unwrap_or(otherwise)).to_string()
}

fn cells(totals: &ReadTotals) -> Vec<String> {
    let ReadTotals { first_s, last_s, requests, bytes, unique_blocks, busy_s, bytes_per_s } = totals;
    let rate = bytes_per_s.map_or_else(|| "–".to_owned(), |rate| format!("{}/s", ByteSize(rate as u64)));
    vec![
        format!("{first_s:.2}"),
        format!("{last_s:.2}"),
        requests.to_string(),
        ByteSize(*bytes).to_string(),
        ByteSize(unique_blocks.saturating_mul(BLOCK_BYTES)).to_string(),
        format!("{busy_s:.3}"),
        rate,
    ]
}
