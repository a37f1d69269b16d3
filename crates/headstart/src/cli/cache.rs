//! Flags of the cache, for every command that serves an image.

use clap::{Args, ValueEnum};
use hs_engine::cache::PolicyKind;
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
    /// Which chunks leave a full cache. For experiments.
    #[arg(
        long,
        value_enum,
        value_name = "POLICY",
        default_value = "s3-fifo",
        hide = true,
        help_heading = "Prefetch and cache"
    )]
    pub cache_policy: CachePolicy,
}

impl From<CacheValues> for CacheChoice {
    fn from(flags: CacheValues) -> Self {
        let policy = match flags.cache_policy {
            CachePolicy::Lru => PolicyKind::Lru,
            CachePolicy::Sieve => PolicyKind::Sieve,
            CachePolicy::S3Fifo => PolicyKind::S3Fifo,
            CachePolicy::WTinyLfu => PolicyKind::WTinyLfu,
        };
        Self { size: flags.cache, policy }
    }
}

fn parse_size(text: &str) -> Result<CacheSize, String> {
    match text {
        "auto" => Ok(CacheSize::Auto),
        _ => text.parse().map(CacheSize::Fixed).map_err(|error| format!("{error}, or auto")),
    }
}

/// The policies by their published names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CachePolicy {
    /// Evicts what was used least recently.
    Lru,
    /// SIEVE: a hand evicts what was not used since it last passed.
    Sieve,
    /// S3-FIFO: what was used only once leaves soon.
    S3Fifo,
    /// W-TinyLFU: what is used more often stays.
    #[value(name = "w-tinylfu")]
    WTinyLfu,
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
