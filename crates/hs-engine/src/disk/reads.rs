//! Reads that have not been answered, and the pieces that they are cut into.

use std::collections::VecDeque;

use hs_units::{ByteRange, Nanos};

use super::action::{ReadId, Why};
use super::image_map::ChunkKey;
use super::slab::Slab;
use crate::queue::{Class, ClientKey};

/// Who wants something, and how urgently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    /// Whose share it is.
    pub client: ClientKey,
    /// How urgent it is.
    pub class: Class,
}

impl Requester {
    /// A client that waits.
    #[must_use]
    pub const fn waiting(client: ClientKey) -> Self {
        Self { client, class: Class::Demand }
    }
}

impl Default for Requester {
    fn default() -> Self {
        Self::waiting(ClientKey(0))
    }
}

/// Where the bytes of a piece of a read are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// In the raw bytes of a chunk.
    Chunk(ChunkKey),
    /// In the block of this hot chunk that was held back, which begins there in the chunk, in bytes.
    Tripwire(u32, u32),
    /// They are zero.
    Zero,
}

/// A piece of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where its bytes are.
    pub source: Source,
    /// Where it begins in the chunk, or in the window that is zero, in bytes.
    pub from: u32,
    /// How long it is.
    pub len: u32,
    /// Whether the bytes are there. They stay until the read is answered or ends.
    pub(super) found: bool,
    /// Its chunk, where that is in the table.
    pub(super) slot: u32,
}

/// What a read is answered with.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Which bytes of the disk it asked for.
    pub range: ByteRange,
    /// Where they are, in order and without a gap.
    pub spans: &'a [Span],
    /// When it came.
    pub at: Nanos,
    /// Whether it had to wait for the medium.
    pub waited: bool,
    /// How much of it lies in the hot region and had not come.
    pub late_bytes: u64,
    /// It asked for what is to come, and no program waited for it.
    pub expected: bool,
}

/// A read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub range: Option<ByteRange>,
    pub requester: Requester,
    pub at: Nanos,
    pub spans: Vec<Span>,
    /// Spans that are not found, and how many of these are cold.
    pub missing: u32,
    pub missing_cold: u32,
    pub late_bytes: u64,
    /// It waits for something that the hot region does not have, and the prefetch was told so.
    pub missed: bool,
    /// The prefetch has not been told that this is over.
    pub miss_open: bool,
    /// A program waits for it, and not only what is in no hurry.
    pub program_waits: bool,
    /// It asked only for chunks that are asked for because they are to come, or waited only for these.
    pub expected: bool,
    pub progress: Progress,
}

/// How far a read is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Progress {
    /// It waits for chunks.
    #[default]
    Waiting,
    /// It has all, and waits for a delivery to be over.
    Held,
    /// It is to be answered, or is being answered.
    Ready,
    /// It is to be failed.
    Failing(Why),
}

impl Read {
    pub(super) fn range(&self) -> ByteRange {
        self.range.unwrap_or(ByteRange::new(0, 0))
    }
}

/// All reads.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub slab: Slab<Read>,
    /// Reads that are to be answered or failed, the first first.
    pub outcomes: VecDeque<ReadId>,
    /// Reads that had to wait, in the order in which they came, and some that have ended.
    pub oldest: VecDeque<ReadId>,
    /// The read that the shell is answering.
    pub answering: Option<u32>,
}

impl Reads {
    pub(super) fn id(&self, index: u32) -> ReadId {
        ReadId { index, generation: self.slab.generation(index) }
    }

    pub(super) fn is_live(&self, id: ReadId) -> bool {
        self.slab.is_live(id.index, id.generation)
    }

    /// Whether the read is there and waits for chunks.
    pub(super) fn waits(&self, id: ReadId) -> bool {
        self.is_live(id) && self.slab[id.index].progress == Progress::Waiting
    }

    /// A read that has just come.
    pub(super) fn begin(&mut self, now: Nanos, requester: Requester, range: ByteRange) -> u32 {
        let index = self.slab.take();
        let read = &mut self.slab[index];
        let mut spans = std::mem::take(&mut read.spans);
        spans.clear();
        *read = Read { range: Some(range), requester, at: now, spans, ..Read::default() };
        index
    }

    /// The read that has waited longest, of those that wait for chunks or for a delivery.
    pub(super) fn oldest(&mut self) -> Option<ReadId> {
        while let Some(id) = self.oldest.front().copied() {
            let waits = |read: &Read| matches!(read.progress, Progress::Waiting | Progress::Held);
            if self.is_live(id) && waits(&self.slab[id.index]) {
                return Some(id);
            }
            self.oldest.pop_front();
        }
        None
    }
}
