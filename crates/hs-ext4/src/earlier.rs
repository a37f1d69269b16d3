//! A file system of this crate, made earlier, whose places a new one keeps.

use hs_units::to_usize;

use crate::bytes::BLOCK;
use crate::geometry::{
    DESCRIPTOR_BYTES, GROUP_BLOCKS, Geometry, INODES_PER_BLOCK, LEAST_LAST_GROUP, MOST_GROUP_INODES, Span,
};
use crate::tables::{HASH_SEED, INCOMPATIBLE, MAGIC, OWN_SEED, SEED, SUPERBLOCK, VALUES, uuid_seed};
use crate::{hash, inode};

/// What of an earlier file system is the same in one that is laid out like it: sizes, the places of tables,
/// and what checksums and hashes begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Earlier {
    pub(crate) geometry: Geometry,
    pub(crate) seed: u32,
    pub(crate) hash_seed: [u32; 4],
}

/// What a node of the plan had in the earlier file system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeptNode {
    /// The number of its inode; 0 if it had none.
    pub inode: u32,
    /// The first block of its content, which lay in one piece, and how many there were; of a directory or a
    /// symbolic link too.
    pub place: Option<(u64, u64)>,
    /// Whether the content of the file is the same.
    pub is_same: bool,
}

impl Earlier {
    /// Blocks at the beginning of a disk that [`Earlier::read`] needs, if the first one begins a file system
    /// of this crate.
    #[must_use]
    pub fn needed_blocks(first_block: &[u8]) -> Option<u64> {
        Some(Self::sizes(first_block)?.descriptors_end())
    }

    /// Reads these blocks of a disk with so many. Nothing, if the file system in them is of another kind than
    /// those of this crate.
    #[must_use]
    pub fn read(blocks: &[u8], disk_blocks: u64) -> Option<Self> {
        let mut geometry = Self::sizes(blocks)?;
        let descriptors = blocks.get(BLOCK..)?.chunks_exact(DESCRIPTOR_BYTES);
        let groups = to_usize(geometry.groups);
        if geometry.blocks > disk_blocks || descriptors.len() < groups {
            return None;
        }
        for (group, descriptor) in (0..).zip(descriptors.take(groups)) {
            let block_bitmap = number(descriptor, 0x0, 4)? | number(descriptor, 0x20, 4)? << 32;
            match geometry.spans.last_mut() {
                Some(span) if span.at.checked_add(span.groups) == Some(block_bitmap) => span.groups += 1,
                _ => geometry.spans.push(Span { group, groups: 1, at: block_bitmap }),
            }
        }
        if geometry.spans[0].at != geometry.descriptors_end() {
            return None;
        }
        // All else follows from the spans.
        let mut end = 0;
        for span in &geometry.spans {
            if span.at < end || span.at > geometry.blocks || geometry.span_blocks(span).end > geometry.blocks
            {
                return None;
            }
            end = geometry.span_blocks(span).end;
        }
        for (group, descriptor) in (0..geometry.groups).zip(blocks[BLOCK..].chunks_exact(DESCRIPTOR_BYTES)) {
            let tables = geometry.tables_of(group);
            let inode_bitmap = number(descriptor, 0x4, 4)? | number(descriptor, 0x24, 4)? << 32;
            let inodes = number(descriptor, 0x8, 4)? | number(descriptor, 0x28, 4)? << 32;
            if (inode_bitmap, inodes) != (tables.inode_bitmap, tables.inodes) {
                return None;
            }
        }
        let superblock = &blocks[SUPERBLOCK..];
        let has_own_seed = number(superblock, 0x60, 4)? & OWN_SEED != 0;
        let uuid = superblock.get(0x68..0x78)?.try_into().ok()?;
        let word = |at| Some(u32::from_le_bytes(superblock.get(at..at + 4)?.try_into().ok()?));
        let seed = if has_own_seed { word(SEED)? } else { uuid_seed(uuid) };
        let mut hash_seed = [0; 4];
        for (index, part) in hash_seed.iter_mut().enumerate() {
            *part = word(HASH_SEED + 4 * index)?;
        }
        Some(Self { geometry, seed, hash_seed })
    }

    /// Blocks of the file system.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.geometry.blocks
    }

    /// What the superblock in the first block says, without spans.
    fn sizes(first_block: &[u8]) -> Option<Geometry> {
        let superblock = first_block.get(SUPERBLOCK..2 * SUPERBLOCK)?;
        let field = |at, len| number(superblock, at, len);
        let known = [
            (0x38, 2, MAGIC),
            (0x18, 4, 2),
            (0x14, 4, 0),
            (0x20, 4, GROUP_BLOCKS),
            (0x58, 2, inode::BYTES as u64),
            (0xfc, 1, hash::VERSION.into()),
            (0xfe, 2, DESCRIPTOR_BYTES as u64),
        ];
        for (at, len, value) in known {
            if field(at, len)? != value {
                return None;
            }
        }
        let blocks = field(0x4, 4)? | field(0x150, 4)? << 32;
        let groups = blocks.div_ceil(GROUP_BLOCKS);
        let inodes_per_group = field(0x28, 4)?;
        let agrees = field(0x60, 4)? & !(OWN_SEED | VALUES) == INCOMPATIBLE
            && (INODES_PER_BLOCK..=MOST_GROUP_INODES).contains(&inodes_per_group)
            && inodes_per_group.is_multiple_of(INODES_PER_BLOCK)
            && blocks >= LEAST_LAST_GROUP
            && blocks <= u64::from(u32::MAX)
            && field(0x0, 4)? == inodes_per_group * groups;
        agrees.then_some(Geometry { blocks, groups, inodes_per_group, spans: Vec::new() })
    }
}

/// A number of `len` bytes; nothing beyond the end.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut whole = [0; 8];
    whole[..len].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
    Some(u64::from_le_bytes(whole))
}
