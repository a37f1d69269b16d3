//! A flag of the servers of disks.

use clap::{Args, ValueEnum};
use hs_daemon::Fill;

/// Whether a server fills the cache on disk.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct BackgroundFillFlag {
    /// Download the whole remote image into the disk cache while no reader waits.
    ///
    /// `--fill=where-possible` is no error where the image is a file, or the cache is too small for it or
    /// switched off.
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always",
        overrides_with = "fill",
        hide_possible_values = true,
        help_heading = "Remote images"
    )]
    fill: Option<FillWhen>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FillWhen {
    /// Or the command fails.
    Always,
    /// As far as there is a cache with room for it.
    WherePossible,
}

impl BackgroundFillFlag {
    pub(crate) const fn fill(self) -> Fill {
        match self.fill {
            None => Fill::Never,
            Some(FillWhen::Always) => Fill::Always,
            Some(FillWhen::WherePossible) => Fill::WherePossible,
        }
    }
}
