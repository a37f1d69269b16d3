//! Flags of `headstart lab replay`.

use std::path::PathBuf;

use clap::Args;
use hs_device::Medium;
use hs_lab_real::replay::Replaying;

use crate::cli::MediumParser;
use crate::cli::plain::{Plain, same_names};

/// Flags of `headstart lab replay`, as the laboratory knows them.
pub(crate) type LabReplay = Plain<ReplayFlags, Replaying>;

/// Flags of `headstart lab replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayFlags {
    /// A profile, a fio iolog (version 2 or 3), or blkparse text. `-` is standard input.
    pub trace: PathBuf,
    /// Replay on this model, in virtual time.
    #[arg(long = "emulate", alias = "medium", value_name = "MEDIUM", value_parser = MediumParser, required_unless_present = "on", conflicts_with = "on")]
    pub medium: Option<Medium>,
    /// Replay on this file or device, with direct I/O unless --cached. Writes are skipped.
    #[arg(long, value_name = "PATH")]
    pub on: Option<PathBuf>,
    /// Keep N requests in flight and ignore the times in the trace. Default: follow the trace's times.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: Option<u32>,
    /// Issue the reads of a profile as the program would: each after its think time, which stops while
    /// earlier reads are in flight. A late answer delays the next read.
    #[arg(long, conflicts_with = "depth")]
    pub think_times: bool,
    /// Replay a profile only until the program was ready.
    #[arg(long)]
    pub until_ready: bool,
    /// Read through the page cache, as a guest reads its disk.
    #[arg(long, requires = "on")]
    pub cached: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

same_names!(ReplayFlags => Replaying { trace, medium, on, depth, think_times, until_ready, cached, json });
