//! What a prefetch may do.

use hs_units::Nanos;

use super::{Prefetch, PrefetchRate};

/// Bytes of one hot chunk, in the image and once decompressed.
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
    /// Size of the first request; later ones double until a limit stops them.
    pub first_request_bytes: u64,
    /// No request is larger, however fast the medium.
    pub max_request_bytes: u64,
    /// No request may occupy the medium for longer than this, by the estimate so far: it is what a
    /// demand read may have to wait for on a medium that serves one request at a time.
    pub max_occupancy: Nanos,
    /// The same for a medium that overlaps requests, where small requests cost nothing, and while somebody
    /// needs what the profile does not have.
    pub max_occupancy_contended: Nanos,
    /// Whether requests are as small as costs next to nothing, and smaller where somebody has to wait for
    /// them. Otherwise only the two limits above hold, which is for experiments.
    pub yields: bool,
    /// So many requests are under way at once at most, and never more than [`Prefetch::MOST_UNDER_WAY`]: one,
    /// where the medium sends what comes next without being asked.
    pub most_under_way: usize,
    /// What somebody does who needs a hot chunk that has not been asked for yet.
    pub late: LateRule,
    /// What a request is worth in time, for media whose requests cost others something, as those to a server
    /// do: a miss brings as many neighbours as come within it.
    pub request_price: Nanos,
    /// By cost, nobody leaves the stream to save less than this. What is fetched out of turn comes again with
    /// the stream, so on a link that is full it keeps everybody waiting for its bytes, him who left included.
    pub least_gain: Nanos,
    /// How fast it goes while nobody waits for it.
    pub rate: PrefetchRate,
    /// Whether the policy is told of reads of the hot region ([`Prefetch::handle_used`]), so that a start
    /// that reads none of it can be told from one that does: of all of them, or, where the kernel has the
    /// pages and answers by itself, of those of markers ([`Prefetch::handle_delivery`]).
    pub sees_use: bool,
    /// A stream that nobody uses makes one request in so much time all the same, where everything is to be
    /// brought in the end; where nothing is said it may stand back for as long as somebody misses.
    pub ageing: Option<Nanos>,
    /// While nothing speaks against the stream, one marker in so much of the medium's time, but one in two
    /// chunks at most and one in 16 at least.
    pub markers_apart: Nanos,
}

/// What somebody does who needs a hot chunk that has not been asked for yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateRule {
    /// Whatever costs less, by what the medium has shown of itself.
    #[default]
    ByCost,
    /// Always wait for the stream.
    Join,
    /// Always ask for it out of turn.
    Fetch,
}

impl Default for PrefetchConfig {
    fn default() -> Self {
        Self {
            budget_bytes: 256 << 20,
            first_request_bytes: 512 << 10,
            max_request_bytes: 8 << 20,
            // Three tenths of a second keep the price of one 10 ms latency a request near 3%.
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
            // A marker costs its reader a trip through the kernel to us, which is most of a millisecond where
            // processors are scarce.
            markers_apart: Nanos::from_millis(30),
        }
    }
}
