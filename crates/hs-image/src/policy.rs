//! What a [`Reader`](crate::Reader) asks of the prefetch policy, and what its observers get.

use std::time::Instant;

use hs_units::{ByteRange, Nanos};

/// The prefetch policy as the reader sees it. Hot chunks are numbered through all hot segments.
pub trait HotPolicy: Send + Sync {
    /// Whether a reader of the hot chunk, which has not come yet, should wait for the stream; if
    /// not, the reader fetches it.
    fn join(&self, chunk: u32) -> bool;
    /// Whether this is the warmer's read-through of the hot chunk, and no demand.
    fn is_expected(&self, _chunk: u32) -> bool {
        false
    }
    /// A demand read, and not the warmer's read-through, got bytes of a hot chunk that had come.
    fn used(&self) {}
    /// A read asks for a hot chunk's tripwire, the block that was kept back to see this:
    /// [`Reader::mark`](crate::Reader::mark).
    fn marker_asked(&self, _chunk: u32) {}
    /// A demand read has begun to wait for the medium, outside the hot region.
    fn miss(&self);
    /// The wait that [`HotPolicy::miss`] announced is over.
    fn miss_answered(&self);
    /// A read's own request, made at `asked`, had brought its first `bytes` at `came`: what it costs to leave
    /// the stream.
    fn fetched(&self, _asked: Instant, _came: Instant, _bytes: u64) {}
    /// How many bytes of neighbours may come with a demand request; `None` where only their use decides.
    fn most_neighbour_bytes(&self) -> Option<u64> {
        None
    }
    /// The hot chunk has been verified and decompressed, and now waits in memory.
    fn arrived(&self, chunk: u32);
    /// The hot chunk left memory.
    fn released(&self, chunk: u32);
    /// The hot chunk has come without the stream, because a read needed it.
    fn resident(&self, _chunk: u32) {}
    /// The hot chunk, of which readers had every block and were to keep it, is asked for again.
    fn dropped(&self, _chunk: u32) {}
}

/// The policy of a reader without prefetch: nothing comes that is not asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStream;

impl HotPolicy for NoStream {
    fn join(&self, _chunk: u32) -> bool {
        false
    }
    fn miss(&self) {}
    fn miss_answered(&self) {}
    fn arrived(&self, _chunk: u32) {}
    fn released(&self, _chunk: u32) {}
}

/// One read that was answered.
#[derive(Clone, Copy, Debug)]
pub struct DemandEvent {
    /// When it came, since the reader was made.
    pub at: Nanos,
    /// Bytes of the disk.
    pub range: ByteRange,
    /// From coming to being answered.
    pub cost: Nanos,
    /// Whether the read had to wait: not all of it was in memory.
    pub waited: bool,
    /// Bytes of it that lie in the hot region but had not come yet.
    pub late_bytes: u64,
}

/// Sees every read that was answered; called on the thread that answers, so it must be quick.
pub trait Watch: Send + Sync {
    /// A read was answered.
    fn demand(&self, event: &DemandEvent);
}
