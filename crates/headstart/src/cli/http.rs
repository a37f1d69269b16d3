//! Flags of a server of images as files.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use hs_units::ByteSize;

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
    /// Send so many bytes of content a second at most, to everybody together: a little less than the link carries. Then each client who
    /// wants something has one share, however many connections he has.
    #[arg(long, value_name = "SIZE", requires = "http", value_parser = rate)]
    pub http_rate: Option<u64>,
    /// Send so many bytes of content a second to one address at most.
    #[arg(long, value_name = "SIZE", requires = "http", value_parser = rate)]
    pub client_rate: Option<u64>,
}

fn rate(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("nothing is ever sent at no bytes a second".to_owned()),
        Ok(ByteSize(rate)) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}
