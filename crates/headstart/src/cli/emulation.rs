//! An emulated medium, for every command that reads an image.

use std::ffi::OsStr;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use hs_device::Medium;
use hs_start::bad_sectors::BadSectors;
use hs_start::medium::{Damage, named};

use super::plain::Plain;

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
    pub damage: Plain<DamageFlags, Damage>,
}

/// Planted faults of a medium.
#[derive(Clone, Debug, Args)]
pub(crate) struct DamageFlags {
    /// Emulate unreadable bytes, such as 10M+64K. With xTIMES, reads fail that many times first. Repeatable.
    #[arg(long, help_heading = "Emulation", hide_short_help = true, value_name = "OFFSET+LEN[xTIMES]")]
    pub bad_sectors: Vec<BadSectors>,
}

impl From<DamageFlags> for Damage {
    fn from(flags: DamageFlags) -> Self {
        Self { bad_sectors: flags.bad_sectors }
    }
}

/// Parses any name of a medium, or a model file; help texts and shells list the media with a fixed name.
#[derive(Clone)]
pub(crate) struct MediumParser;

impl TypedValueParser for MediumParser {
    type Value = Medium;

    fn parse_ref(
        &self,
        cmd: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Medium, clap::Error> {
        let parse = |text: &str| named(text).map_err(|error| format!("{error:#}"));
        TypedValueParser::parse_ref(&parse, cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Medium::names().map(PossibleValue::new)))
    }
}
