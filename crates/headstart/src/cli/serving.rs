//! Flags of the commands that serve until they are told to end.

use clap::Args;

/// Who starts a server again, and who may watch it.
#[derive(Clone, Debug, Args)]
pub(crate) struct Serving {
    /// Serve in this very process, with no supervisor: whoever kills it breaks what it serves.
    #[arg(long)]
    pub unsupervised: bool,
    /// Answer HTTP requests for /metrics here, in Prometheus' text format: HOST:PORT, 0 for any port that is free, or
    /// unix:PATH, a socket to which only its owner may connect.
    #[arg(long, value_name = "ADDRESS")]
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
