//! Flags of the commands that serve until they are told to end.

use clap::Args;

/// Supervision and metrics of a server.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Supervision")]
pub(crate) struct Serving {
    /// Run without a supervisor. If the process dies, its mounts and connections fail.
    #[arg(long)]
    pub unsupervised: bool,
    /// Serve Prometheus metrics over HTTP at this address, path /metrics. Port 0 takes any free port.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
    /// The socket to the supervisor, for the server that it starts.
    #[arg(long, hide = true)]
    pub supervisor_fd: Option<i32>,
}

impl Serving {
    /// Whether this process is to be the supervisor.
    pub(crate) fn starts_supervisor(&self) -> bool {
        !self.unsupervised && self.supervisor_fd.is_none()
    }
}
