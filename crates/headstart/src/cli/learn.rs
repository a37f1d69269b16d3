//! Flags of the commands that start something: a start learns of the one before.

use std::path::PathBuf;

use clap::Args;
use hs_start::learned::LearnedFolder;

/// Whether and where starts keep what they read.
#[derive(Clone, Debug, Args)]
pub(crate) struct LearnFlags {
    /// Record this start, and prefetch what the last one with --learn has read.
    ///
    /// The next start of the same command from the same image then is a profiled one, although its image is
    /// not optimized: what the last one read comes before it is asked for, in its order. Each start that ends
    /// well replaces what the last one kept. Nothing is written into the image. `headstart optimize
    /// --profile` takes what is kept as a profile.
    #[arg(long, help_heading = "Prefetch and cache")]
    pub learn: bool,
    /// Folder of what --learn keeps. Default: /var/cache/headstart/learned for root, headstart/learned in a
    /// user's cache directory.
    #[arg(
        long,
        value_name = "DIR",
        requires = "learn",
        hide_short_help = true,
        help_heading = "Prefetch and cache"
    )]
    pub learned: Option<PathBuf>,
}

impl LearnFlags {
    /// The folder of what is kept.
    ///
    /// # Errors
    /// When this user has none.
    pub(crate) fn folder(&self) -> anyhow::Result<LearnedFolder> {
        LearnedFolder::of(self.learned.as_deref())
    }
}
