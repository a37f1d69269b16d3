//! A hot segment and its index: which blocks are stored once more, in first-access order.

use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Digest, Lba, to_u32};
use zerocopy::{FromBytes, IntoBytes};

use crate::check;
use crate::chunk::ChunkRef;
use crate::codec::Codec;
use crate::digest::{HOT_INDEX_CONTEXT, derived};
use crate::error::{FormatError, Part};
use crate::hints::Hints;
use crate::hot_map::HotMap;
use crate::hot_runs::{HotRun, StaleRuns, check_runs};
use crate::limits::{MAX_CHUNK_RAW_BYTES, MAX_DISK_BYTES, MAX_HINTS_BYTES, MAX_HOT_INDEX_BYTES};
use crate::unverified::{ExpectedBytes, Unverified};
use crate::wire::{
    EXTENT_BYTES, ExtentWire, HINT_BYTES, HOT_CHUNK_BYTES, HOT_HEADER_BYTES, HOT_INDEX_MAGIC, HotChunkWire,
    HotHeaderWire,
};
use crate::{Features, Superblock};

/// The flag of a chunk whose stored bytes lie in the hot region of the base's image.
const BORROWED: u16 = 1;

/// A hot segment, as the superblock describes it: index, hints and chunks, one right after another.
/// Ranges are absolute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotSegment {
    /// The index.
    pub index: ByteRange,
    /// The hints; may be empty.
    pub hints: ByteRange,
    /// The chunks.
    pub chunks: ByteRange,
    /// The index's digest.
    pub index_digest: Digest,
    /// The hints' digest, also when they are empty.
    pub hints_digest: Digest,
    /// Blocks in the segment.
    pub blocks: u64,
    /// Chunks in the segment.
    pub chunk_count: u32,
    /// Milliseconds that the recorded program computed until it was ready, without its waits for storage;
    /// zero if that is not known.
    pub own_ms: u32,
}

impl HotSegment {
    /// The segment of an encoded index and encoded hints, placed at `offset` of the file.
    #[must_use]
    pub fn placed_at(offset: u64, index: &HotIndex, hints: &Hints) -> Self {
        let (index_bytes, hints_bytes) = (index.encode(), hints.encode());
        let index_range = ByteRange::new(offset, index_bytes.len() as u64);
        let hints_range = ByteRange::new(index_range.end(), hints_bytes.len() as u64);
        Self {
            index: index_range,
            hints: hints_range,
            chunks: ByteRange::new(hints_range.end(), index.chunks_bytes()),
            index_digest: HotIndex::digest_of(&index_bytes),
            hints_digest: Hints::digest_of(&hints_bytes),
            blocks: index.blocks(),
            chunk_count: to_u32(index.chunks.len() as u64),
            own_ms: 0,
        }
    }

    /// The whole segment in the file: what one sequential read brings.
    #[must_use]
    pub const fn range(&self) -> ByteRange {
        ByteRange::new(self.index.offset, self.index.len + self.hints.len + self.chunks.len)
    }

    /// The range in the file of a chunk's range, which is relative to [`Self::chunks`].
    #[must_use]
    pub const fn in_file(&self, relative: ByteRange) -> ByteRange {
        ByteRange::new(self.chunks.offset + relative.offset, relative.len)
    }

    /// The rules between the segment's own fields, in a file of `image_bytes`.
    pub(crate) fn check(
        &self,
        disk_blocks: u64,
        image_bytes: u64,
        features: Features,
    ) -> Result<(), FormatError> {
        let part = Part::Superblock;
        let file = ByteRange::new(0, image_bytes);
        // R11
        check::within(part, "hot blocks", self.blocks, (1, disk_blocks))?;
        check::within(part, "hot chunks", self.chunk_count.into(), (1, self.blocks))?;
        // Each chunk has an entry and at least one extent.
        let least_index =
            (HOT_HEADER_BYTES as u64) + u64::from(self.chunk_count) * (HOT_CHUNK_BYTES + EXTENT_BYTES) as u64;
        check::within(part, "hot index bytes", self.index.len, (least_index, MAX_HOT_INDEX_BYTES.into()))?;
        check::within(part, "hints bytes", self.hints.len, (0, MAX_HINTS_BYTES.into()))?;
        check::equal(part, "hints bytes past the last whole hint", 0, self.hints.len % HINT_BYTES as u64)?;
        // R60: stale blocks do not count.
        let most_chunk_bytes = match features.has_stale() {
            true => u64::from(self.chunk_count) * u64::from(MAX_CHUNK_RAW_BYTES),
            false => self.blocks * BLOCK_BYTES,
        };
        // R56: borrowed chunks have no bytes here.
        let least_chunk_bytes = if features.borrows() { 0 } else { self.chunk_count.into() };
        let chunk_bytes = (least_chunk_bytes, most_chunk_bytes);
        check::within(part, "hot chunks bytes", self.chunks.len, chunk_bytes)?;
        // R3
        check::inside(part, "hot index", self.index, file)?;
        check::equal(part, "hints offset", self.index.end(), self.hints.offset)?;
        check::inside(part, "hints", self.hints, file)?;
        check::equal(part, "hot chunks offset", self.hints.end(), self.chunks.offset)?;
        check::inside(part, "hot chunks", self.chunks, file)
    }
}

/// One chunk of a hot segment: its raw bytes are the blocks of its extents, one after another, with the stale
/// ones of [`HotIndex::runs_of`] among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotChunk {
    /// The stored chunk, relative to the segment's chunks. A borrowed one has no bytes there: its offset is
    /// that of the next own one.
    pub chunk: ChunkRef,
    /// Whether its stored bytes are those of a hot chunk of the base's image, with the same digest.
    pub is_borrowed: bool,
    /// The number of its first extent.
    pub first_extent: u32,
    /// Its extents.
    pub extent_count: u32,
    /// Blocks of its raw bytes that are none of the disk.
    pub stale_blocks: u32,
    /// The recorded program's own time, in milliseconds, until it asked for something in the chunk: without
    /// what it waited for storage. Zero of all chunks where nothing is known.
    pub needed_ms: u32,
}

impl HotChunk {
    /// Where the chunk behind it lies.
    const fn next_offset(&self) -> u64 {
        if self.is_borrowed { self.chunk.range.offset } else { self.chunk.range.end() }
    }

    /// The rules of its chunk, where own ones lie in `space`.
    fn check(&self, part: Part, space: ByteRange) -> Result<(), FormatError> {
        // R56: the bytes of a borrowed one lie elsewhere.
        self.chunk.check(part, if self.is_borrowed { self.chunk.range } else { space })
    }
}

/// Where a hot block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotPlace {
    /// The chunk's number in the segment.
    pub chunk: u32,
    /// The block's position in the chunk's raw bytes, in blocks.
    pub block_in_chunk: u32,
    /// Consecutive blocks from this one on, itself included, that its extent holds.
    pub run: u32,
}

/// The verified index of one hot segment. The public tables are for reading: the map behind
/// [`Self::lookup`] is made from them once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotIndex {
    /// Chunks in the order of the file, which is first-access order.
    pub chunks: Vec<HotChunk>,
    /// Extents of all chunks, in that order.
    pub extents: Vec<BlockRange>,
    stale: StaleRuns,
    map: HotMap,
}

impl HotIndex {
    /// Checks the digest of `bytes`, then reads them.
    ///
    /// # Errors
    /// [`FormatError::Size`] and [`FormatError::DigestMismatch`] when these are not the segment's bytes;
    /// others when the bytes break a rule although their digest is right.
    pub fn decode(
        bytes: Unverified<&[u8]>,
        segment: &HotSegment,
        superblock: &Superblock,
    ) -> Result<Self, FormatError> {
        let part = Part::HotIndex { offset: segment.index.offset };
        let bytes = bytes.verify(&ExpectedBytes {
            part,
            len: segment.index.len,
            digest: segment.index_digest,
            digest_of: Self::digest_of,
        })?;
        let too_short =
            FormatError::Size { part, expected: HOT_HEADER_BYTES as u64, found: bytes.len() as u64 };
        let (header, tables) = HotHeaderWire::ref_from_prefix(bytes).map_err(|_| too_short)?;
        if header.magic != HOT_INDEX_MAGIC {
            return Err(FormatError::BadMagic { part, expected: HOT_INDEX_MAGIC, found: header.magic });
        }
        let (chunk_count, extent_count) = (header.chunk_count.get(), header.extent_count.get());
        // R17
        check::equal(part, "chunk count", segment.chunk_count.into(), chunk_count.into())?;
        check::equal(part, "blocks", segment.blocks, header.blocks.get())?;
        check::equal(part, "chunks bytes", segment.chunks.len, header.chunks_bytes.get())?;
        // 32-bit counts times small sizes cannot overflow 64 bits, and nothing is allocated before they
        // are known to be those of the bytes at hand.
        let expected = HOT_HEADER_BYTES as u64
            + u64::from(chunk_count) * HOT_CHUNK_BYTES as u64
            + u64::from(extent_count) * EXTENT_BYTES as u64;
        let size = FormatError::Size { part, expected, found: bytes.len() as u64 };
        if bytes.len() as u64 != expected {
            return Err(size);
        }
        let (chunks, extents) = tables.split_at(chunk_count as usize * HOT_CHUNK_BYTES);
        let (Ok(chunks), Ok(extents)) =
            (<[HotChunkWire]>::ref_from_bytes(chunks), <[ExtentWire]>::ref_from_bytes(extents))
        else {
            return Err(size);
        };
        let disk_blocks = superblock.geometry().disk_blocks();
        let runs = extents.iter().map(|entry| {
            // R21; overlaps are found by `HotMap`.
            HotRun::read(part, entry, disk_blocks, superblock.features.has_stale())
        });
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        let HotIndexBuilder { chunks, extents, stale } =
            decode_chunks(part, chunks, &runs, segment, superblock.features)?;
        let map = HotMap::new(part, &chunks, &extents)?;
        // R20
        let blocks = extents.iter().map(|extent| extent.count).sum();
        check::equal(part, "blocks", blocks, segment.blocks)?;
        Ok(Self { chunks, extents, stale, map })
    }

    /// The index's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let header = HotHeaderWire {
            magic: HOT_INDEX_MAGIC,
            chunk_count: to_u32(self.chunks.len() as u64).into(),
            extent_count: to_u32((self.extents.len() + self.stale.count()) as u64).into(),
            blocks: self.blocks().into(),
            chunks_bytes: self.chunks_bytes().into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        let mut runs = Vec::new();
        for (number, hot) in (0..).zip(&self.chunks) {
            let first_extent = to_u32(runs.len() as u64);
            runs.extend(self.runs_of(number));
            let entry = HotChunkWire {
                offset: hot.chunk.range.offset.into(),
                stored_bytes: to_u32(hot.chunk.range.len).into(),
                raw_bytes: hot.chunk.raw_bytes.into(),
                codec: hot.chunk.codec.to_u16().into(),
                flags: if hot.is_borrowed { BORROWED } else { 0 }.into(),
                first_extent: first_extent.into(),
                extent_count: (to_u32(runs.len() as u64) - first_extent).into(),
                needed_ms: hot.needed_ms.into(),
                digest: hot.chunk.digest.0,
            };
            bytes.extend_from_slice(entry.as_bytes());
        }
        runs.iter().for_each(|run| bytes.extend_from_slice(run.wire().as_bytes()));
        bytes
    }

    /// The digest of an encoded index.
    #[must_use]
    pub fn digest_of(bytes: &[u8]) -> Digest {
        derived(HOT_INDEX_CONTEXT, bytes)
    }

    /// Blocks of the disk in the segment.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.extents.iter().map(|extent| extent.count).sum()
    }

    /// Bytes of the segment's chunks.
    #[must_use]
    pub fn chunks_bytes(&self) -> u64 {
        self.chunks.last().map_or(0, HotChunk::next_offset)
    }

    /// The extents of the chunk with this number.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn extents_of(&self, chunk: u32) -> &[BlockRange] {
        let hot = &self.chunks[chunk as usize];
        let first = hot.first_extent as usize;
        &self.extents[first..first + hot.extent_count as usize]
    }

    /// What the raw bytes of the chunk with this number are.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn runs_of(&self, chunk: u32) -> Vec<HotRun> {
        self.stale.runs(chunk, self.extents_of(chunk))
    }

    /// Whether chunks have blocks that are none of the disk.
    #[must_use]
    pub fn has_stale(&self) -> bool {
        self.stale.count() > 0
    }

    /// Where the block lies in this segment, if it does.
    #[must_use]
    pub fn lookup(&self, lba: Lba) -> Option<HotPlace> {
        self.map.lookup(lba)
    }

    /// The lowest block of this segment that is greater than `lba`: where a run of cold blocks from `lba`
    /// ends.
    #[must_use]
    pub fn next_hot_after(&self, lba: Lba) -> Option<Lba> {
        self.map.next_hot_after(lba)
    }
}

/// Reads the chunk table. Chunks and their extents follow one another without gaps, so that no stored
/// byte and no extent belongs to two chunks or to none.
fn decode_chunks(
    part: Part,
    entries: &[HotChunkWire],
    runs: &[HotRun],
    segment: &HotSegment,
    features: Features,
) -> Result<HotIndexBuilder, FormatError> {
    let space = ByteRange::new(0, segment.chunks.len);
    let (mut next_offset, mut next_extent) = (0_u64, 0_u32);
    let mut index = HotIndexBuilder::new();
    for (i, entry) in entries.iter().enumerate() {
        let at = HOT_HEADER_BYTES + i * HOT_CHUNK_BYTES;
        // R56, and R1 for all other flags.
        let is_borrowed = features.borrows() && entry.flags.get() == BORROWED;
        if !is_borrowed {
            check::zero(part, at + 18, entry.flags.as_bytes())?;
        }
        let codec = Codec::from_u16(entry.codec.get(), part)?;
        // R31
        if codec == Codec::Composed {
            return Err(FormatError::MisplacedComposed { part });
        }
        let chunk = ChunkRef {
            range: ByteRange::new(entry.offset.get(), entry.stored_bytes.get().into()),
            raw_bytes: entry.raw_bytes.get(),
            codec,
            digest: Digest(entry.digest),
        };
        // R48
        if !chunk.has_digest() {
            return Err(FormatError::ChunkDigest { part, expected: true });
        }
        let (first_extent, extent_count) = (entry.first_extent.get(), entry.extent_count.get());
        // R19
        check::equal(part, "first extent", next_extent.into(), first_extent.into())?;
        let left = runs.len() - first_extent as usize;
        check::within(part, "extent count", extent_count.into(), (1, left as u64))?;
        next_extent = first_extent + extent_count;
        // R18
        check::equal(part, "chunk offset", next_offset, chunk.range.offset)?;
        let runs = &runs[first_extent as usize..next_extent as usize];
        check_runs(part, runs)?;
        let hot = index.add(chunk, runs, is_borrowed);
        hot.check(part, space)?;
        next_offset = hot.next_offset();
        index.needed_by(entry.needed_ms.get());
        let blocks: u64 = runs.iter().map(HotRun::blocks).sum();
        check::equal(part, "raw bytes", blocks * BLOCK_BYTES, chunk.raw_bytes.into())?;
    }
    check::equal(part, "extents in chunks", runs.len() as u64, next_extent.into())?;
    check::equal(part, "chunks bytes", segment.chunks.len, next_offset)?;
    Ok(index)
}

/// Collects the chunks of a segment in first-access order.
#[derive(Clone, Debug, Default)]
pub struct HotIndexBuilder {
    chunks: Vec<HotChunk>,
    extents: Vec<BlockRange>,
    stale: StaleRuns,
}

impl HotIndexBuilder {
    /// An index without chunks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the next chunk starts, relative to the segment's chunks.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.chunks.last().map_or(0, HotChunk::next_offset)
    }

    /// Appends the chunk whose stored form is `stored` and whose raw bytes are the blocks of `extents`, one
    /// after another; gives its number.
    pub fn push(&mut self, stored: &[u8], codec: Codec, extents: &[BlockRange]) -> u32 {
        let blocks: u64 = extents.iter().map(|run| run.count).sum();
        // One that does not fit is too large, and `finish` refuses it.
        let raw_bytes = u32::try_from(blocks.saturating_mul(BLOCK_BYTES)).unwrap_or(u32::MAX);
        self.push_ref(ChunkRef::of_stored(self.next_offset(), stored, codec, raw_bytes), extents)
    }

    /// Says by when the last chunk is needed: see [`HotChunk::needed_ms`].
    pub fn needed_by(&mut self, needed_ms: u32) {
        if let Some(last) = self.chunks.last_mut() {
            last.needed_ms = needed_ms;
        }
    }

    /// As [`Self::push`], with a reference computed elsewhere; its offset is set here.
    pub fn push_ref(&mut self, mut chunk: ChunkRef, extents: &[BlockRange]) -> u32 {
        let runs: Vec<HotRun> = extents.iter().copied().map(HotRun::Disk).collect();
        chunk.range.offset = self.next_offset();
        self.add(chunk, &runs, false);
        to_u32(self.chunks.len() as u64) - 1
    }

    /// As [`Self::push_ref`], of a chunk that may have blocks that are none of the disk, and whose stored
    /// bytes the base's image has in its hot region where it `is_borrowed`.
    pub fn push_runs(&mut self, mut chunk: ChunkRef, runs: &[HotRun], is_borrowed: bool) {
        chunk.range.offset = self.next_offset();
        self.add(chunk, runs, is_borrowed);
    }

    fn add(&mut self, chunk: ChunkRef, runs: &[HotRun], is_borrowed: bool) -> HotChunk {
        let (number, first_extent) = (to_u32(self.chunks.len() as u64), to_u32(self.extents.len() as u64));
        let (extent_count, stale_blocks) = self.stale.add(number, runs, &mut self.extents);
        let hot = HotChunk { chunk, is_borrowed, first_extent, extent_count, stale_blocks, needed_ms: 0 };
        self.chunks.push(hot);
        hot
    }

    fn runs(&self) -> usize {
        self.extents.len() + self.stale.count()
    }

    /// The index of a disk of `disk_blocks`, by the same rules that a reader applies.
    ///
    /// # Errors
    /// When an extent is empty, leaves the disk or shares a block with another; when a chunk is too large
    /// or does not match its extents; when there is no chunk, or the index would exceed its limit.
    pub fn finish(self, disk_blocks: u64) -> Result<HotIndex, FormatError> {
        let part = Part::HotIndex { offset: 0 };
        let bytes = HOT_HEADER_BYTES + self.chunks.len() * HOT_CHUNK_BYTES + self.runs() * EXTENT_BYTES;
        check::within(part, "disk blocks", disk_blocks, (1, MAX_DISK_BYTES / BLOCK_BYTES))?;
        check::within(part, "chunk count", self.chunks.len() as u64, (1, u32::MAX.into()))?;
        check::within(part, "hot index bytes", bytes as u64, (1, MAX_HOT_INDEX_BYTES.into()))?;
        let space = ByteRange::new(0, self.next_offset());
        for &run in &self.extents {
            check::on_disk(part, run, disk_blocks)?;
        }
        for hot in &self.chunks {
            hot.check(part, space)?;
            let first = hot.first_extent as usize;
            let runs = &self.extents[first..first + hot.extent_count as usize];
            let blocks = runs.iter().map(|run| run.count).sum::<u64>() + u64::from(hot.stale_blocks);
            check::equal(part, "raw bytes", blocks * BLOCK_BYTES, hot.chunk.raw_bytes.into())?;
        }
        let map = HotMap::new(part, &self.chunks, &self.extents)?;
        Ok(HotIndex { chunks: self.chunks, extents: self.extents, stale: self.stale, map })
    }
}

#[cfg(test)]
#[path = "hot_tests.rs"]
mod tests;
