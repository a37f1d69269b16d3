//! Configuration of the prefetch.

use hs_units::Nanos;

use super::{Prefetch, PrefetchRate};

/// The size of one hot chunk, in the image and decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSize {
    /// Bytes in the image file.
    pub stored_bytes: u32,
    /// Bytes of the disk.
    pub raw_bytes: u32,
}

/// Limits of the prefetch.
#[derive(Clone, Copy, Debug)]
pub struct PrefetchConfig {
    /// Decompressed bytes that may wait in memory for their readers.
    pub budget_bytes: u64,
    /// Size of the first request. A later one has at most twice the size of the largest before it.
    pub first_request_bytes: u64,
    /// No request is larger, however fast the medium.
    pub max_request_bytes: u64,
    /// No request may occupy the medium for longer than this, by the estimate so far. On a medium that serves
    /// one request at a time a demand read may have to wait for this long.
    pub max_occupancy: Nanos,
    /// The same for a medium that overlaps requests, where small requests cost nothing, while readers need
    /// what the profile does not have.
    pub max_occupancy_contended: Nanos,
    /// Whether requests are shorter while readers miss, and before the first use. Otherwise only the two
    /// limits above hold, which is for experiments.
    pub yields: bool,
    /// At most this many requests are under way at once, and never more than [`Prefetch::MOST_UNDER_WAY`]. It
    /// is one where the medium sends what comes next without a request.
    pub most_under_way: usize,
    /// What a reader does that needs a hot chunk that has not been requested yet.
    pub late: LateRule,
    /// What a request is worth in time, for media whose requests cost others something, such as a server. A
    /// miss brings as many neighbours as come within this time.
    pub request_price: Nanos,
    /// By cost, a reader does not leave the stream to save less than this. What is fetched out of turn comes
    /// again with the stream, so on a full link its bytes delay all readers, this one included.
    pub least_gain: Nanos,
    /// The rate of the stream while no reader waits for it.
    pub rate: PrefetchRate,
    /// Whether reads of the hot region are reported to the policy ([`Prefetch::handle_used`]), so that a
    /// start that reads none of it can be told from one that does. Either all reads are reported, or, where
    /// the kernel has the pages and answers by itself, the reads of tripwires
    /// ([`Prefetch::handle_delivery`]).
    pub sees_use: bool,
    /// An unused stream still makes one request in this time, where everything is to be brought in the end.
    /// With `None` it may be throttled for as long as readers miss.
    pub ageing: Option<Nanos>,
    /// With full confidence, the medium time from one tripwire to the next. There is at most one in two
    /// chunks and at least one in 16.
    pub tripwires_apart: Nanos,
    /// Whether the windows that no profile names come behind demand, as far as that pays by what is observed
    /// of the medium.
    pub brings_rest: bool,
}

/// What a request to a server is worth in time: on a slow link all other readers wait for its bytes.
const PRICE_OF_A_REQUEST: Nanos = Nanos::from_millis(50);
/// A reader leaves the stream of a server only to save more than this. What it fetches comes again with the
/// stream, and those bytes delay all readers of the link. The value bounds the wait where the profile does
/// not fit.
const LEAST_GAIN: Nanos = Nanos::from_millis(5_000);

impl PrefetchConfig {
    /// The same, of an image that comes from a server.
    #[must_use]
    pub const fn over_a_network(self) -> Self {
        Self {
            request_price: PRICE_OF_A_REQUEST,
            least_gain: LEAST_GAIN,
            // The stream is one response; a second request would fetch a part of it twice.
            most_under_way: 1,
            brings_rest: true,
            ..self
        }
    }
}

/// What a reader does that needs a hot chunk that has not been requested yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateRule {
    /// The choice that costs less, by what was measured of the medium.
    #[default]
    ByCost,
    /// Always wait for the stream.
    Join,
    /// Always fetch the chunk with a separate request.
    Fetch,
}

impl Default for PrefetchConfig {
    fn default() -> Self {
        Self {
            budget_bytes: 256 << 20,
            first_request_bytes: 512 << 10,
            max_request_bytes: 8 << 20,
            // 300 ms keep the price of one 10 ms latency a request near 3%.
            max_occupancy: Nanos::from_millis(300),
            max_occupancy_contended: Nanos::from_millis(40),
            yields: true,
            most_under_way: Prefetch::MOST_UNDER_WAY,
            late: LateRule::ByCost,
            request_price: Nanos::ZERO,
            least_gain: Nanos::ZERO,
            rate: PrefetchRate::Full,
            sees_use: false,
            ageing: None,
            // A tripwire costs its reader a round trip through the kernel to the server, which is most of a
            // millisecond where processors are scarce.
            tripwires_apart: Nanos::from_millis(30),
            brings_rest: false,
        }
    }
}
