//! How prefetch behaves.

use clap::{Args, ValueEnum};
use hs_engine::PrefetchRate;
use hs_units::ByteSize;

/// Where prefetched blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrefetchMode {
    /// Nothing is prefetched.
    Off,
    /// Into the caches of the mounted file system, page by page as recorded.
    Warm,
    /// They wait in this process's memory until the kernel asks for them.
    Hold,
    /// Into the page cache of disk.img.
    Push,
}

/// What a reader does who needs a hot block that has not come yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LateMode {
    /// What costs less: the time until the stream comes to it, or a seek there and back.
    ByCost,
    /// Always wait for the stream.
    Join,
    /// Always fetch it out of turn.
    Fetch,
}

/// A mechanism at work, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// At work.
    On,
    /// Switched off.
    Off,
}

/// Limits and rules of the prefetch.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PrefetchLimits {
    /// Memory for prefetched blocks that wait for their readers.
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub budget: ByteSize,
    /// What a reader does who needs a hot block that has not come yet; for experiments.
    #[arg(long, value_enum, value_name = "HOW", default_value = "by-cost", hide_short_help = true)]
    pub late: LateMode,
    /// Keep a block of some prefetched chunks from the kernel's page cache, so that their use is seen and prefetch stands back where there
    /// is none.
    #[arg(long, value_enum, value_name = "on|off", default_value = "on", hide_short_help = true)]
    pub markers: Switch,
    /// How fast: full, auto (so that everything comes a second before the recorded start needs it, and others have the
    /// rest), or so many bytes a second.
    #[arg(long, value_name = "full|auto|SIZE", default_value = "full", value_parser = super::prefetch_rate::parse, hide_short_help = true)]
    pub prefetch_rate: PrefetchRate,
}

/// How prefetch behaves.
#[derive(Clone, Debug, Args)]
pub(crate) struct PrefetchFlags {
    /// Where prefetched blocks go.
    #[arg(long, value_enum, value_name = "WHERE")]
    pub prefetch: Option<PrefetchMode>,
    #[command(flatten)]
    pub limits: PrefetchLimits,
}
