//! What each stage of a start read of each file.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

use anyhow::bail;
use hs_trace::{BlockSet, FileRun, FileUse};
use hs_units::{BlockRange, Lba, Nanos};
use serde::Serialize;

use crate::column::{Column, Texts};
use crate::model::StageFiles;
use crate::read::Inputs;
use crate::recording::{Recording, Request, StageFile};

/// What a trace says of the reads of a start.
#[derive(Clone, Debug, Serialize)]
pub struct TraceTotals {
    /// The command that was started.
    pub command: Option<String>,
    /// What it started from.
    pub medium: Option<String>,
    /// When it was ready.
    pub ready_s: Option<f64>,
    /// When it ended.
    pub recorded_s: Option<f64>,
    /// The bytes of the disk or of the medium.
    pub disk_bytes: u64,
    /// What each stage read, in the order of their first requests.
    pub stages: Vec<StageReads>,
    /// The same by files.
    pub files: Vec<FileReads>,
}

/// What a stage read.
#[derive(Clone, Debug, Serialize)]
pub struct StageReads {
    /// The stage; `None` where it is not known.
    pub stage: Option<String>,
    /// How much.
    #[serde(flatten)]
    pub totals: ReadTotals,
}

/// What a stage read of a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileReads {
    /// The stage; `None` where it is not known.
    pub stage: Option<String>,
    /// The file; `None` for what lies in none, or where it is not known.
    pub file: Option<String>,
    /// How much.
    #[serde(flatten)]
    pub totals: ReadTotals,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReadTotals {
    /// When the first request came.
    pub first_s: f64,
    /// When the last one came.
    pub last_s: f64,
    /// How many there were.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks of 4 KiB, each once.
    pub unique_blocks: u64,
    /// Time in which at least one of them was served.
    pub busy_s: f64,
    /// Bytes by that time; `None` where it is not known.
    pub bytes_per_s: Option<f64>,
}

/// The totals of a trace, or of another log of requests.
///
/// # Errors
/// When it cannot be read, is something else, or has several inputs.
pub fn totals(path: &Path) -> anyhow::Result<TraceTotals> {
    let mut inputs = Inputs::default();
    inputs.add(path)?;
    let [recording] = &inputs.recordings[..] else {
        bail!("{} is no trace of one input", path.display());
    };
    if recording.requests.is_empty() {
        bail!("{} has no requests", path.display());
    }
    Ok(TraceTotals {
        command: recording.command.clone(),
        medium: recording.medium.clone(),
        ready_s: recording.ready_s,
        recorded_s: recording.ended_s,
        disk_bytes: recording.disk_bytes,
        stages: by_stage(recording),
        files: by_file(recording),
    })
}

/// A sum that grows.
#[derive(Default)]
struct Sum {
    first: Nanos,
    last: Nanos,
    requests: u64,
    bytes: u64,
    blocks: BlockSet,
    /// When each of them was served.
    served: Vec<(Nanos, Nanos)>,
}

impl Sum {
    /// Requests come by their times.
    fn add(&mut self, request: &Request, is_part: bool) {
        if self.bytes == 0 {
            self.first = request.at;
        }
        self.last = request.at;
        self.requests += u64::from(!is_part);
        self.bytes = self.bytes.saturating_add(request.bytes.len);
        self.blocks.insert(BlockRange::new(Lba(request.first_block()), request.blocks()), |_| {});
        if !is_part {
            self.served.push((request.at + request.queued, request.ended()));
        }
    }

    /// The time in which at least one of them was served.
    fn busy(&mut self) -> Nanos {
        self.served.sort_unstable();
        let (mut busy, mut until) = (Nanos::ZERO, Nanos::ZERO);
        for &(from, to) in &self.served {
            busy += to.saturating_sub(from.max(until));
            until = until.max(to);
        }
        busy
    }

    fn totals(mut self) -> ReadTotals {
        let busy_s = self.busy().as_secs_f64();
        ReadTotals {
            first_s: self.first.as_secs_f64(),
            last_s: self.last.as_secs_f64(),
            requests: self.requests,
            bytes: self.bytes,
            unique_blocks: self.blocks.blocks(),
            busy_s,
            bytes_per_s: (busy_s > 0.0).then(|| self.bytes as f64 / busy_s),
        }
    }
}

/// Sums in the order of their first requests. A request with parts counts once for each sum that it is in.
fn sums<'a, K: Copy + Eq + Hash>(
    requests: &'a [Request],
    key: impl Fn(&'a Request) -> K,
) -> impl Iterator<Item = (K, Sum)> {
    let mut found: Vec<(K, Sum)> = Vec::new();
    let mut places: HashMap<K, (usize, u64)> = HashMap::new();
    let mut number = 0;
    for request in requests {
        number += u64::from(!request.is_part);
        let key = key(request);
        let (place, last) = places.entry(key).or_insert_with(|| {
            found.push((key, Sum::default()));
            (found.len() - 1, 0)
        });
        let is_there = std::mem::replace(last, number) == number;
        found[*place].1.add(request, is_there);
    }
    found.into_iter()
}

/// What each stage read.
fn by_stage(recording: &Recording) -> Vec<StageReads> {
    let found = sums(&recording.requests, |request| request.of(recording).stage.as_str());
    found.map(|(stage, sum)| StageReads { stage: known(stage), totals: sum.totals() }).collect()
}

/// What each stage read of each file.
fn by_file(recording: &Recording) -> Vec<FileReads> {
    let totals = sums(&recording.requests, |request| request.stage_file).map(|(of, sum)| {
        let StageFile { stage, file } = &recording.stage_files[of as usize];
        FileReads { stage: known(stage), file: known(file), totals: sum.totals() }
    });
    totals.collect()
}

fn known(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

/// The same for the page; `None` where no request has a stage.
pub(crate) fn columns(recording: &Recording) -> Option<StageFiles> {
    if recording.stage_files.iter().all(|of| of.stage.is_empty()) {
        return None;
    }
    let reads = by_file(recording);
    let texts = |text: fn(&FileReads) -> &Option<String>| {
        Texts::of(&reads.iter().map(|of| text(of).as_deref().unwrap_or_default()).collect::<Vec<_>>())
    };
    let numbers = |number: fn(&ReadTotals) -> f64| {
        Column::f64(&reads.iter().map(|of| number(&of.totals)).collect::<Vec<_>>())
    };
    Some(StageFiles {
        stages: texts(|of| &of.stage),
        files: texts(|of| &of.file),
        first_s: numbers(|of| of.first_s),
        last_s: numbers(|of| of.last_s),
        requests: numbers(|of| of.requests as f64),
        bytes: numbers(|of| of.bytes as f64),
        unique_blocks: numbers(|of| of.unique_blocks as f64),
        busy_s: numbers(|of| of.busy_s),
    })
}

/// Where the files lie, as far as requests of them show.
pub(crate) fn files(recording: &Recording) -> Vec<FileUse> {
    let mut blocks: HashMap<&str, BlockSet> = HashMap::new();
    for request in &recording.requests {
        let file = request.of(recording).file.as_str();
        if !file.is_empty() {
            let run = BlockRange::new(Lba(request.first_block()), request.blocks());
            blocks.entry(file).or_default().insert(run, |_| {});
        }
    }
    let mut found: Vec<_> = blocks.into_iter().collect();
    found.sort_unstable_by_key(|(path, _)| *path);
    let file = |((path, blocks), inode): ((&str, BlockSet), u64)| {
        // Which page a block is of its file is not known.
        let runs = blocks.runs().map(|run| FileRun { page: run.start.0, blocks: run });
        FileUse { path: path.to_owned(), inode, runs: runs.collect() }
    };
    found.into_iter().zip(1..).map(file).collect()
}

#[cfg(test)]
mod tests {
    use hs_units::ByteRange;

    use super::*;
    use crate::model::{InputKind, RequestKind};

    fn recording(rows: &[(u64, u64, u64, u64, u32, bool)]) -> Recording {
        let of = |stage: &str, file: &str| StageFile { stage: stage.to_owned(), file: file.to_owned() };
        let request = |&(at, service, offset, len, stage_file, is_part)| Request {
            at: Nanos(at),
            queued: Nanos::ZERO,
            service: Nanos(service),
            bytes: ByteRange::new(offset, len),
            kind: RequestKind::Demand,
            process: 0,
            is_part,
            stage_file,
        };
        Recording {
            requests: rows.iter().map(request).collect(),
            stage_files: vec![of("", ""), of("loader", "/k"), of("loader", "/i"), of("init", "/i")],
            ..Recording::new("a", InputKind::Trace)
        }
    }

    #[test]
    fn totals_count_requests_once_and_time_once() {
        let recording = recording(&[
            (0, 1_000_000_000, 0, 2048, 1, false),
            (500_000_000, 1_000_000_000, 2048, 4096, 1, false),
            (2_000_000_000, 500_000_000, 8192, 2048, 1, false),
            (2_000_000_000, 500_000_000, 10_240, 2048, 2, true),
            (3_000_000_000, 0, 8192, 4096, 3, false),
        ]);
        let stages: Vec<_> = by_stage(&recording)
            .into_iter()
            .map(|StageReads { stage, totals }| {
                (stage, totals.requests, totals.bytes, totals.unique_blocks, totals.busy_s)
            })
            .collect();
        let expected = [(known("loader"), 3, 10_240, 3, 2.0), (known("init"), 1, 4096, 1, 0.0)];
        assert_eq!(stages, expected);
        let files = by_file(&recording);
        assert_eq!(files.iter().map(|of| of.totals.requests).collect::<Vec<_>>(), [3, 1, 1]);
        assert_eq!((&files[1].file, files[1].totals.bytes_per_s), (&known("/i"), Some(4096.0)));
        assert_eq!((files[2].totals.first_s, files[2].totals.bytes_per_s), (3.0, None));
        let lies: Vec<_> =
            super::files(&recording).into_iter().map(|file| (file.path, file.runs.len())).collect();
        assert_eq!(lies, [("/i".to_owned(), 1), ("/k".to_owned(), 1)]);
    }
}
