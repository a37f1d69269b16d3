//! Flags of `headstart accelerate`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Flags of `headstart accelerate`.
#[derive(Debug, Args)]
pub(crate) struct Accelerate {
    /// What to do.
    #[command(subcommand)]
    pub action: AccelerateAction,
    /// Print the result as JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// What is done for the starts of this system.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AccelerateAction {
    /// Record every boot of this system, and read ahead what the last ones used.
    ///
    /// The service headstart-accelerate is enabled. Where the system has an initramfs of initramfs-tools or
    /// dracut, it is made anew, so that the pages are asked for as early as the root is mounted.
    On {
        /// Leave the initramfs as it is: reading ahead begins when systemd starts services.
        #[arg(long)]
        no_initramfs: bool,
    },
    /// Stop that, also while it happens, and remove what was recorded.
    Off,
    /// Show whether it is on, what is recorded, how it lies on the disk, and what the last boot got.
    Status {
        /// Where the file system is mounted.
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
        /// The list of a start, instead of the one of boots.
        #[arg(long, value_name = "FILE")]
        list: Option<PathBuf>,
    },
    /// Record which pages a command's start reads from a mounted file system.
    ///
    /// The recording ends when the command does, or when it is idle for 10 seconds. A signal ends both: it is
    /// passed on to the command, and what was recorded until then is kept.
    ///
    /// What was recorded before is kept where it is still used. Pages that are in memory already are not seen
    /// again, and stay: after a restart, or `echo 3 >/proc/sys/vm/drop_caches`, everything is seen. A damaged
    /// list is made anew.
    Record {
        /// Where the file system is mounted.
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
        /// Keep the list in this file. Default: on the file system itself, with that of boots.
        #[arg(long, value_name = "FILE")]
        list: Option<PathBuf>,
        /// The command.
        #[arg(required = true, last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Lay the recorded blocks one behind the other on a mounted ext4, while it is in use.
    ///
    /// Contents and times of files do not change. It does nothing where nothing is gained. A signal ends it
    /// behind the run that is moving. docs/RELOCATE.md says what moves, and what it needs.
    Now(super::relocate::Relocate),
    /// Ask for the recorded pages now, and wait until they are in the page cache.
    Warm {
        /// Where the file system is mounted.
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
        /// The list that `record` was given.
        #[arg(long, value_name = "FILE")]
        list: Option<PathBuf>,
    },
}
