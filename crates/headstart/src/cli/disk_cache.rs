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
    /// The folder; when not given /var/cache/headstart/remote for root, and headstart/remote in a user's cache folder.
    #[arg(long, value_name = "DIR", global = true)]
    pub disk_cache: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, global = true)]
    pub json: bool,
}

/// What is done to the cache on disk.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DiskCacheAction {
    /// Say what it holds.
    Show,
    /// Remove everything from it.
    Clear,
    /// Bound it: what was used least recently goes until it fits.
    Limit {
        /// The most that it may take on disk.
        size: ByteSize,
    },
    /// Fetch what is not there of an image that lies elsewhere, one request at a time, and only while no server of this
    /// machine reads from its medium. SIGINT ends it; what has come stays.
    Fill {
        /// The image: an address, as other commands take it.
        address: String,
        /// Do not heed what the servers of this machine do.
        #[arg(long)]
        now: bool,
    },
}
