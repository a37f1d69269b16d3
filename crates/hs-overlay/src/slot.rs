//! The superblock: what an overlay belongs to, where its last map is, and where its log goes on. It lies in
//! two slots, one block each; the valid one with the higher generation counts.

use hs_units::Digest;

use crate::error::{DamagedPart, OverlayError};
use crate::layout::{
    BLOCK, Identity, MAX_DISK_BLOCKS, MAX_EXTENTS, MAX_SEGMENTS, MAX_SNAPSHOTS, SEGMENT_BLOCKS,
    SEGMENT_BYTES, field,
};

/// The first bytes of an overlay.
pub const MAGIC: &[u8; 8] = b"HSKEEP\0\0";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = BLOCK - 32;
const SEGMENTS_AT: usize = 208;
/// Segments that a checkpoint lies in, at most.
pub(crate) const MAX_CHECKPOINT_SEGMENTS: usize = (CHECKSUM_AT - SEGMENTS_AT) / 4;
const CHECKSUM_CONTEXT: &str = "headstart 2026-11-28 draft 1 overlay superblock";

/// Where the next record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) segment: u32,
    /// Blocks of the segment that are used; all of them where the log goes on in `next`.
    pub(crate) block: u64,
    pub(crate) next: u32,
    /// Number of the last record.
    pub(crate) sequence: u64,
    /// Its digest: the record behind it names it.
    pub(crate) chain: [u8; 32],
}

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) identity: Identity,
    pub(crate) generation: u64,
    /// Of the records behind the checkpoint: each opening has its own.
    pub(crate) epoch: u64,
    pub(crate) log: LogEnd,
    /// The checkpoint: extents of the map, of all snapshots, bytes, digest, and where it lies.
    pub(crate) extents: u64,
    pub(crate) snapshots: u32,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) checkpoint_digest: [u8; 32],
    pub(crate) checkpoint_segments: Vec<u32>,
}

impl Slot {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let mut put = |at, bytes: &[u8]| field::put(&mut block, at, bytes);
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(BLOCK as u32).to_le_bytes());
        put(16, &self.identity.id);
        put(32, &self.identity.disk_digest.0);
        put(64, &self.identity.disk_bytes.to_le_bytes());
        put(72, &self.generation.to_le_bytes());
        put(80, &self.epoch.to_le_bytes());
        put(88, &self.log.sequence.to_le_bytes());
        put(96, &self.log.chain);
        put(128, &self.log.segment.to_le_bytes());
        put(132, &(self.log.block as u32).to_le_bytes());
        put(136, &self.log.next.to_le_bytes());
        put(140, &self.snapshots.to_le_bytes());
        put(144, &self.extents.to_le_bytes());
        put(152, &self.checkpoint_bytes.to_le_bytes());
        put(160, &self.checkpoint_digest);
        put(192, &(self.checkpoint_segments.len() as u32).to_le_bytes());
        for (number, segment) in self.checkpoint_segments.iter().enumerate() {
            put(SEGMENTS_AT + 4 * number, &segment.to_le_bytes());
        }
        let checksum = checksum(&block[..CHECKSUM_AT]);
        field::put(&mut block, CHECKSUM_AT, &checksum);
        block
    }

    /// The slot in these bytes. None where they are none: torn, or never written.
    pub(crate) fn decode(block: &[u8]) -> Result<Option<Self>, OverlayError> {
        if block.len() < BLOCK || !block.starts_with(MAGIC) {
            return Ok(None);
        }
        if field::bytes(block, CHECKSUM_AT) != checksum(&block[..CHECKSUM_AT]) {
            return Ok(None);
        }
        // R39: the version, after the checksum: a slot of any version has it at this place.
        let version = field::u32(block, 8);
        if version != VERSION {
            return Err(OverlayError::Version { found: version, known: VERSION });
        }
        let segments = field::u32(block, 192) as usize;
        if segments > MAX_CHECKPOINT_SEGMENTS {
            return Err(damaged("names more segments of its map than it has room for"));
        }
        let slot = Self {
            identity: Identity {
                id: field::bytes(block, 16),
                disk_digest: Digest(field::bytes(block, 32)),
                disk_bytes: field::u64(block, 64),
            },
            generation: field::u64(block, 72),
            epoch: field::u64(block, 80),
            log: LogEnd {
                sequence: field::u64(block, 88),
                chain: field::bytes(block, 96),
                segment: field::u32(block, 128),
                block: field::u32(block, 132).into(),
                next: field::u32(block, 136),
            },
            snapshots: field::u32(block, 140),
            extents: field::u64(block, 144),
            checkpoint_bytes: field::u64(block, 152),
            checkpoint_digest: field::bytes(block, 160),
            checkpoint_segments: (0..segments).map(|at| field::u32(block, SEGMENTS_AT + 4 * at)).collect(),
        };
        slot.check(block)?;
        Ok(Some(slot))
    }

    /// R40: the numbers are within their limits and agree.
    fn check(&self, block: &[u8]) -> Result<(), OverlayError> {
        let segments = self.checkpoint_segments.len();
        let unused = &block[SEGMENTS_AT + 4 * segments..CHECKSUM_AT];
        if field::u32(block, 12) != BLOCK as u32
            || block[196..SEGMENTS_AT].iter().chain(unused).any(|b| *b != 0)
        {
            return Err(damaged("has bytes that mean nothing"));
        }
        let disk_blocks = self.identity.disk_blocks();
        let bytes = self.identity.disk_bytes;
        if bytes == 0 || disk_blocks > MAX_DISK_BLOCKS || !bytes.is_multiple_of(BLOCK as u64) {
            return Err(damaged("names a disk of an impossible size"));
        }
        let too_large = |what, found, limit| Err(OverlayError::TooLarge { what, found, limit });
        if self.extents > MAX_EXTENTS {
            return too_large("extents of the map", self.extents, MAX_EXTENTS);
        }
        if self.snapshots as usize > MAX_SNAPSHOTS {
            return too_large("snapshots", self.snapshots.into(), MAX_SNAPSHOTS as u64);
        }
        if self.checkpoint_bytes.div_ceil(SEGMENT_BYTES) != segments as u64 {
            return Err(damaged("names another number of segments than its map has"));
        }
        let log = &self.log;
        if log.segment == log.next || log.segment.max(log.next) >= MAX_SEGMENTS || log.block > SEGMENT_BLOCKS
        {
            return Err(damaged("has a log that ends at an impossible place"));
        }
        let mut all = self.checkpoint_segments.clone();
        all.extend([log.segment, log.next]);
        all.sort_unstable();
        if all.windows(2).any(|pair| pair[0] == pair[1])
            || all.last().is_some_and(|last| *last >= MAX_SEGMENTS)
        {
            return Err(damaged("gives one segment two uses"));
        }
        Ok(())
    }
}

/// Where the checkpoint lies, and its bytes, as a slot says that may be wrong.
pub(crate) fn checkpoint_of(block: &[u8]) -> (Vec<u32>, u64) {
    let segments = (field::u32(block, 192) as usize).min(MAX_CHECKPOINT_SEGMENTS);
    let segments: Vec<u32> = (0..segments).map(|at| field::u32(block, SEGMENTS_AT + 4 * at)).collect();
    let most = segments.len() as u64 * SEGMENT_BYTES;
    (segments, field::u64(block, 152).min(most))
}

/// Makes the digests of a slot right.
pub(crate) fn seal(block: &mut [u8], checkpoint_digest: &[u8; 32]) {
    field::put(block, 160, checkpoint_digest);
    let checksum = checksum(&block[..CHECKSUM_AT]);
    field::put(block, CHECKSUM_AT, &checksum);
}

fn damaged(why: &'static str) -> OverlayError {
    OverlayError::Damaged { part: DamagedPart::Superblock, why }
}

fn checksum(bytes: &[u8]) -> [u8; 32] {
    blake3::derive_key(CHECKSUM_CONTEXT, bytes)
}
