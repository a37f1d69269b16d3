//! Requests that wait in the queue, and fetches that the shell has under way.

use std::ops::Range;

use hs_units::{ByteRange, Nanos};

use super::action::FetchId;
use super::image_map::ChunkKey;
use super::slab::Slab;
use crate::RequestId;
use crate::queue::{DispatchId, Ticket};

/// What a request in the queue is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// This chunk.
    Chunk(u32),
    /// This chunk of a cold window, and those of windows behind it up to there.
    Ahead(u32, u64),
    /// This chunk of a cold window that no read has asked for, and others behind it.
    Background(u32, BackgroundRequest),
    /// A run of hot chunks.
    Stream(RequestId, Range<u32>),
    /// A permit for another reader of the medium.
    Permit(u32),
}

/// What comes along with a window that no read has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BackgroundRequest {
    /// Bytes of the image, at most.
    pub most_bytes: u64,
    /// Other learned windows come along, if the window is one, over gaps of so many bytes; else those that
    /// lie directly behind it.
    pub learned_gap: Option<u64>,
}

/// A request in the queue.
#[derive(Debug, Default)]
pub(super) struct QueueRequest {
    /// None before it is in the queue.
    pub ticket: Option<Ticket>,
    pub purpose: Option<Purpose>,
}

/// A chunk that a fetch reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchChunk {
    /// Which.
    pub key: ChunkKey,
    /// Where it lies in the image.
    pub range: ByteRange,
    pub(super) slot: u32,
    pub(super) owned: bool,
    pub(super) came: bool,
}

impl FetchChunk {
    /// Whether this fetch brings it; otherwise it only lies in between, and its bytes are of no use.
    #[must_use]
    pub const fn is_brought(&self) -> bool {
        self.owned
    }
}

/// A fetch that the shell has under way.
#[derive(Debug, Default)]
pub(super) struct Fetch {
    pub dispatch: Option<DispatchId>,
    pub asked: Nanos,
    /// When its first piece had come, and the bytes of that.
    pub first: Option<(Nanos, u64)>,
    /// Nothing else was under way when it began.
    pub was_alone: bool,
    /// The bytes of all of it, if no read has asked for what it brings.
    pub background_bytes: u64,
    /// In the order in which they lie in the image, without a gap; windows that are equal share their bytes.
    pub chunks: Vec<FetchChunk>,
    /// The parts of it that are the stream's: one, or none.
    pub streams: Vec<(RequestId, Range<u32>)>,
    /// Which of the chunks probably comes next.
    pub next: usize,
    /// Bytes that have come.
    pub bytes: u64,
    pub cancelled: bool,
}

/// What a fetch reads.
#[derive(Clone, Copy, Debug)]
pub struct FetchView<'a> {
    /// Bytes of the image, from the first to the last of the chunks.
    pub range: ByteRange,
    /// The chunks in the order in which they lie there, without a gap. Windows that are equal share their
    /// bytes: they stand one behind another, with the same range.
    pub chunks: &'a [FetchChunk],
    /// Whether a part of it is the stream's.
    pub is_stream: bool,
    /// Whether no read has asked for it, and the stream has not either.
    pub is_background: bool,
}

/// What is asked for that no read has asked for.
#[derive(Debug, Default)]
pub(super) struct BackgroundRequests {
    /// A request waits in the queue.
    pub is_queued: bool,
    /// Bytes of fetches that are under way.
    pub bytes: u64,
}

/// All requests and fetches.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    pub requests: Slab<QueueRequest>,
    pub slab: Slab<Fetch>,
    /// Requests of the stream in the queue.
    pub stream_requests: Vec<u32>,
    /// Of what no read has asked for.
    pub background: BackgroundRequests,
    /// Fetches that the shell should be told to cancel.
    pub cancels: Vec<FetchId>,
}

impl Fetches {
    pub(super) fn id(&self, index: u32) -> FetchId {
        FetchId { index, generation: self.slab.generation(index) }
    }

    pub(super) fn is_live(&self, id: FetchId) -> bool {
        self.slab.is_live(id.index, id.generation)
    }

    /// A fetch of nothing yet.
    pub(super) fn begin(&mut self, now: Nanos, dispatch: Option<DispatchId>) -> u32 {
        let index = self.slab.take();
        let fetch = &mut self.slab[index];
        let (mut chunks, mut streams) =
            (std::mem::take(&mut fetch.chunks), std::mem::take(&mut fetch.streams));
        chunks.clear();
        streams.clear();
        let was_alone = self.slab.len() == 1;
        self.slab[index] = Fetch { dispatch, asked: now, was_alone, chunks, streams, ..Fetch::default() };
        index
    }

    /// What the shell has to read.
    pub(super) fn range(&self, index: u32) -> ByteRange {
        let chunks = &self.slab[index].chunks;
        let (first, last) = chunks.first().zip(chunks.last()).expect("a fetch is of something");
        ByteRange::new(first.range.offset, last.range.end() - first.range.offset)
    }
}

/// What a request to the medium looks like to the queue: cut at both ends where it must not merge with what
/// lies next to it.
pub(super) fn cut(range: ByteRange) -> ByteRange {
    ByteRange::new(range.offset + 1, range.len.saturating_sub(2).max(1))
}
