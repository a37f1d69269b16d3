//! What the threads of a disk have to do.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hs_engine::disk::{ChunkKey, DecoderId, FetchId};
use hs_image::{ChunkPlace, IndexPage};
use hs_units::Nanos;

use crate::bytes::{Bytes, StoredChunk};

/// A chunk that a fetch reads.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) key: ChunkKey,
    /// None when the page of the index that says so has left memory since the fetch was decided.
    pub(crate) place: Option<ChunkPlace>,
    /// Whether its bytes are of use, and it does not only lie in between.
    pub(crate) is_brought: bool,
}

/// What a fetch reads.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// A page of the index, and its number.
    Page(u32, IndexPage),
    /// Chunks that lie one after another.
    Chunks(Vec<Wanted>),
}

impl std::fmt::Display for Fetched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Page(number, _) => write!(f, "page {number} of the index"),
            Self::Chunks(chunks) => match (chunks.first(), chunks.last()) {
                (Some(first), Some(last)) => write!(f, "{:?} to {:?}", first.key, last.key),
                _ => write!(f, "nothing"),
            },
        }
    }
}

/// A request to the medium.
#[derive(Debug)]
pub(crate) struct FetchJob {
    pub(crate) id: FetchId,
    pub(crate) what: Fetched,
    /// Whether the stream has asked for it.
    pub(crate) is_stream: bool,
    /// Whether nothing has.
    pub(crate) is_background: bool,
    pub(crate) asked: Nanos,
    /// Nothing more of it is wanted.
    pub(crate) cancelled: Arc<AtomicBool>,
    pub(crate) progress: Progress,
}

/// What of a fetch has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// How many chunks have come.
    pub(crate) came: usize,
    /// Whether the first bytes have come.
    pub(crate) has_begun: bool,
    /// The last chunk is reported with the end of the fetch.
    pub(crate) last: Option<(ChunkKey, u64, Option<StoredChunk>)>,
}

/// A chunk to verify and decompress.
#[derive(Debug)]
pub(crate) struct DecodeJob {
    pub(crate) key: ChunkKey,
    pub(crate) decoder: DecoderId,
    pub(crate) stored: StoredChunk,
}

/// A hot chunk for the page cache.
#[derive(Debug)]
pub(crate) struct DeliverJob {
    pub(crate) key: ChunkKey,
    pub(crate) chunk: u32,
    pub(crate) raw: Bytes,
    /// Blocks of it that are not delivered.
    pub(crate) left_out: Vec<Range<u32>>,
}

/// Something that a worker does.
#[derive(Debug)]
pub(crate) enum Job {
    Fetch(FetchJob),
    Decode(DecodeJob),
    /// By the worker that has decompressed the chunk.
    Deliver(DecoderId, DeliverJob),
}

/// Jobs that wait for a worker.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) fetches: VecDeque<FetchJob>,
    /// These, and those that workers carry out now.
    pub(crate) worker_fetches: usize,
    pub(crate) decodes: VecDeque<DecodeJob>,
    /// A chunk that the worker delivers that has just decompressed it.
    pub(crate) own_delivery: Option<(DecoderId, DeliverJob)>,
    /// A chunk for the delivery thread.
    pub(crate) delivery: Option<DeliverJob>,
}

impl Jobs {
    /// The next job of a worker; `decoder` is where it has just decompressed a chunk. Bytes that have come
    /// lie in the processor's cache, so they come first.
    pub(crate) fn take(&mut self, decoder: Option<DecoderId>) -> Option<Job> {
        if let Some((by, _)) = &self.own_delivery
            && Some(*by) == decoder
        {
            return self.own_delivery.take().map(|(by, job)| Job::Deliver(by, job));
        }
        let decode = self.decodes.pop_front().map(Job::Decode);
        decode.or_else(|| self.fetches.pop_front().map(Job::Fetch))
    }

    /// A worker has to carry this out.
    pub(crate) fn push_fetch(&mut self, job: FetchJob) {
        self.worker_fetches += 1;
        self.fetches.push_back(job);
    }

    /// Takes out the job of decompressing a chunk, if it waits.
    pub(crate) fn take_decode(&mut self, key: ChunkKey) -> Option<DecodeJob> {
        let at = self.decodes.iter().position(|job| job.key == key)?;
        self.decodes.remove(at)
    }

    /// Takes out the only job, if it is to decompress a cold chunk: the thread that submits a read does that
    /// itself, where the read finds the chunk compressed. A hot chunk may have to be delivered, which waits,
    /// and a composed one waits for its base.
    pub(crate) fn take_own_decode(&mut self) -> Option<DecodeJob> {
        let job = self.decodes.front().filter(|_| self.len() == 1)?;
        let is_prompt = matches!(job.key, ChunkKey::Cold(_)) && !job.stored.waits_for_base();
        if is_prompt { self.decodes.pop_front() } else { None }
    }

    /// How many wait for any worker.
    pub(crate) fn len(&self) -> usize {
        self.fetches.len() + self.decodes.len()
    }
}
