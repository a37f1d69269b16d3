//! Where a chunk lies, how it is stored and which bytes it must have.

use hs_units::{BLOCK_BYTES, ByteRange, Digest};

use crate::check;
use crate::codec::Codec;
use crate::digest::chunk_digest;
use crate::error::{FormatError, Part};
use crate::limits::MAX_CHUNK_RAW_BYTES;
use crate::unverified::ExpectedBytes;

/// A stored chunk, as an index describes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChunkRef {
    /// Its stored bytes, relative to the cold region or to the segment's chunks.
    pub range: ByteRange,
    /// Its length when decoded: whole blocks.
    pub raw_bytes: u32,
    /// How it is stored.
    pub codec: Codec,
    /// Plain BLAKE3 of the stored bytes.
    pub digest: Digest,
}

impl ChunkRef {
    /// The reference to a chunk whose stored form is `stored`, placed at `offset` of its region.
    #[must_use]
    pub fn of_stored(offset: u64, stored: &[u8], codec: Codec, raw_bytes: u32) -> Self {
        let range = ByteRange::new(offset, stored.len() as u64);
        Self { range, raw_bytes, codec, digest: chunk_digest(stored) }
    }

    /// What its stored bytes must be. Nothing looks at them before, the decoder included.
    #[must_use]
    pub const fn expected(&self) -> ExpectedBytes {
        // R25
        let part = Part::Chunk { range: self.range };
        ExpectedBytes { part, len: self.range.len, digest: self.digest, digest_of: chunk_digest }
    }

    /// The rules that hold for every chunk: sizes within limits, nothing stored larger than it is, and
    /// inside the `space` of its region's chunks. `part` is the table that states it.
    pub(crate) fn check(&self, part: Part, space: ByteRange) -> Result<(), FormatError> {
        let raw_bytes = u64::from(self.raw_bytes);
        // R24
        check::within(part, "raw bytes", raw_bytes, (BLOCK_BYTES, u64::from(MAX_CHUNK_RAW_BYTES)))?;
        check::equal(part, "raw bytes past the last whole block", 0, raw_bytes % BLOCK_BYTES)?;
        check::within(part, "stored bytes", self.range.len, (1, raw_bytes))?;
        if self.codec == Codec::Store {
            check::equal(part, "stored bytes of codec store", raw_bytes, self.range.len)?;
        }
        check::inside(part, "chunk", self.range, space)
    }
}
