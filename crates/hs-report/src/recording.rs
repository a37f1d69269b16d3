//! What the inputs become, and every format is written from.

use hs_trace::{FileMap, FileUse};
use hs_units::{BLOCK_BYTES, ByteRange, Digest, Nanos};
use serde_json::{Map, Value};

use crate::model::{CpuUse, InputKind, Life, Process, RequestKind, Stage};

/// Requests of one input: as many as a profile may have.
pub(crate) const MOST_REQUESTS: usize = hs_trace::limits::MAX_READS as usize;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// When it arrived, since the first moment of its input.
    pub(crate) at: Nanos,
    pub(crate) queued: Nanos,
    pub(crate) service: Nanos,
    /// Of the disk; not empty.
    pub(crate) bytes: ByteRange,
    pub(crate) kind: RequestKind,
    /// Its number in [`Recording::processes`].
    pub(crate) process: u32,
    /// Whether it is a further part of a request that is there already, with the same times.
    pub(crate) is_part: bool,
    /// Its number in [`Recording::stage_files`].
    pub(crate) stage_file: u32,
}

/// A stage of a start and a file: what requests are of. Each is empty where it is not known.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct StageFile {
    pub(crate) stage: String,
    pub(crate) file: String,
}

impl Request {
    /// What it is of, in its recording.
    pub(crate) fn of<'a>(&self, recording: &'a Recording) -> &'a StageFile {
        &recording.stage_files[self.stage_file as usize]
    }

    pub(crate) const fn first_block(&self) -> u64 {
        self.bytes.offset / BLOCK_BYTES
    }

    pub(crate) const fn blocks(&self) -> u64 {
        self.bytes.end().div_ceil(BLOCK_BYTES) - self.first_block()
    }

    pub(crate) fn ended(&self) -> Nanos {
        self.at + self.queued + self.service
    }
}

/// One input that is no image and no result of the laboratory.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) kind: InputKind,
    pub(crate) command: Option<String>,
    pub(crate) medium: Option<String>,
    pub(crate) disk_digest: Option<Digest>,
    /// Size of the disk; where that is not known, the end of the last request.
    pub(crate) disk_bytes: u64,
    pub(crate) ready_s: Option<f64>,
    pub(crate) ended_s: Option<f64>,
    /// By arrival.
    pub(crate) requests: Vec<Request>,
    pub(crate) processes: Vec<Process>,
    pub(crate) files: Vec<FileUse>,
    /// What requests are of; the first is neither of a stage nor of a file.
    pub(crate) stage_files: Vec<StageFile>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) lives: Vec<Life>,
    pub(crate) cpu: Vec<CpuUse>,
    pub(crate) summary: Option<Map<String, Value>>,
    /// The numbers of the story and of the bar in it that this is.
    pub(crate) bar: Option<(usize, usize)>,
    /// The profile that the guest recorded of itself meanwhile.
    pub(crate) own_profile: Option<OwnProfile>,
    pub(crate) notes: Vec<String>,
}

/// A profile whose times count from some moment of another recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnProfile {
    pub(crate) disk_digest: Digest,
    /// Its length, which tells it from others of this disk.
    pub(crate) ended_s: f64,
    pub(crate) from_s: f64,
}

impl Recording {
    pub(crate) fn new(name: &str, kind: InputKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            command: None,
            medium: None,
            disk_digest: None,
            disk_bytes: 0,
            ready_s: None,
            ended_s: None,
            requests: Vec::new(),
            processes: Vec::new(),
            files: Vec::new(),
            stage_files: vec![StageFile::default()],
            stages: Vec::new(),
            lives: Vec::new(),
            cpu: Vec::new(),
            summary: None,
            bar: None,
            own_profile: None,
            notes: Vec::new(),
        }
    }

    /// Where its files lie, for requests that do not say themselves what they are of.
    pub(crate) fn file_map(&self) -> FileMap<'_> {
        match self.stage_files.iter().all(|of| of.file.is_empty()) {
            true => FileMap::new(&self.files),
            false => FileMap::default(),
        }
    }

    /// Whether this is the summary of the start that `trace` is of: both were ready at the same nanosecond.
    pub(crate) fn is_summary_of(&self, trace: &Self) -> bool {
        let differ_s = self.ready_s.zip(trace.ready_s).map(|(a, b)| (a - b).abs());
        let are_both = self.kind == InputKind::Summary && trace.kind == InputKind::Trace;
        are_both
            && trace.summary.is_none()
            && self.medium == trace.medium
            && differ_s.is_some_and(|seconds| seconds < 1e-9)
    }

    /// Takes the figures of its summary, and its name in a story.
    pub(crate) fn take_figures(&mut self, summary: Self) {
        if summary.bar.is_some() {
            (self.name, self.bar) = (summary.name, summary.bar);
        }
        self.summary = summary.summary;
    }

    /// Begins later, by so much, on the time axis of another recording.
    pub(crate) fn begin_at(&mut self, from_s: f64, of: &str) {
        for request in &mut self.requests {
            request.at += Nanos::from_secs_f64(from_s);
        }
        for time in [&mut self.ready_s, &mut self.ended_s].into_iter().flatten() {
            *time += from_s;
        }
        self.notes.push(format!("It was recorded in the start of {of}, and times count from there."));
    }

    /// Sorts the requests of a trace by arrival, and notes what follows from them. Time begins with the
    /// first, unless it is that of a start.
    pub(crate) fn settle(&mut self, keeps_time: bool) {
        self.requests.sort_by_key(|request| request.at);
        let first = self.requests.first().filter(|_| !keeps_time);
        let began = first.map_or(Nanos::ZERO, |request| request.at);
        for request in &mut self.requests {
            request.at = request.at.saturating_sub(began);
        }
        let began_s = began.as_secs_f64();
        let shift = |from: &mut f64, to: &mut f64| {
            (*from, *to) = ((*from - began_s).max(0.0), (*to - began_s).max(0.0));
        };
        self.stages.iter_mut().for_each(|stage| shift(&mut stage.from_s, &mut stage.to_s));
        self.lives.iter_mut().for_each(|life| shift(&mut life.from_s, &mut life.to_s));
        self.cpu.iter_mut().for_each(|used| shift(&mut used.from_s, &mut used.to_s));
        let last = self.requests.iter().map(Request::ended).max();
        self.ended_s = self.ended_s.or_else(|| last.map(Nanos::as_secs_f64));
        let end = self.requests.iter().map(|request| request.bytes.end()).max();
        self.disk_bytes = self.disk_bytes.max(end.unwrap_or_default());
    }
}
