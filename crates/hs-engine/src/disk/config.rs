//! What can be chosen about a disk engine.

use hs_units::Nanos;

use crate::queue::{Class, QueueConfig};
use crate::{MemoryBudgetConfig, PrefetchConfig};

/// How it is seen that what was prefetched is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UseVisibility {
    /// Each reader asks first.
    #[default]
    Asked,
    /// Blocks can be held back, and a reader that wants one asks for it.
    Tripwires,
    /// Not at all.
    Hidden,
}

/// What becomes of hot chunks beyond being kept in memory: the kernel's page cache takes them.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryConfig {
    /// Delivering takes no longer than copying, and blocks that a read waits for can be left out: then the
    /// rest of a chunk is delivered before the reads are answered, which would otherwise ask for it.
    pub before_answers: bool,
}

/// How a [`DiskEngine`](super::DiskEngine) behaves.
#[derive(Clone, Copy, Debug)]
pub struct DiskConfig {
    /// In which order chunks are fetched. See [`DiskConfig::queue_limits`].
    pub queue: QueueConfig,
    /// Fetches that the shell can have under way.
    pub fetchers: u32,
    /// Chunks that the shell can decompress at the same time.
    pub decoders: u32,
    /// How the hot region is read ahead of its readers; not at all when none.
    pub prefetch: Option<PrefetchConfig>,
    /// The least memory that what was prefetched may take however short memory is.
    pub least_prefetch_bytes: u64,
    /// Chunks kept because they may be read again, and those that came before they were asked for.
    pub cache_bytes: u64,
    /// Bounds of the cache where it follows the system's memory; it is as large as above otherwise.
    pub cache_bounds: Option<MemoryBudgetConfig>,
    /// Readers keep what they are given, as the kernel does in its page cache: a chunk is not kept here when
    /// each of its blocks was handed over.
    pub readers_keep: bool,
    /// Bytes of the disk read ahead of a sequential reader, at most; they wait compressed.
    pub read_ahead_bytes: u64,
    /// What is read outside the hot region lies scattered, as pages of memory do: neighbours of a miss are
    /// not expected to be used.
    pub scattered: bool,
    /// What failed slowly is a bad place of a drive, and is left alone for a while. Not so over a network,
    /// where the server may have come back.
    pub bad_places_rest: bool,
    /// How use of what was prefetched is seen.
    pub visibility: UseVisibility,
    /// Where hot chunks go, if they go anywhere.
    pub delivery: Option<DeliveryConfig>,
    /// A read that has waited for so long fails; never when none.
    pub read_timeout: Option<Nanos>,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            queue: QueueConfig::default(),
            fetchers: 8,
            decoders: 2,
            prefetch: Some(PrefetchConfig::default()),
            least_prefetch_bytes: 1 << 20,
            cache_bytes: 40 << 20,
            cache_bounds: None,
            readers_keep: false,
            read_ahead_bytes: 8 << 20,
            scattered: false,
            bad_places_rest: true,
            visibility: UseVisibility::default(),
            delivery: None,
            read_timeout: None,
        }
    }
}

impl DiskConfig {
    /// The queue's limits with so many fetchers: one more than is served waits at the medium, which would
    /// pause until the next one comes; no more is under way than there are fetchers; background requests
    /// bring many chunks already and do not merge; and one fetcher is left for demand.
    #[must_use]
    pub fn queue_limits(&self) -> QueueConfig {
        let fetchers = self.fetchers.max(1);
        let mut queue = self.queue;
        for (class, config) in Class::ALL.into_iter().zip(&mut queue.classes) {
            if class <= Class::ReadAhead && config.depth == 1 {
                config.depth = fetchers.min(2);
            }
            config.depth = config.depth.min(fetchers);
            if class > Class::Demand {
                config.merge_bytes = 0;
                config.depth = config.depth.min(fetchers - 1).max(1);
            }
        }
        queue
    }
}
