//! What the page shows: one JSON object. TypeScript types are made from it (`report-ui/src/model.ts`).
//!
//! Anything that grows with the number of requests, files or runs is a [`Column`] or a [`Texts`]. Times are
//! seconds since the first moment of an input, places are block numbers.

use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

use crate::column::{Column, Texts};

/// The version of this model, which the page checks.
pub const VERSION: u32 = 4;

/// Everything that the page shows.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The program that wrote it, with its version.
    pub generator: String,
    /// Disks that inputs are of. Inputs of the same disk share one.
    pub disks: Vec<Disk>,
    /// Starts and other recordings, in the order of the command line.
    pub inputs: Vec<Input>,
    /// What the starts among the inputs, or those of a demo, say together.
    pub stories: Vec<Story>,
    /// Experiments of the laboratory.
    pub experiments: Vec<Experiment>,
}

/// Starts of one thing from several places: the result with which the page opens.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Story {
    /// What starts, as the beginning of a sentence that ends with a time.
    pub title: String,
    /// What exactly, from what, how often, and on which machine.
    pub about: String,
    /// The starts, in the order in which they are shown.
    pub bars: Vec<Bar>,
    /// The number of the start that is compared with the other.
    pub after: u32,
    /// And of that other one.
    pub before: u32,
    /// The time of the first by the limit.
    pub to_limit: Option<f64>,
}

/// A start of a story.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Bar {
    /// What serves it.
    pub label: String,
    /// When it was ready; of several runs the median.
    pub seconds: f64,
    /// What no start from there can be quicker than.
    pub limit_s: Option<f64>,
    /// Whether headstart serves it.
    pub is_ours: bool,
    /// The number of its input, where there is one.
    pub input: Option<u32>,
}

/// A disk, with what an image among the inputs, or a profile, says of it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Disk {
    /// The image's file name; the first input's where there is no image.
    pub name: String,
    /// Its blocks, of 4096 bytes each.
    pub blocks: u32,
    /// Blocks of a cold chunk (a window); `null` without an image.
    pub window_blocks: Option<u32>,
    /// The hot region; `null` without an image.
    pub hot: Option<HotRegion>,
    /// Runs of blocks that are stored nowhere, because they are zero; `null` without an image.
    pub zero: Option<Runs>,
    /// Files on it; `null` where none are known.
    pub files: Option<Files>,
}

/// Runs of blocks, in parallel columns.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Runs {
    /// `u32`: the first block.
    pub first: Column,
    /// `u32`: how many blocks.
    pub count: Column,
}

/// The hot region, in the order in which it is stored.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct HotRegion {
    /// Its runs, in the order of the file.
    pub runs: Runs,
    /// `u32`: the hot chunk that has the run.
    pub chunk: Column,
    /// `f32`, one for each chunk: when the recorded start needed it, without its waits; zeros where that is
    /// not known.
    pub needed_s: Column,
}

/// Files of a disk and where they lie.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Files {
    /// The paths.
    pub paths: Texts,
    /// Their runs, by first block. Runs do not overlap.
    pub runs: Runs,
    /// `u32`, one for each run: the number of the path.
    pub path: Column,
}

/// What an input is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(TS))]
pub enum InputKind {
    /// A profile: the demand reads of one start.
    Profile,
    /// A run summary.
    Summary,
    /// Requests to a device, or those of a served disk.
    Trace,
    /// An image that no other input is of.
    Image,
}

/// One input.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Input {
    /// Its file name; not unique.
    pub name: String,
    /// What it is.
    pub kind: InputKind,
    /// The command that was started.
    pub command: Option<String>,
    /// The medium.
    pub medium: Option<String>,
    /// Its number in `disks`; `null` for a summary.
    pub disk: Option<u32>,
    /// When the start was ready.
    pub ready_s: Option<f64>,
    /// When the recording or the run ended.
    pub ended_s: Option<f64>,
    /// Its requests; `null` for a summary and an image.
    pub requests: Option<Requests>,
    /// Parts of the time, in order, where the input says them.
    pub stages: Vec<Stage>,
    /// What each stage read of each file; `null` where requests have no stages.
    pub stage_files: Option<StageFiles>,
    /// Processes that ran meanwhile, where the input says them.
    pub lives: Vec<Life>,
    /// The time that they had a processor, all together, where the input says that.
    pub cpu: Vec<CpuUse>,
    /// Figures of a run summary, by their keys; `null` without.
    #[cfg_attr(test, ts(type = "Record<string, number | string | boolean | null> | null"))]
    pub summary: Option<serde_json::Map<String, serde_json::Value>>,
    /// What a reader should know: what was left out, and why.
    pub notes: Vec<String>,
}

/// A part of the time of a start.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Stage {
    /// What happened in it.
    pub name: String,
    /// When it began.
    pub from_s: f64,
    /// When it ended.
    pub to_s: f64,
}

/// What each stage of a start read of each file, in the order of their first requests, in parallel columns.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct StageFiles {
    /// The stages; empty where a request has none.
    pub stages: Texts,
    /// The paths; empty for what lies in no file.
    pub files: Texts,
    /// `f64`: when the first request came.
    pub first_s: Column,
    /// `f64`: when the last one came.
    pub last_s: Column,
    /// `f64`: how many there were.
    pub requests: Column,
    /// `f64`: their bytes.
    pub bytes: Column,
    /// `f64`: blocks, each once.
    pub unique_blocks: Column,
    /// `f64`: the time in which at least one of them was served.
    pub busy_s: Column,
}

/// A process that ran meanwhile.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Life {
    /// The process.
    pub process: Process,
    /// The number of its parent, where that is known.
    pub parent: Option<u32>,
    /// When it was first seen.
    pub from_s: f64,
    /// When it was last seen.
    pub to_s: f64,
    /// How long it had a processor; `null` when that is not known.
    pub cpu_s: Option<f64>,
}

/// The use of processors in a part of the time.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct CpuUse {
    /// When the part began.
    pub from_s: f64,
    /// When it ended.
    pub to_s: f64,
    /// The time that processes had a processor in it: more than its length on several.
    pub cpu_s: f64,
}

/// Requests by their arrival, in parallel columns.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Requests {
    /// `f64`: when it arrived. Ascending.
    pub at_s: Column,
    /// `u32`: the first block.
    pub block: Column,
    /// `u32`: how many blocks, at least one.
    pub blocks: Column,
    /// `f32`: how long it waited in a queue.
    pub wait_s: Column,
    /// `f32`: how long it was served after that.
    pub service_s: Column,
    /// `u8`: its number in `kinds`.
    pub kind: Column,
    /// What requests are of.
    pub kinds: Vec<RequestKind>,
    /// `u8`: 1 for a further part of a request that is there already, with the same times; else 0.
    pub part: Column,
    /// `u32`: its number in `processes`.
    pub process: Column,
    /// Processes, clients or threads that made them; one without a name where that is not known.
    pub processes: Vec<Process>,
}

/// What a request is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(TS))]
pub enum RequestKind {
    /// A read that a program waits for.
    Demand,
    /// A read ahead of demand.
    Prefetch,
    /// A read of the rest, behind demand.
    Background,
    /// A write.
    Write,
    /// A read that fills a page cache with what is to come: no program waits for it.
    Warm,
}

/// Who makes requests.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Process {
    /// Its name.
    pub name: String,
    /// Its number, where it has one.
    pub pid: Option<u32>,
}

/// An experiment, with each of its figures.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Experiment {
    /// The name.
    pub name: String,
    /// What is set, in words.
    pub parameters: String,
    /// How much of the engine takes part, in words.
    pub engine: String,
    /// Its figures.
    pub figures: Vec<Figure>,
}

/// A figure of an experiment beside what was published.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Ours.
    pub value: f64,
    /// Ours with the mechanism switched off.
    pub off: Option<f64>,
    /// What was published, in words.
    pub published: Option<String>,
    /// Where.
    pub source: Option<String>,
    /// Ours by the published one.
    pub ratio: Option<f64>,
    /// The verdict's name in the laboratory.
    pub kind: Option<String>,
    /// Whether it agrees with what was published, and reaches its goal.
    pub verdict: FigureVerdict,
    /// The goal, in words.
    pub target: Option<String>,
    /// Why it is missed, or what was chosen.
    pub note: Option<String>,
}

/// Whether a figure agrees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(TS))]
pub enum FigureVerdict {
    /// With what was published, or with its goal.
    Pass,
    /// It does not.
    Miss,
    /// There is nothing to agree with.
    Note,
}
