//! Where things lie in the file, and what an overlay belongs to.

use hs_units::{BLOCK_BYTES, Digest};

/// Bytes of a block as memory has them.
pub(crate) const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks of a segment, the unit in which space is taken and given back.
pub(crate) const SEGMENT_BLOCKS: u64 = 256;
/// Bytes of a segment.
pub const SEGMENT_BYTES: u64 = SEGMENT_BLOCKS * BLOCK_BYTES;
/// The first block of the first segment; the two slots of the superblock lie before it.
pub(crate) const FIRST_BLOCK: u64 = 16;
/// The byte of the file at which segments begin.
pub const FIRST_SEGMENT_BYTE: u64 = FIRST_BLOCK * BLOCK_BYTES;
/// Segments of a file at most: 16 TiB.
pub(crate) const MAX_SEGMENTS: u32 = 1 << 24;
/// Blocks of a disk at most, as in an image: numbers of 32 bits.
pub(crate) const MAX_DISK_BLOCKS: u64 = 1 << 32;
/// Extents of a map at most, snapshots included: 1 GiB of a checkpoint.
pub(crate) const MAX_EXTENTS: u64 = 1 << 25;
/// Snapshots of an overlay at most.
pub const MAX_SNAPSHOTS: usize = 16;

/// What an overlay belongs to, and its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Distinguishes overlays of one disk: random.
    pub id: [u8; 16],
    /// Of the disk below.
    pub disk_digest: Digest,
    /// Of the disk below.
    pub disk_bytes: u64,
}

impl Identity {
    /// Blocks of the disk.
    #[must_use]
    pub const fn disk_blocks(&self) -> u64 {
        self.disk_bytes.div_ceil(BLOCK_BYTES)
    }
}

/// A segment's first block in the file.
pub(crate) const fn first_block(segment: u32) -> u64 {
    FIRST_BLOCK + segment as u64 * SEGMENT_BLOCKS
}

/// The segment that a block of the file lies in, if it lies in one.
pub(crate) fn segment_of(place: u64) -> Option<u32> {
    let segment = place.checked_sub(FIRST_BLOCK)? / SEGMENT_BLOCKS;
    u32::try_from(segment).ok().filter(|segment| *segment < MAX_SEGMENTS)
}

/// Whole segments in a file of so many bytes.
pub(crate) fn segments_in(file_bytes: u64) -> u32 {
    let segments = file_bytes.saturating_sub(FIRST_SEGMENT_BYTE) / SEGMENT_BYTES;
    segments.min(u64::from(MAX_SEGMENTS)) as u32
}

/// Numbers at fixed places of a buffer whose size the caller has checked.
pub(crate) mod field {
    /// Reads `N` bytes; zeros where the buffer ends before.
    pub(crate) fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
        let mut found = [0; N];
        if let Some(bytes) = from.get(at..at + N) {
            found.copy_from_slice(bytes);
        }
        found
    }

    pub(crate) fn u16(from: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(bytes(from, at))
    }

    pub(crate) fn u32(from: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes(from, at))
    }

    pub(crate) fn u64(from: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes(from, at))
    }

    pub(crate) fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
        into[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
