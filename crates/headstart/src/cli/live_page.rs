//! The flag of servers that show a live page.

use clap::Args;

/// The flag of servers that show a live page.
#[derive(Clone, Debug, Args)]
pub(crate) struct LivePageFlag {
    /// Show the image map and rates as they happen in a page at PORT of this machine, or at HOST:PORT. Its
    /// address, with a secret in it, is printed when the server is ready. Port 0 takes any free port.
    #[arg(long, value_name = "[HOST:]PORT", help_heading = "Supervision")]
    pub ui: Option<String>,
}
