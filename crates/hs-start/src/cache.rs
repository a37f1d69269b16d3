//! The cache of a served image, as the user chooses it.

use hs_serve::{CacheSizing, ONE_READERS_CACHE_BYTES, ServeConfig};
use hs_units::ByteSize;

/// The cache of a served image.
#[derive(Clone, Copy, Debug)]
pub struct CacheChoice {
    /// Memory for it, where that is said.
    pub size: Option<CacheSize>,
}

impl CacheChoice {
    /// Puts them into the configuration of an image with one reader.
    pub fn apply(self, config: &mut ServeConfig) {
        config.read.cache_bytes = ONE_READERS_CACHE_BYTES;
        self.apply_shared(config, 1, CacheSizing::AtMost);
    }

    /// Puts them into the configuration of one of so many images that are served together; without the flag
    /// what becomes of the cache's size is `otherwise`.
    pub fn apply_shared(self, config: &mut ServeConfig, images: usize, otherwise: CacheSizing) {
        config.read.cache_sizing = match self.size {
            None => otherwise,
            Some(CacheSize::Auto) => CacheSizing::Grows,
            Some(CacheSize::AtMost(_)) => CacheSizing::AtMost,
            Some(CacheSize::Fixed(_)) => CacheSizing::Fixed,
        };
        if let Some(CacheSize::AtMost(size) | CacheSize::Fixed(size)) = self.size {
            config.read.cache_bytes = size.0 / images.max(1) as u64;
        }
    }
}

/// How large the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSize {
    /// As large as memory has room for.
    Auto,
    /// So large, and smaller where other programs need the memory.
    AtMost(ByteSize),
    /// So large.
    Fixed(ByteSize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_size_is_shared_by_all_images() {
        let mut config = ServeConfig::default();
        let size = Some(CacheSize::Fixed(ByteSize(40 << 20)));
        let choice = CacheChoice { size };
        choice.apply_shared(&mut config, 4, CacheSizing::Grows);
        assert_eq!((config.read.cache_bytes, config.read.cache_sizing), (10 << 20, CacheSizing::Fixed));
        let choice = CacheChoice { size: None };
        choice.apply(&mut config);
        assert_eq!(config.read.cache_bytes, ONE_READERS_CACHE_BYTES);
        assert_eq!(config.read.cache_sizing, CacheSizing::AtMost);
        choice.apply_shared(&mut config, 4, CacheSizing::Grows);
        assert_eq!(config.read.cache_sizing, CacheSizing::Grows);
        CacheChoice { size: Some(CacheSize::Auto) }.apply(&mut config);
        assert_eq!(config.read.cache_sizing, CacheSizing::Grows);
        CacheChoice { size: Some(CacheSize::AtMost(ByteSize(8 << 20))) }.apply(&mut config);
        assert_eq!((config.read.cache_bytes, config.read.cache_sizing), (8 << 20, CacheSizing::AtMost));
    }
}
