//! How prefetch behaves.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use hs_engine::{LateRule, PrefetchRate};
use hs_start::start::{self, PrefetchMode};
use hs_units::ByteSize;

use super::plain::Plain;

/// Limits and rules of the prefetch.
pub(crate) type PrefetchLimits = Plain<LimitFlags, start::PrefetchLimits>;

/// The modes, with their help.
fn mode_parser() -> impl TypedValueParser<Value = PrefetchMode> {
    let modes = [
        (PrefetchMode::Off, "Nowhere: blocks are fetched when they are read"),
        (PrefetchMode::Warm, "Into the page cache of the mounted file system, in the recorded order"),
        (PrefetchMode::Hold, "Into this process's memory, until the kernel asks for it"),
        (PrefetchMode::Push, "Into the page cache of disk.img"),
    ];
    let values = modes.map(|(mode, help)| PossibleValue::new(mode.name()).help(help));
    PossibleValuesParser::new(values).map(move |name| {
        let found = modes.iter().find(|(mode, _)| mode.name() == name);
        found.expect("the parser lets only known names through").0
    })
}

/// How a read of a hot block is served that has not arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LateMode {
    /// By what costs less: waiting for the stream, or a seek there and back.
    ByCost,
    /// Always wait for the stream.
    Join,
    /// Always fetch it with a request of its own.
    Fetch,
}

/// A mechanism that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// Limits and rules of the prefetch.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LimitFlags {
    /// Memory for prefetched blocks that no reader has taken yet.
    ///
    /// The rest of a remote image, which comes behind the reads, waits in it as well.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256M",
        hide_short_help = true,
        help_heading = "Prefetch and cache"
    )]
    pub budget: ByteSize,
    /// Whether the rest of a remote image comes behind the reads, where requests are slow and bytes cheap.
    ///
    /// It begins when the hot region has come and a read misses, or at once without a profile. On a fast link
    /// it may bring the whole image. It stops when what it brings is not read, or a minute after the last
    /// read. Off, only what is read or recorded is transferred, as on a connection that is paid by the byte.
    #[arg(
        long,
        value_enum,
        value_name = "on|off",
        default_value = "on",
        hide_short_help = true,
        help_heading = "Prefetch and cache"
    )]
    pub background: Switch,
    /// How a read of a hot block is served that has not arrived yet. For experiments.
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value = "by-cost",
        hide = true,
        help_heading = "Prefetch and cache"
    )]
    pub late: LateMode,
    /// Keep one block of some prefetched chunks out of the page cache, so that their use is observed. For
    /// experiments.
    #[arg(
        long,
        value_enum,
        value_name = "on|off",
        default_value = "on",
        hide = true,
        help_heading = "Prefetch and cache"
    )]
    pub markers: Switch,
    /// Rate of the prefetch: full, auto (each block a second before the recorded start needs it), or bytes
    /// per second.
    #[arg(long, value_name = "full|auto|SIZE", default_value = "full", value_parser = super::prefetch_rate::parse, hide = true, help_heading = "Prefetch and cache")]
    pub prefetch_rate: PrefetchRate,
}

impl From<LimitFlags> for start::PrefetchLimits {
    fn from(flags: LimitFlags) -> Self {
        let late = match flags.late {
            LateMode::ByCost => LateRule::ByCost,
            LateMode::Join => LateRule::Join,
            LateMode::Fetch => LateRule::Fetch,
        };
        let tripwires = flags.markers == Switch::On;
        let background = flags.background == Switch::On;
        Self { budget: flags.budget, background, late, tripwires, rate: flags.prefetch_rate }
    }
}

/// How prefetch behaves.
#[derive(Clone, Debug, Args)]
pub(crate) struct PrefetchFlags {
    /// Where prefetched blocks go. Default: the page cache of the mounted file system, else of disk.img.
    #[arg(long, value_parser = mode_parser(), value_name = "WHERE", help_heading = "Prefetch and cache")]
    pub prefetch: Option<PrefetchMode>,
    #[command(flatten)]
    pub limits: PrefetchLimits,
}
