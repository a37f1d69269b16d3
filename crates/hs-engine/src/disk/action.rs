//! What a shell has to do.

use hs_units::{ByteRange, Nanos};

use super::image_map::ChunkKey;
use crate::queue::Class;

/// Names a read until it is answered, failed or cancelled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ReadId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl ReadId {
    /// A small number that no other read has meanwhile: the shell's place for what it knows of the read.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// Names a fetch until it is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FetchId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Names a permit until it is given back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PermitId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Names a place in which one chunk at a time is decompressed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DecoderId(pub u32);

/// In which form the shell has the bytes of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Form {
    /// As they lie in the image, not verified.
    Stored,
    /// Verified and decompressed.
    Raw,
    /// One block of the chunk, copied when it was delivered without it.
    Tripwire,
}

/// Why a read fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It ends beyond the disk.
    OutsideDisk,
    /// The store did not bring this chunk.
    Store(ChunkKey),
    /// The chunk is not what its digest says.
    Damaged(ChunkKey),
    /// The chunk failed a while ago, and it is too early to ask for it again.
    Unreadable(ChunkKey),
    /// What was to fetch or to decompress the chunk broke down.
    WorkerLost(ChunkKey),
    /// It has waited for too long.
    TimedOut,
    /// The disk is shut down.
    Shutdown,
}

/// Who delivers a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deliverer {
    /// The decoder that has just decompressed it, which is not free before it is delivered.
    Decoder(DecoderId),
    /// The delivery thread.
    Thread,
}

/// Who has broken down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// A decoder, with what it was at. It is not used again before
    /// [`handle_worker_restarted`](super::DiskEngine::handle_worker_restarted).
    Decoder(DecoderId),
    /// The delivery thread, likewise.
    DeliveryThread,
    /// Whatever was to bring this fetch, which ends by that.
    Fetcher(FetchId),
}

/// A chunk that is not what its digest says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage;

/// What became of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivered {
    /// The page cache has it.
    Taken,
    /// The page cache does not want it yet: it waits in memory for its readers.
    Refused,
}

/// What to do now. [`DiskEngine`](super::DiskEngine) says how these follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Answer the read: [`DiskEngine::answer`](super::DiskEngine::answer) says with what, until the next
    /// poll.
    Answer(ReadId),
    /// Fail the read.
    Fail(ReadId, Why),
    /// Free these bytes. An answer that was polled before may still be sent from them by who has them.
    Drop(ChunkKey, Form),
    /// Read this range of the image: [`DiskEngine::fetch`](super::DiskEngine::fetch) says what is in it.
    Fetch {
        /// By which it is reported.
        id: FetchId,
        /// Bytes of the image.
        range: ByteRange,
        /// How urgent it is.
        class: Class,
    },
    /// Nothing more of this fetch is wanted. It is still to be reported as done.
    CancelFetch(FetchId),
    /// Verify and decompress the chunk.
    Decode {
        /// The chunk, whose stored bytes the shell has.
        key: ChunkKey,
        /// Where.
        decoder: DecoderId,
    },
    /// Give the chunk to the page cache, but for [`DiskEngine::left_out`](super::DiskEngine::left_out).
    Deliver {
        /// The chunk, whose raw bytes the shell has.
        key: ChunkKey,
        /// Who does it.
        by: Deliverer,
        /// A block of the chunk to be copied first, as [`Form::Tripwire`]; it is one of those left out.
        tripwire: Option<u32>,
    },
    /// Copy this block of a hot chunk, whose raw bytes the shell has, as [`Form::Tripwire`].
    HoldBack {
        /// The chunk.
        chunk: u32,
        /// The block's number in it.
        block: u32,
    },
    /// The permit that was asked for begins.
    Grant(PermitId),
    /// Nothing until then, unless a `handle_*` call comes first.
    WaitUntil(Nanos),
    /// Nothing until the next `handle_*` call, which will come: something is under way.
    Wait,
    /// Nothing is left to do.
    Idle,
    /// The disk is shut down, and nothing is left of it.
    Done,
}
