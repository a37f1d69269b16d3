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

    /// Whether it is known what its bytes must be: it is, but for windows of a disk that was not read.
    #[must_use]
    pub fn has_digest(&self) -> bool {
        self.digest != Digest::default()
    }

    /// What its stored bytes must be. Nothing looks at them before, the decoder included.
    #[must_use]
    pub fn expected(&self) -> ExpectedBytes {
        let part = Part::Chunk { range: self.range };
        // R25, but for windows of a disk that was not read (R48): tables refuse chunks without a digest
        // elsewhere.
        let digest_of = if self.has_digest() { chunk_digest } else { no_digest };
        ExpectedBytes { part, len: self.range.len, digest: self.digest, digest_of }
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

/// In place of a digest that there is not.
fn no_digest(_: &[u8]) -> Digest {
    Digest::default()
}
