//! Flags of `headstart demo`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hs_device::Medium;

use crate::cli::MediumParser;

/// Which part of the demo is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Story {
    /// A program starts, from raw ext4, squashfs, headstart, and memory.
    Start,
    /// A Debian with systemd boots as a guest, from raw ext4, a cloop-like image, headstart, and memory.
    Boot,
    /// A Debian saved at its login prompt goes on under QEMU, from memory and from three media.
    Resume,
    /// The first two, one after the other.
    Both,
}

/// Flags of `headstart demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Which story to tell.
    #[arg(long, value_enum, value_name = "STORY", default_value = "both")]
    pub story: Story,
    /// Write the figures (demo.json), tables, profiles, and each run's summary and console (runs/) to this
    /// directory. docs/DEMO.md has the keys of demo.json.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Directory that keeps the roots and images for the next demo.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// The emulated medium from which the program starts.
    #[arg(long = "emulate", alias = "medium", value_name = "MEDIUM", default_value = "flat-10ms-25mbs", value_parser = MediumParser)]
    pub medium: Medium,
    /// The emulated medium from which the system boots.
    #[arg(long = "emulate-boot", alias = "boot-medium", value_name = "MEDIUM", default_value = "cd-24x-cav", value_parser = MediumParser)]
    pub boot_medium: Medium,
    /// Runs of each kind, in turns; tables show medians. Default: 3, or fewer where the first story would
    /// take more than 5 minutes or both more than 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub repeats: Option<u16>,
    /// Print demo.json instead of the tables.
    #[arg(long)]
    pub json: bool,
    /// Only make the Debian root that boots, unless it is kept, and print where it is.
    #[arg(long, hide = true)]
    pub boot_root: bool,
}
