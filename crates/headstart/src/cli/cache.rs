//! Flags of the cache, for every command that serves an image.

use clap::{Args, ValueEnum};
use hs_engine::cache::PolicyKind;
use hs_serve::{CacheSizing, ServeConfig};
use hs_units::ByteSize;

/// The cache of a served image.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CacheFlags {
    /// Memory for the chunk cache. `auto` grows into free memory and gives it back. Default: auto for NBD; at
    /// most 40M elsewhere, because there the kernel's page cache keeps what was read.
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

impl CacheFlags {
    /// Puts them into the configuration of an image whose readers keep what they read.
    pub(crate) fn apply(self, config: &mut ServeConfig) {
        self.apply_shared(config, 1, CacheSizing::AtMost);
    }

    /// Puts them into the configuration of one of so many images that are served together; without the flag
    /// what becomes of the cache's size is `otherwise`.
    pub(crate) fn apply_shared(self, config: &mut ServeConfig, images: usize, otherwise: CacheSizing) {
        config.read.cache_sizing = match self.cache {
            None => otherwise,
            Some(CacheSize::Auto) => CacheSizing::Grows,
            Some(CacheSize::Fixed(size)) => {
                config.read.cache_bytes = size.0 / images.max(1) as u64;
                CacheSizing::Fixed
            }
        };
        config.read.cache_policy = match self.cache_policy {
            CachePolicy::Lru => PolicyKind::Lru,
            CachePolicy::Sieve => PolicyKind::Sieve,
            CachePolicy::S3Fifo => PolicyKind::S3Fifo,
            CachePolicy::WTinyLfu => PolicyKind::WTinyLfu,
        };
    }
}

/// How large the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheSize {
    /// As large as memory has room for.
    Auto,
    /// So large.
    Fixed(ByteSize),
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
    use super::*;

    #[test]
    fn sizes_and_auto_parse() {
        assert_eq!(parse_size("auto"), Ok(CacheSize::Auto));
        assert_eq!(parse_size("40M"), Ok(CacheSize::Fixed(ByteSize(40 << 20))));
        assert!(parse_size("much").is_err_and(|error| error.ends_with(", or auto")));
    }

    #[test]
    fn a_fixed_size_is_shared_by_all_images() {
        let mut config = ServeConfig::default();
        let cache = Some(CacheSize::Fixed(ByteSize(40 << 20)));
        let flags = CacheFlags { cache, cache_policy: CachePolicy::WTinyLfu };
        flags.apply_shared(&mut config, 4, CacheSizing::Grows);
        assert_eq!((config.read.cache_bytes, config.read.cache_sizing), (10 << 20, CacheSizing::Fixed));
        assert_eq!(config.read.cache_policy, PolicyKind::WTinyLfu);
        let flags = CacheFlags { cache: None, ..flags };
        flags.apply(&mut config);
        assert_eq!((config.read.cache_bytes, config.read.cache_sizing), (10 << 20, CacheSizing::AtMost));
        flags.apply_shared(&mut config, 4, CacheSizing::Grows);
        assert_eq!(config.read.cache_sizing, CacheSizing::Grows);
        CacheFlags { cache: Some(CacheSize::Auto), ..flags }.apply(&mut config);
        assert_eq!(config.read.cache_sizing, CacheSizing::Grows);
    }
}
