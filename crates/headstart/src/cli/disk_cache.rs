//! Flags of `headstart cache`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hs_units::ByteSize;

/// Flags of `headstart cache`.
#[derive(Debug, Args)]
pub(crate) struct DiskCache {
    /// What to do; `show` when not given.
    #[command(subcommand)]
    pub action: Option<DiskCacheAction>,
    /// Directory of the cache. Default: /var/cache/headstart/remote for root, headstart/remote in a user's
    /// cache directory.
    #[arg(long, value_name = "DIR", global = true)]
    pub disk_cache: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// What is done to the cache on disk.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DiskCacheAction {
    /// Show how much is cached.
    Show,
    /// Delete all cached data.
    Clear,
    /// Limit the size. The least recently used data is deleted until the rest fits.
    Limit {
        /// The largest size on disk.
        size: ByteSize,
    },
    /// Download a remote image into the cache.
    ///
    /// One request at a time, and only while no headstart server on this machine waits for storage. Ctrl-C
    /// ends it; what was downloaded stays.
    Fill {
        /// Address of the image.
        address: String,
        /// Do not wait for other headstart servers of this machine.
        #[arg(long)]
        now: bool,
    },
}
