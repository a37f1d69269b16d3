//! How a disk is served.

use std::time::Duration;

use hs_engine::PrefetchConfig;
use hs_engine::disk::{DiskConfig, UseVisibility};
use hs_engine::queue::QueueConfig;
use hs_image::OpenOptions;

/// However little memory there is, so much may wait for its readers: a few chunks. With less the stream would
/// stall.
const LEAST_PREFETCH_BYTES: u64 = 1 << 20;

/// How the size of a cache changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CacheSizing {
    /// It stays.
    Fixed,
    /// It never grows beyond its initial size, and is smaller where other programs need the memory.
    #[default]
    AtMost,
    /// It grows into free memory, and gives it back.
    Grows,
}

/// The cache of a disk with one reader, where memory has room for it: windows of which a start has read a
/// part, and will read more. docs/decisions/011-memory-budget.md has what less costs.
pub const ONE_READERS_CACHE_BYTES: u64 = 192 << 20;

/// How reads of a disk use the machine.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Requests that the medium gets at the same time, at most.
    pub fetchers: usize,
    /// Chunks kept because they may be read again, and those that came early.
    pub cache_bytes: u64,
    /// How the size of the cache changes.
    pub cache_sizing: CacheSizing,
    /// Readers keep what they are given, as the kernel does in its page cache: a chunk is not kept here any
    /// longer when each of its blocks was handed over.
    pub readers_keep: bool,
    /// Bytes of the disk read ahead of a sequential reader, at most; they wait compressed.
    pub read_ahead_bytes: u64,
    /// What is read outside the hot region lies scattered, as pages of memory do: neighbours of a miss are
    /// not expected to be used.
    pub scattered: bool,
    /// What failed slowly is a bad place of a drive, and is left alone for a while.
    pub bad_places_rest: bool,
    /// In which order chunks are fetched when more are wanted than there are fetchers.
    pub queue: QueueConfig,
    /// A read that has waited for so long is answered with an error; without a limit when none.
    pub read_timeout: Option<Duration>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            fetchers: 8,
            cache_bytes: 40 << 20,
            cache_sizing: CacheSizing::default(),
            readers_keep: false,
            read_ahead_bytes: 8 << 20,
            scattered: false,
            bad_places_rest: true,
            queue: QueueConfig::default(),
            read_timeout: None,
        }
    }
}

impl ReadOptions {
    /// The same for a medium that is reached over a network: a server that has not answered for so long may
    /// answer the next read.
    #[must_use]
    pub const fn over_a_network(self, read_timeout: Duration) -> Self {
        Self { read_timeout: Some(read_timeout), bad_places_rest: false, ..self }
    }
}

/// How an image is opened, prefetched and read.
#[derive(Clone, Debug, Default)]
pub struct DiskOptions {
    /// The name that the image must have, and the cache on disk.
    pub image: OpenOptions,
    /// Limits of the prefetch; nothing is prefetched when none.
    pub prefetch: Option<PrefetchConfig>,
    /// Where readers keep what they are given, a block of some hot chunks is left out, so that use of them is
    /// seen. docs/ENGINE.md says what that costs a start.
    pub tripwires: bool,
    /// How reads use the machine.
    pub read: ReadOptions,
}

impl DiskOptions {
    /// What the engine needs to know.
    pub(crate) fn engine(&self, decoders: u32) -> DiskConfig {
        let read = &self.read;
        // A reader that keeps what it is given answers later reads itself, also when the warmer asked for the
        // block first. Tripwires show such use.
        let sees_use = !read.readers_keep || self.tripwires;
        let marks = read.readers_keep && self.tripwires;
        DiskConfig {
            queue: read.queue,
            fetchers: read.fetchers.max(1) as u32,
            decoders,
            prefetch: self.prefetch.map(|prefetch| PrefetchConfig { sees_use, ..prefetch }),
            least_prefetch_bytes: LEAST_PREFETCH_BYTES,
            cache_bytes: read.cache_bytes,
            cache_bounds: None,
            readers_keep: read.readers_keep,
            read_ahead_bytes: read.read_ahead_bytes,
            scattered: read.scattered,
            bad_places_rest: read.bad_places_rest,
            visibility: if marks { UseVisibility::Tripwires } else { UseVisibility::Asked },
            delivery: None,
            read_timeout: read.read_timeout.map(Into::into),
        }
    }
}
