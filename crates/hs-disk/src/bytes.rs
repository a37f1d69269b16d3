//! The bytes of chunks that are in memory, and the index pages among them.

use std::collections::HashMap;
use std::sync::Arc;

use hs_engine::disk::{ChunkKey, Form};
use hs_format::{ChunkRef, Codec};
use hs_image::{IndexPage, Stored, StoredPage};
use hs_units::BLOCK_BYTES;

/// Decompressed, verified bytes, shared by all answers from them.
pub(crate) type Bytes = Arc<Vec<u8>>;

/// A chunk as it is stored, unverified.
#[derive(Clone, Debug)]
pub(crate) enum StoredChunk {
    /// Of the disk; of a hot one, whether the stream brought it.
    Blocks { chunk: ChunkRef, bytes: Stored, from_stream: bool },
    /// Of the index.
    Page(IndexPage, StoredPage),
}

impl StoredChunk {
    /// Whether decompressing it waits for the medium of the image's base.
    pub(crate) fn waits_for_base(&self) -> bool {
        matches!(self, Self::Blocks { chunk, .. } if chunk.codec == Codec::Composed)
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Blocks { bytes, .. } => bytes.len() as u64,
            Self::Page(_, page) => page.len(),
        }
    }
}

/// What nothing needs any more. It is freed when this is dropped, which is not done under the lock.
#[derive(Debug)]
pub(crate) enum Freed {
    Stored(StoredChunk),
    Raw(Bytes),
}

/// All bytes that the engine knows of.
#[derive(Debug)]
pub(crate) struct ChunkBytes {
    stored: HashMap<ChunkKey, StoredChunk>,
    raw: HashMap<ChunkKey, Bytes>,
    tripwires: HashMap<u32, Bytes>,
    /// A window of zeros.
    zeroes: Bytes,
}

impl ChunkBytes {
    pub(crate) fn new(window_bytes: u64) -> Self {
        Self {
            stored: HashMap::new(),
            raw: HashMap::new(),
            tripwires: HashMap::new(),
            zeroes: Arc::new(vec![0; window_bytes as usize]),
        }
    }

    pub(crate) fn put_stored(&mut self, key: ChunkKey, stored: StoredChunk) {
        self.stored.insert(key, stored);
    }

    pub(crate) fn stored(&self, key: ChunkKey) -> Option<StoredChunk> {
        self.stored.get(&key).cloned()
    }

    pub(crate) fn put_raw(&mut self, key: ChunkKey, raw: Bytes) {
        self.raw.insert(key, raw);
    }

    pub(crate) fn raw(&self, key: ChunkKey) -> Option<&Bytes> {
        self.raw.get(&key)
    }

    pub(crate) const fn zeroes(&self) -> &Bytes {
        &self.zeroes
    }

    /// The block of a hot chunk that is held back.
    pub(crate) fn tripwire(&self, chunk: u32) -> Option<&Bytes> {
        self.tripwires.get(&chunk)
    }

    /// Copies a block of a hot chunk, by its number in it.
    pub(crate) fn hold_back(&mut self, chunk: u32, block: u32) {
        let from = block as usize * BLOCK_BYTES as usize;
        let block =
            self.raw.get(&ChunkKey::Hot(chunk)).and_then(|raw| raw.get(from..from + BLOCK_BYTES as usize));
        if let Some(block) = block {
            self.tripwires.insert(chunk, Arc::new(block.to_vec()));
        }
    }

    /// Takes out what nothing needs any more.
    pub(crate) fn take(&mut self, key: ChunkKey, form: Form) -> Option<Freed> {
        match (form, key) {
            (Form::Stored, _) => self.stored.remove(&key).map(Freed::Stored),
            (Form::Raw, _) => self.raw.remove(&key).map(Freed::Raw),
            (Form::Tripwire, ChunkKey::Hot(chunk)) => self.tripwires.remove(&chunk).map(Freed::Raw),
            (Form::Tripwire, _) => None,
        }
    }
}
