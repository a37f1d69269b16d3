//! Flags of `headstart overlay`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Flags of `headstart overlay`.
#[derive(Debug, Args)]
pub(crate) struct Overlay {
    /// What to do.
    #[command(subcommand)]
    pub action: OverlayAction,
    /// Print the result as JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// What is done with the file of an overlay.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum OverlayAction {
    /// Show what files keep: of which disk, how much, and their snapshots.
    List {
        /// Files that --keep has made.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Compare each block with the sum that it was written with.
    ///
    /// The exit code is 1 when a block is damaged.
    Check {
        /// A file that --keep has made.
        file: PathBuf,
    },
    /// Write the file anew, without what is not needed any more.
    ///
    /// The new file takes the place of the old one when it is whole. The file must not be in use, and have no
    /// snapshots.
    Compact {
        /// A file that --keep has made.
        file: PathBuf,
    },
    /// Keep the disk as it is now, under a name.
    ///
    /// A snapshot costs nothing when it is taken, and keeps the blocks that are written over later. Where a
    /// server of yours uses the file, that takes it, and the disk is used meanwhile.
    Snapshot {
        /// A file that --keep has made.
        file: PathBuf,
        /// The name: 1 to 64 bytes.
        name: String,
    },
    /// Make the disk what it was when a snapshot was taken. What was written since is lost; the snapshot
    /// stays. The file must not be in use.
    Revert {
        /// A file that --keep has made.
        file: PathBuf,
        /// The name of the snapshot.
        name: String,
    },
    /// Delete a snapshot. The disk stays as it is, and may be in use.
    Delete {
        /// A file that --keep has made.
        file: PathBuf,
        /// The name of the snapshot.
        name: String,
    },
}
