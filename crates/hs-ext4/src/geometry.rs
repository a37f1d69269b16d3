//! How many blocks, groups and inodes there are, and where the tables of groups lie: all in front, one kind
//! behind the other, so that files are contiguous across groups (`flex_bg`). A file system that grew from an
//! earlier one has those of its further groups elsewhere, in the same order.

use std::ops::Range;

use crate::bytes::BLOCK;
use crate::error::LayoutError;
use crate::inode;

/// Blocks of a group: as many as one block of a bit map describes.
pub(crate) const GROUP_BLOCKS: u64 = 8 * BLOCK as u64;
/// Inodes of a group at most, for the same reason.
pub(crate) const MOST_GROUP_INODES: u64 = 8 * BLOCK as u64;
pub(crate) const INODES_PER_BLOCK: u64 = (BLOCK / inode::BYTES) as u64;
pub(crate) const DESCRIPTOR_BYTES: usize = 64;
pub(crate) const DESCRIPTORS_PER_BLOCK: u64 = (BLOCK / DESCRIPTOR_BYTES) as u64;
/// The last group has at least so many blocks.
pub(crate) const LEAST_LAST_GROUP: u64 = 64;

/// Tables of consecutive groups that lie together: bit maps of blocks, bit maps of inodes, inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// The first group.
    pub(crate) group: u64,
    pub(crate) groups: u64,
    /// The first block.
    pub(crate) at: u64,
}

/// Where the tables of a group lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupTables {
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
    pub(crate) inodes: u64,
}

/// Sizes that agree with each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) blocks: u64,
    pub(crate) groups: u64,
    pub(crate) inodes_per_group: u64,
    /// Ascending, of all groups.
    pub(crate) spans: Vec<Span>,
}

impl Geometry {
    /// Sizes for so many inodes, and for what follows the tables: `blocks_from` says where the file system
    /// ends when the tables end at a block.
    pub(crate) fn new(inodes: u64, blocks_from: impl Fn(u64) -> u64) -> Result<Self, LayoutError> {
        let mut groups = inodes.div_ceil(MOST_GROUP_INODES).max(1);
        loop {
            let spans = vec![Span { group: 0, groups, at: 1 + groups.div_ceil(DESCRIPTORS_PER_BLOCK) }];
            let mut geometry = Self { blocks: 0, groups, inodes_per_group: 0, spans };
            geometry.inodes_per_group = inodes.div_ceil(groups).next_multiple_of(INODES_PER_BLOCK);
            let least = (groups - 1) * GROUP_BLOCKS + LEAST_LAST_GROUP;
            geometry.blocks = blocks_from(geometry.tables_end()).max(least);
            let needed = geometry.blocks.div_ceil(GROUP_BLOCKS);
            if geometry.descriptors_end() > GROUP_BLOCKS / 2 {
                return Err(LayoutError::TooLarge { blocks: geometry.blocks });
            }
            if needed <= groups {
                return Ok(geometry);
            }
            groups = needed;
        }
    }

    /// The block behind the descriptors, which follow the superblock.
    pub(crate) fn descriptors_end(&self) -> u64 {
        1 + self.groups.div_ceil(DESCRIPTORS_PER_BLOCK)
    }

    /// The first block behind the tables that lie together with the descriptors.
    pub(crate) fn tables_end(&self) -> u64 {
        self.span_blocks(&self.spans[0]).end
    }

    /// Where a span lies.
    pub(crate) fn span_blocks(&self, span: &Span) -> Range<u64> {
        span.at..span.at + span.groups * (2 + self.group_table_blocks())
    }

    /// Where the tables of a group lie.
    pub(crate) fn tables_of(&self, group: u64) -> GroupTables {
        let span = &self.spans[self.spans.partition_point(|span| span.group + span.groups <= group)];
        let number = group - span.group;
        GroupTables {
            block_bitmap: span.at + number,
            inode_bitmap: span.at + span.groups + number,
            inodes: span.at + 2 * span.groups + number * self.group_table_blocks(),
        }
    }

    /// Blocks of inodes that a group has.
    pub(crate) fn group_table_blocks(&self) -> u64 {
        self.inodes_per_group / INODES_PER_BLOCK
    }

    /// The numbers of a group's inodes.
    pub(crate) fn inode_numbers(&self, group: u64) -> Range<u64> {
        group * self.inodes_per_group + 1..(group + 1) * self.inodes_per_group + 1
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
