//! Flags of the cache, for every command that serves an image.

use clap::Args;
use hs_start::cache::{CacheChoice, CacheSize};

use super::plain::Plain;

/// The cache of a served image.
pub(crate) type CacheFlags = Plain<CacheValues, CacheChoice>;

/// The cache of a served image.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CacheValues {
    /// Memory for the chunk cache. `auto` grows into free memory and gives it back. Default: auto for
    /// `serve`; at most 192M elsewhere, and less where memory is short.
    #[arg(long, value_name = "SIZE|auto", value_parser = parse_size, hide_short_help = true, help_heading = "Prefetch and cache")]
    pub cache: Option<CacheSize>,
}

impl From<CacheValues> for CacheChoice {
    fn from(flags: CacheValues) -> Self {
        Self { size: flags.cache }
    }
}

fn parse_size(text: &str) -> Result<CacheSize, String> {
    match text {
        "auto" => Ok(CacheSize::Auto),
        _ => text.parse().map(CacheSize::Fixed).map_err(|error| format!("{error}, or auto")),
    }
}

#[cfg(test)]
mod tests {
    use hs_units::ByteSize;

    use super::*;

    #[test]
    fn sizes_and_auto_parse() {
        assert_eq!(parse_size("auto"), Ok(CacheSize::Auto));
        assert_eq!(parse_size("40M"), Ok(CacheSize::Fixed(ByteSize(40 << 20))));
        assert!(parse_size("much").is_err_and(|error| error.ends_with(", or auto")));
    }
}
