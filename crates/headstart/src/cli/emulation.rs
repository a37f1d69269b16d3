//! An emulated medium, for every command that reads an image.

use clap::Args;
use hs_device::Medium;

use crate::medium::{Damage, MediumParser};

/// The medium that reads are timed as.
#[derive(Clone, Debug, Args)]
pub(crate) struct EmulationFlags {
    /// Emulate a medium: reads take as long as they would there. `none` adds nothing.
    ///
    /// `flat-<N>ms-<M>mbs[-serial]` has N milliseconds of latency and M megabytes per second; `serial` serves
    /// one request at a time. FILE.toml is a model that `headstart lab calibrate` wrote.
    #[arg(
        long = "emulate",
        alias = "medium",
        value_name = "MEDIUM",
        default_value = "none",
        value_parser = MediumParser,
        help_heading = "Emulation",
        hide_short_help = true
    )]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
}
