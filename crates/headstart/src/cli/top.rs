//! Flags of `headstart top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Flags of `headstart top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Only this image, or the one at this directory.
    #[arg(value_name = "DIR|IMAGE")]
    pub of: Option<PathBuf>,
    /// Seconds between two updates.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub interval: Duration,
    /// End after N updates. Default: at Ctrl-C.
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,
    /// Print each update as one line of JSON.
    #[arg(long)]
    pub json: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = super::seconds::parse(text)?;
    if interval < Duration::from_millis(100) {
        return Err("a tenth of a second is the least".to_owned());
    }
    Ok(interval)
}
