//! Flags of a server of images as files.

use std::ffi::OsString;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use clap::Args;
use hs_units::ByteSize;

/// How images are served as files.
#[derive(Clone, Debug, Args)]
pub(crate) struct HttpFlags {
    /// Serve the images as files over HTTP at this address. Port 0 takes any free port. Repeatable.
    #[arg(long, value_name = "HOST:PORT", value_parser = address, help_heading = "Listen (at least one)")]
    pub http: Vec<String>,
    /// Also serve a small file, such as a channel's signature, as it is when the server starts. Repeatable.
    #[arg(
        long,
        value_name = "[NAME=]FILE",
        requires = "http",
        hide_short_help = true,
        help_heading = "HTTP server"
    )]
    pub channel: Vec<OsString>,
    /// Append a line per response to FILE, in the Common Log Format with the requested range.
    #[arg(
        long,
        value_name = "FILE",
        requires = "http",
        hide_short_help = true,
        help_heading = "HTTP server"
    )]
    pub access_log: Option<PathBuf>,
    /// Limit of bytes per second to all clients together. Set it a little below the link's rate: clients then
    /// get equal shares, however many connections each has.
    #[arg(long, value_name = "SIZE", requires = "http", value_parser = rate, hide_short_help = true, help_heading = "HTTP server")]
    pub http_rate: Option<u64>,
    /// Limit of bytes per second to one client address.
    #[arg(long, value_name = "SIZE", requires = "http", value_parser = rate, hide_short_help = true, help_heading = "HTTP server")]
    pub client_rate: Option<u64>,
}

fn address(text: &str) -> Result<String, String> {
    let is_host = |host: &str| {
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        in_brackets.map_or(!host.is_empty() && !host.contains(':'), |host| host.parse::<Ipv6Addr>().is_ok())
    };
    let parts = text.rsplit_once(':').filter(|(host, port)| is_host(host) && port.parse::<u16>().is_ok());
    let wrong = || format!("'{text}' is no address: use HOST:PORT (an IPv6 address in brackets)");
    parts.map(|_| text.to_owned()).ok_or_else(wrong)
}

fn rate(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("nothing is ever sent at no bytes a second".to_owned()),
        Ok(ByteSize(rate)) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}
