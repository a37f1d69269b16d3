//! Experiments with the engine under a virtual clock.
//!
//! [`simulate`] puts the engine's own [`Queue`](hs_engine::queue::Queue) before the model of a medium, and
//! programs make requests to it. Nothing here sleeps, reads a clock or is random beyond a seed, so every
//! figure is reproduced to the last digit. The [`EXPERIMENTS`] say what they show;
//! bench/results/experiments.md says why, and where their parameters come from.

#![forbid(unsafe_code)]

pub mod calibration;
mod csv;
mod experiments;
pub mod harness;
mod histogram;
pub mod markdown;
mod models;
mod network;
mod overlay_disk;
pub mod predict;
mod published;
mod replay;
mod report;
mod served;
mod simulation;
mod statistics;
mod streams;
mod writers;

pub use experiments::{EXPERIMENTS, Experiment};
pub use histogram::Histogram;
pub use models::Model;
pub use overlay_disk::{OverlayConfig, OverlayCounts, OverlayIo, OverlayWorkload, simulate_overlay};
pub use published::{Basis, Claim, Published, Verdict};
pub use replay::{Pace, Replay, ReplayOutcome, Replayed};
pub use report::{Cell, Figure, Report, Target};
pub use served::{
    FETCHERS, HotChunk, ImageLayout, LayoutMap, Processors, SERVED, ServedEvent, ServedImage,
    SharedProcessors, simulate_served,
};
pub use simulation::{Answer, Io, Run, Sent, Station, Workload, simulate};
pub use statistics::Latencies;
pub use streams::{Pattern, Stream, Streams};
pub use writers::{Writer, Writers, Written};
