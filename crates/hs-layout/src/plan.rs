//! The plan of a hot region.

use hs_trace::{FileMap, Profile};
use hs_units::{BLOCK_BYTES, BlockRange, Digest, Nanos};

use crate::{chunks, deadlines, hints, lead, order};

/// How several profiles are related.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Combine {
    /// Recordings of one start, which varies from run to run: they make one order, one segment.
    #[default]
    Runs,
    /// Different starts from one disk: what they share first, then a segment for each.
    Variants,
    /// The first is a start of its own, the others are recordings of another one.
    RunsBesideFirst,
}

/// How the hot region is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutOptions {
    /// Uncompressed bytes of the first chunk; a positive multiple of the block size.
    pub first_chunk_bytes: u64,
    /// Uncompressed bytes of the largest chunks; a multiple of the block size, not below the first.
    pub max_chunk_bytes: u64,
    /// How far metadata is moved forward, in uncompressed bytes of hot data.
    pub metadata_lead_bytes: u64,
    /// How several profiles are related.
    pub combine: Combine,
}

impl Default for LayoutOptions {
    /// 32 KiB, then doubling up to 256 KiB. At 25 MB/s the first chunk takes about a millisecond even
    /// uncompressed, which is less than any request's fixed cost. Beyond 256 KiB zstd gains little. Metadata
    /// leads by three of the largest chunks: one in which it arrives, one in which it is used, one in
    /// between.
    fn default() -> Self {
        Self {
            first_chunk_bytes: 32 << 10,
            max_chunk_bytes: 256 << 10,
            metadata_lead_bytes: 768 << 10,
            combine: Combine::default(),
        }
    }
}

/// One chunk of the hot region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedChunk {
    /// Its blocks: runs by address that neither overlap nor touch.
    pub extents: Vec<BlockRange>,
    /// The program's own time, by the recording that is first, until it asks for something in the chunk.
    pub needed: Nanos,
}

impl PlannedChunk {
    /// Blocks in the chunk.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.extents.iter().map(|extent| extent.count).sum()
    }
}

/// The file pages of a run of hot blocks, for pushing it into a file's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedHint {
    /// The blocks.
    pub blocks: BlockRange,
    /// The file's inode number, or 0 for metadata.
    pub inode: u64,
    /// The page of the file of the first block. For metadata it is the block number, which is its page in the
    /// block device's own page cache.
    pub page: u64,
}

/// A whole hot region, in the order in which it is stored and streamed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LayoutPlan {
    /// The chunks; every hot block is in exactly one.
    pub chunks: Vec<PlannedChunk>,
    /// File pages of the blocks, in the chunks' order; empty when no profile knows files.
    pub hints: Vec<PlannedHint>,
    /// Hot blocks.
    pub blocks: u64,
}

/// Figures of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LayoutStats {
    /// Uncompressed bytes of the hot blocks.
    pub hot_bytes: u64,
    /// Extents in all chunks.
    pub extents: u64,
    /// Chunks.
    pub chunks: u64,
    /// Hints.
    pub hints: u64,
}

impl LayoutPlan {
    /// Figures of the plan.
    #[must_use]
    pub fn stats(&self) -> LayoutStats {
        LayoutStats {
            hot_bytes: self.blocks * BLOCK_BYTES,
            extents: self.chunks.iter().map(|chunk| chunk.extents.len() as u64).sum(),
            chunks: self.chunks.len() as u64,
            hints: self.hints.len() as u64,
        }
    }
}

/// Why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Two profiles are of different disks.
    #[error("profile {index} was recorded on disk {found}, profile 0 on disk {expected}")]
    DifferentDisks {
        /// Place of the second profile in the list.
        index: usize,
        /// Disk digest of the first profile in the list.
        expected: Digest,
        /// Disk digest of the second one.
        found: Digest,
    },
    /// Chunk sizes that are not possible.
    #[error(
        "chunks of {first_chunk_bytes} to {max_chunk_bytes} bytes: sizes are positive multiples of {BLOCK_BYTES}, \
         the first not above the largest"
    )]
    ChunkSizes {
        /// As in the options.
        first_chunk_bytes: u64,
        /// As in the options.
        max_chunk_bytes: u64,
    },
}

/// Plans the hot region for starts like those recorded in `profiles`, which obey the rules of
/// [`Profile::validate`]. No profile, or none with a read, gives the empty plan.
///
/// # Errors
/// When the profiles are of different disks or the options are not valid.
pub fn plan(profiles: &[Profile], options: &LayoutOptions) -> Result<LayoutPlan, LayoutError> {
    check_options(options)?;
    check_disks(profiles)?;
    let files = FileMap::new(profiles.iter().flat_map(|profile| &profile.files));
    let led = |segment| lead::advance(segment, &files, options.metadata_lead_bytes);
    let segments = match options.combine {
        Combine::Runs => vec![order::merged(profiles)],
        Combine::Variants => order::variants(profiles),
        Combine::RunsBesideFirst => order::beside_first(profiles),
    };
    let segments: Vec<_> = segments.into_iter().map(led).collect();
    let mut chunks = chunks::cut(&segments, options);
    deadlines::fill_in(profiles, &mut chunks);
    let hints = hints::hints(profiles, &chunks);
    let blocks = chunks.iter().map(PlannedChunk::blocks).sum();
    Ok(LayoutPlan { chunks, hints, blocks })
}

fn check_options(options: &LayoutOptions) -> Result<(), LayoutError> {
    let LayoutOptions { first_chunk_bytes, max_chunk_bytes, .. } = *options;
    let whole = first_chunk_bytes.is_multiple_of(BLOCK_BYTES) && max_chunk_bytes.is_multiple_of(BLOCK_BYTES);
    if whole && first_chunk_bytes > 0 && first_chunk_bytes <= max_chunk_bytes {
        Ok(())
    } else {
        Err(LayoutError::ChunkSizes { first_chunk_bytes, max_chunk_bytes })
    }
}

fn check_disks(profiles: &[Profile]) -> Result<(), LayoutError> {
    let Some(first) = profiles.first() else { return Ok(()) };
    let expected = first.disk_digest;
    match profiles.iter().position(|profile| profile.disk_digest != expected) {
        Some(index) => {
            Err(LayoutError::DifferentDisks { index, expected, found: profiles[index].disk_digest })
        }
        None => Ok(()),
    }
}
