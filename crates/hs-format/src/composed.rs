//! Composed chunks: cold windows some of whose blocks lie on the disk of another image, the base.
//!
//! ```text
//! 0                 for each block of the window, a u32: its number on the base, or 0xffff_ffff: its own
//! 4 × blocks        the codec of the own blocks, a u16
//! 4 × blocks + 2    the digest of the whole window
//! 4 × blocks + 34   the own blocks one after another, stored by the codec
//! ```

use hs_units::{BLOCK_BYTES, BlockRange, Digest, Lba, to_u32, to_usize};

use crate::check;
use crate::chunk::ChunkRef;
use crate::codec::{Codec, Decompressor};
use crate::digest::plain;
use crate::error::{FormatError, Part};
use crate::superblock::BaseRef;

/// What stands in place of a number for a block that the chunk has itself.
const OWN: u32 = u32::MAX;
/// Bytes of a block's number.
const NUMBER_BYTES: usize = 4;
/// Bytes of the inner codec's number.
const CODEC_BYTES: usize = 2;
const DIGEST_BYTES: usize = 32;
const BLOCK: usize = to_usize(BLOCK_BYTES);

/// A run of blocks that a window has from the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BaseRun {
    /// The first one's number in the window.
    pub block_in_window: u32,
    /// Where they lie on the base.
    pub blocks: BlockRange,
}

/// The verified stored bytes of a composed chunk, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Composed<'a> {
    part: Part,
    places: Vec<Option<Lba>>,
    codec: Codec,
    digest: Digest,
    own: &'a [u8],
}

impl<'a> Composed<'a> {
    /// Reads the stored bytes of `chunk`, whose digest was checked.
    ///
    /// # Errors
    /// When they break a rule of the format, or mean a block that the base does not have.
    pub fn decode(chunk: &ChunkRef, stored: &'a [u8], base: &BaseRef) -> Result<Self, FormatError> {
        let part = Part::Chunk { range: chunk.range };
        let blocks = to_usize(u64::from(chunk.raw_bytes) / BLOCK_BYTES);
        let header_bytes = blocks * NUMBER_BYTES + CODEC_BYTES + DIGEST_BYTES;
        // R32
        let Some((header, own)) = stored.split_at_checked(header_bytes) else {
            let (expected, found) = (header_bytes as u64, stored.len() as u64);
            return Err(FormatError::Size { part, expected, found });
        };
        let (numbers, rest) = header.split_at(blocks * NUMBER_BYTES);
        let (codec, digest_bytes) = rest.split_at(CODEC_BYTES);
        let mut digest = Digest::default();
        digest.0.copy_from_slice(digest_bytes);
        let (numbers, _) = numbers.as_chunks::<NUMBER_BYTES>();
        let mut places = Vec::with_capacity(blocks);
        for number in numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)) {
            let place = (number != OWN).then(|| Lba(number.into()));
            if let Some(lba) = place {
                check::on_disk(part, BlockRange::new(lba, 1), base.disk_bytes / BLOCK_BYTES)?;
            }
            places.push(place);
        }
        let own_bytes = places.iter().filter(|place| place.is_none()).count() as u64 * BLOCK_BYTES;
        let most_own_bytes = u64::from(chunk.raw_bytes).saturating_sub(BLOCK_BYTES);
        check::within(part, "bytes of own blocks", own_bytes, (0, most_own_bytes))?;
        // R33
        let codec = Codec::from_u16(u16::from_le_bytes([codec[0], codec[1]]), part)?;
        if codec == Codec::Composed {
            return Err(FormatError::MisplacedComposed { part });
        }
        let stored_bytes = own.len() as u64;
        check::within(part, "stored bytes of own blocks", stored_bytes, (own_bytes.min(1), own_bytes))?;
        if codec == Codec::Store || own_bytes == 0 {
            check::equal(part, "codec of own blocks", Codec::Store.to_u16().into(), codec.to_u16().into())?;
            check::equal(part, "stored bytes of own blocks", own_bytes, stored_bytes)?;
        }
        let part = Part::Window { range: chunk.range };
        Ok(Self { part, places, codec, digest, own })
    }

    /// The stored bytes of `window` whose blocks lie at these places of the base; `own` are the others, one
    /// after another, stored by `codec`.
    ///
    /// # Panics
    /// When a place is beyond the largest disk.
    #[must_use]
    pub fn encode(window: &[u8], places: &[Option<Lba>], codec: Codec, own: &[u8]) -> Vec<u8> {
        let header_bytes = places.len() * NUMBER_BYTES + CODEC_BYTES + DIGEST_BYTES;
        let mut stored = Vec::with_capacity(header_bytes + own.len());
        for place in places {
            stored.extend(place.map_or(OWN, |lba| to_u32(lba.0)).to_le_bytes());
        }
        stored.extend(codec.to_u16().to_le_bytes());
        stored.extend(plain(window).0);
        stored.extend(own);
        stored
    }

    /// The runs of blocks that come from the base, in the order of the window.
    pub fn base_runs(&self) -> impl Iterator<Item = BaseRun> {
        let mut runs: Vec<BaseRun> = Vec::new();
        for (number, place) in self.places.iter().enumerate() {
            let Some(lba) = *place else { continue };
            let number = to_u32(number as u64);
            match runs.last_mut() {
                Some(run) if follows(run, number, lba) => run.blocks.count += 1,
                _ => runs.push(BaseRun { block_in_window: number, blocks: BlockRange::new(lba, 1) }),
            }
        }
        runs.into_iter()
    }

    /// Decodes the own blocks into their places in the `window`, whose other bytes stay.
    ///
    /// # Errors
    /// When the codec cannot decode them, or to another size.
    ///
    /// # Panics
    /// When `window` has another size than the chunk has raw bytes.
    pub fn own_into(&self, tools: &mut Decompressor, window: &mut [u8]) -> Result<(), FormatError> {
        assert_eq!(window.len(), self.places.len() * BLOCK, "the window is the chunk's");
        let own_blocks = self.places.iter().filter(|place| place.is_none()).count() as u64;
        if own_blocks == 0 {
            return Ok(());
        }
        let raw = tools.decompress(self.codec, self.own, to_u32(own_blocks * BLOCK_BYTES))?;
        let mut own = raw.chunks_exact(BLOCK);
        for (block, place) in window.chunks_exact_mut(BLOCK).zip(&self.places) {
            if place.is_none()
                && let Some(own) = own.next()
            {
                block.copy_from_slice(own);
            }
        }
        tools.reuse(raw);
        Ok(())
    }

    /// Checks the whole `window`, with its blocks of the base.
    ///
    /// # Errors
    /// [`FormatError::DigestMismatch`]: the base is another disk than its digest says.
    pub fn check(&self, window: &[u8]) -> Result<(), FormatError> {
        let (expected, found) = (self.digest, plain(window));
        // R35
        if found == expected {
            Ok(())
        } else {
            Err(FormatError::DigestMismatch { part: self.part, expected, found })
        }
    }
}

/// Whether a block goes on where a run ends, in the window and on the base.
fn follows(run: &BaseRun, block_in_window: u32, lba: Lba) -> bool {
    u64::from(block_in_window) == u64::from(run.block_in_window) + run.blocks.count && lba == run.blocks.end()
}
