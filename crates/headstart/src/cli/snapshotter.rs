//! Flags of `headstart snapshotter`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Flags of `headstart snapshotter`.
#[derive(Debug, Args)]
pub(crate) struct Snapshotter {
    /// What to do.
    #[command(subcommand)]
    pub action: SnapshotterAction,
    /// The folder of snapshots, and of the table of images.
    #[arg(long, global = true, value_name = "DIR", default_value_os_t = hs_snapshotter::server::usual_root().to_owned())]
    pub root: PathBuf,
}

/// What is done.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotterAction {
    /// Serve containerd until SIGINT or SIGTERM. Mounted images stay, and the next server finds them.
    Serve {
        /// The socket that containerd's configuration names.
        #[arg(long, value_name = "SOCKET", default_value = "/run/headstart/snapshotter.sock")]
        socket: PathBuf,
        /// The socket of containerd, which is asked once after a start to collect garbage: what it removed
        /// while no snapshotter answered would stay.
        #[arg(long, value_name = "SOCKET", default_value_os_t = hs_snapshotter::server::usual_containerd().to_owned())]
        containerd: PathBuf,
        /// Fetch only what is recorded or read. Without this flag the rest of each image comes into the disk
        /// cache behind its start, and containers then need no registry.
        #[arg(long)]
        on_demand: bool,
        /// Flags of `headstart mount` for each image, behind --: -- --disk-cache /var/cache/images
        #[arg(last = true, value_name = "MOUNT FLAGS")]
        flags: Vec<OsString>,
    },
    /// Mount IMAGE for the layers of a container's image.
    ///
    /// From then on a client that asks its snapshotter before it fetches layers fetches none: CRI, nerdctl,
    /// `ctr` of containerd 2. `ctr image pull` of containerd 1 fetches and unpacks all layers first.
    Add {
        /// The container's image: docker://NAME or oci://HOST/NAME:TAG. Only its manifest and its
        /// configuration are read.
        container: OsString,
        /// The headstart image that was built from it: a file or an address.
        image: OsString,
    },
    /// Forget what `add` was told of a container's image. Snapshots that there are stay.
    Remove {
        /// The container's image, as it was added.
        container: OsString,
    },
    /// Show what was added.
    List {
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}
