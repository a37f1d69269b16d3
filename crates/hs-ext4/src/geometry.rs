//! How many blocks, groups and inodes there are, and where the tables of groups lie: all in front, one kind
//! behind the other, so that files are contiguous across groups (`flex_bg`).

use crate::bytes::BLOCK;
use crate::error::LayoutError;
use crate::inode;

/// Blocks of a group: as many as one block of a bit map describes.
pub(crate) const GROUP_BLOCKS: u64 = 8 * BLOCK as u64;
/// Inodes of a group at most, for the same reason.
const MOST_GROUP_INODES: u64 = 8 * BLOCK as u64;
const INODES_PER_BLOCK: u64 = (BLOCK / inode::BYTES) as u64;
pub(crate) const DESCRIPTOR_BYTES: usize = 64;
pub(crate) const DESCRIPTORS_PER_BLOCK: u64 = (BLOCK / DESCRIPTOR_BYTES) as u64;
/// The last group has at least so many blocks.
const LEAST_LAST_GROUP: u64 = 64;

/// Sizes that agree with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) blocks: u64,
    pub(crate) groups: u64,
    pub(crate) inodes_per_group: u64,
    /// The first block behind the tables of inodes.
    pub(crate) tables_end: u64,
}

impl Geometry {
    /// Sizes for so many inodes, and for what follows the tables: `blocks_from` says where the file system
    /// ends when the tables end at a block.
    pub(crate) fn new(inodes: u64, blocks_from: impl Fn(u64) -> u64) -> Result<Self, LayoutError> {
        let mut groups = inodes.div_ceil(MOST_GROUP_INODES).max(1);
        loop {
            let mut geometry = Self { blocks: 0, groups, inodes_per_group: 0, tables_end: 0 };
            geometry.inodes_per_group = inodes.div_ceil(groups).next_multiple_of(INODES_PER_BLOCK);
            geometry.tables_end = geometry.inode_tables() + groups * geometry.group_table_blocks();
            let least = (groups - 1) * GROUP_BLOCKS + LEAST_LAST_GROUP;
            geometry.blocks = blocks_from(geometry.tables_end).max(least);
            let needed = geometry.blocks.div_ceil(GROUP_BLOCKS);
            if geometry.block_bitmaps() > GROUP_BLOCKS / 2 {
                return Err(LayoutError::TooLarge { blocks: geometry.blocks });
            }
            if needed <= groups {
                return Ok(geometry);
            }
            groups = needed;
        }
    }

    /// The bit maps of blocks, one a group; the descriptors lie before them.
    pub(crate) fn block_bitmaps(&self) -> u64 {
        1 + self.groups.div_ceil(DESCRIPTORS_PER_BLOCK)
    }

    /// The bit maps of inodes, one a group.
    pub(crate) fn inode_bitmaps(&self) -> u64 {
        self.block_bitmaps() + self.groups
    }

    /// The inodes of all groups, in the order of their numbers.
    pub(crate) fn inode_tables(&self) -> u64 {
        self.inode_bitmaps() + self.groups
    }

    /// Blocks of inodes that a group has.
    pub(crate) fn group_table_blocks(&self) -> u64 {
        self.inodes_per_group / INODES_PER_BLOCK
    }

    /// All inodes, used or not.
    pub(crate) fn inodes(&self) -> u64 {
        self.inodes_per_group * self.groups
    }

    /// Blocks that a group has: fewer in the last one.
    pub(crate) fn group_blocks(&self, group: u64) -> u64 {
        GROUP_BLOCKS.min(self.blocks - group * GROUP_BLOCKS)
    }
}

/// Blocks that so many inodes take.
pub(crate) fn inode_blocks(inodes: u64) -> u64 {
    inodes.div_ceil(INODES_PER_BLOCK)
}
