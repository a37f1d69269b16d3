//! Flags of the commands that serve until they are told to end.

use clap::Args;
use hs_daemon::ServerOptions;

use super::plain::{Plain, same_names};

/// Supervision and metrics of a server.
pub(crate) type Serving = Plain<ServingFlags, ServerOptions>;

/// Supervision and metrics of a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServingFlags {
    /// Run without a supervisor. If the process dies, its mounts and connections fail.
    #[arg(long, help_heading = "Supervision")]
    pub unsupervised: bool,
    /// Serve Prometheus metrics over HTTP, path /metrics, at HOST:PORT (port 0 takes any free port) or
    /// unix:PATH, a socket that only its owner can use.
    #[arg(long, value_name = "ADDRESS", help_heading = "Supervision")]
    pub metrics: Option<String>,
    /// The socket to the supervisor, for the server that it starts.
    #[arg(long, hide = true, help_heading = "Supervision")]
    pub supervisor_fd: Option<i32>,
    /// The socket to a process that keeps what the supervisor keeps, for that one: a snapshotter's.
    #[arg(long, hide = true, help_heading = "Supervision")]
    pub keeper_fd: Option<i32>,
    /// The pipe with what opens the image, for the first server: a snapshotter's.
    #[arg(long, hide = true, help_heading = "Supervision")]
    pub opening_fd: Option<i32>,
}

same_names!(ServingFlags => ServerOptions { unsupervised, metrics, supervisor_fd, keeper_fd, opening_fd });
