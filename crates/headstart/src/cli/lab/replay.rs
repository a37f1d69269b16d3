//! Flags of `headstart lab replay`.

use std::path::PathBuf;

use clap::Args;
use hs_device::Medium;

use crate::medium::MediumParser;

/// Flags of `headstart lab replay`.
#[derive(Debug, Args)]
pub(crate) struct LabReplay {
    /// A profile, an iolog of fio (version 2 or 3), or the text of blkparse; - for standard input.
    pub trace: PathBuf,
    /// The model on which it is replayed, in virtual time.
    #[arg(long, value_name = "M", value_parser = MediumParser, required_unless_present = "on", conflicts_with = "on")]
    pub medium: Option<Medium>,
    /// A file or a device on which it is replayed for real, around the page cache unless --cached. It is only read: writes are left out.
    #[arg(long, value_name = "PATH")]
    pub on: Option<PathBuf>,
    /// So many requests are under way all the time, whatever the times in the trace; else they are made when it says, where it does.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: Option<u32>,
    /// Make the reads of a recorded start as its program would: each after the program's own time before it, which stands still while
    /// earlier reads are under way. An answer that comes late puts off what is asked for next.
    #[arg(long, conflicts_with = "depth")]
    pub think_times: bool,
    /// Replay a recorded start only as far as the program was ready.
    #[arg(long)]
    pub until_ready: bool,
    /// Read through the page cache, as a guest reads its disk: what was pushed into it is found there.
    #[arg(long, requires = "on")]
    pub cached: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
