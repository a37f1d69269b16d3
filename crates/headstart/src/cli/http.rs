//! Flags of a server of images as files.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// How images are served as files.
#[derive(Clone, Debug, Args)]
pub(crate) struct HttpFlags {
    /// Serve the images, as files, over HTTP here: HOST:PORT, 0 for any port that is free. It can be given several times.
    #[arg(long, value_name = "HOST:PORT")]
    pub http: Vec<String>,
    /// Also serve this small file over HTTP, as it is now, such as a channel: FILE, or NAME=FILE.
    #[arg(long, value_name = "[NAME=]FILE", requires = "http")]
    pub channel: Vec<OsString>,
    /// Append a line for each answer over HTTP to FILE, in the Common Log Format and with the range that was asked for.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub access_log: Option<PathBuf>,
}
