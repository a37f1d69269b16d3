//! What a served disk says of itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_units::{BlockRange, ByteRange, Nanos};

/// What a [`ServedDisk`](crate::ServedDisk) has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskFigures {
    /// Reads answered.
    pub demand_requests: u64,
    /// Bytes of the disk that they asked for.
    pub demand_bytes: u64,
    /// Reads that had to wait for the medium.
    pub waited_requests: u64,
    /// Sum of the times that reads waited.
    pub demand_wait: Nanos,
    /// The time in which at least one read waited, each moment once. Reads of chunks that are asked for only
    /// because they are to come are left out: no program waits for those.
    pub program_wait: Nanos,
    /// Bytes asked for that lie in the hot region and had not come yet.
    pub late_bytes: u64,
    /// Bytes of the file, as stored, that lie outside the hot region and that reads waited for, without
    /// neighbours.
    pub outside_bytes: u64,
    /// Bytes of the file, as stored, that came behind the reads, and that no read had asked for.
    pub background_bytes: u64,
    /// Of these, bytes of chunks that were read.
    pub background_used_bytes: u64,
    /// Decompressed bytes of hot chunks that came by the stream.
    pub prefetch_bytes: u64,
    /// Of these, bytes that were never asked for.
    pub unserved_prefetch_bytes: u64,
    /// Times that a chunk could not be had, because it is damaged or the medium failed.
    pub chunk_errors: u64,
    /// Reads that were answered with an error for that, or because the medium did not answer in time.
    pub failed_requests: u64,
    /// Of these, reads that the medium did not answer in time.
    pub given_up_requests: u64,
}

/// Reads that wait now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many there are.
    pub reads: u64,
    /// For how long the one waits that has waited longest.
    pub oldest: Nanos,
}

/// Reads may wait no longer than this, whatever else was said.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    /// Each of them.
    pub each: Duration,
    /// All of them, until this moment: later ones fail at once.
    pub until: Instant,
}

impl ReadLimit {
    /// How long a read may wait, at this moment.
    pub(crate) fn at(&self, now: Instant) -> Duration {
        if now >= self.until { Duration::ZERO } else { self.each }
    }
}

/// One read that was answered.
#[derive(Clone, Copy, Debug)]
pub struct DemandEvent {
    /// When it came, since the disk was opened.
    pub at: Nanos,
    /// Bytes of the disk.
    pub range: ByteRange,
    /// From coming to being answered.
    pub cost: Nanos,
    /// Whether the read had to wait: not all of it was in memory.
    pub waited: bool,
    /// Bytes of it that lie in the hot region but had not come yet.
    pub late_bytes: u64,
    /// It asked only for what the warmer had [announced](crate::ServedDisk::expect), or waited only for that:
    /// a page cache took it, and no program waited.
    pub expected: bool,
}

/// Why a request was made to the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchPurpose {
    /// A read waits for it.
    Demand,
    /// The stream of the prefetch, or the request that opened the image, brings it.
    Prefetch,
    /// It comes behind demand.
    Background,
}

/// A request to the medium that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchEvent {
    /// When it began, since the disk was opened.
    pub at: Nanos,
    /// From its beginning to its last byte.
    pub cost: Nanos,
    /// What it was for.
    pub purpose: FetchPurpose,
    /// The blocks of the disk that it brought, in the order in which they lie in the image.
    pub blocks: Vec<BlockRange>,
}

/// Sees every read that was answered; called on the thread that answers, so it must be quick.
pub trait Watch: Send + Sync {
    /// A read was answered.
    fn demand(&self, event: &DemandEvent);

    /// A request to the medium has ended, and brought blocks.
    fn fetched(&self, _event: FetchEvent) {}
}

/// Several see the same.
impl Watch for Vec<Arc<dyn Watch>> {
    fn demand(&self, event: &DemandEvent) {
        self.iter().for_each(|each| each.demand(event));
    }

    fn fetched(&self, event: FetchEvent) {
        self.iter().for_each(|each| each.fetched(event.clone()));
    }
}
