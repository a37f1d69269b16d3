//! Superblock, descriptors of groups and bit maps. Fields from the kernel's documentation, "Super Block" and
//! "Block Group Descriptors".

use std::ops::Range;

use crate::bytes::{BLOCK, Block, checksum, put};
use crate::geometry::{
    DESCRIPTOR_BYTES, DESCRIPTORS_PER_BLOCK, GROUP_BLOCKS, Geometry, INODES_PER_BLOCK, Span,
};
use crate::numbers::Numbers;
use crate::{hash, inode};

pub(crate) const SUPERBLOCK: usize = 1024;
const SUPERBLOCK_CHECKSUM: usize = 0x3fc;
pub(crate) const MAGIC: u64 = 0xef53;
/// ext_attr, dir_index, sparse_super2.
const COMPATIBLE: u64 = 0x8 | 0x20 | 0x200;
/// filetype, extents, 64bit, flex_bg.
pub(crate) const INCOMPATIBLE: u64 = 0x2 | 0x40 | 0x80 | 0x200;
/// csum_seed: the seed of checksums is not that of the UUID.
pub(crate) const OWN_SEED: u64 = 0x2000;
pub(crate) const SEED: usize = 0x270;
pub(crate) const HASH_SEED: usize = 0xec;
/// large_file, huge_file, dir_nlink, extra_isize, metadata_csum.
const READ_ONLY_COMPATIBLE: u64 = 0x2 | 0x8 | 0x20 | 0x40 | 0x400;
const SHARED_BLOCKS: u64 = 0x4000;
/// ea_inode: values of attributes have inodes.
pub(crate) const VALUES: u64 = 0x400;
/// Attributes of users and access control lists, as mke2fs sets them.
const MOUNT_OPTIONS: u64 = 0x4 | 0x8;
/// The time that the file system says it was made at, 1980-01-01, as in ZIP files without a date. 0 would be
/// "not set".
const EPOCH_SECONDS: u64 = 315_532_800;
const FIRST_INODE: u64 = 11;
const LOG_GROUPS_PER_FLEX: u64 = 4;

/// Flags of a group: a bit map is not written.
const INODES_UNINIT: u64 = 0x1;
const BLOCKS_UNINIT: u64 = 0x2;
/// The table of inodes is zeros where it is not used.
const TABLE_ZEROED: u64 = 0x4;

/// What the tables say.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) geometry: Geometry,
    pub(crate) uuid: [u8; 16],
    pub(crate) hash_seed: [u32; 4],
    /// The seed of all checksums.
    pub(crate) seed: u32,
    pub(crate) label: [u8; 16],
    pub(crate) has_shared_blocks: bool,
    /// Whether values of attributes have inodes.
    pub(crate) has_values: bool,
    pub(crate) numbers: Numbers,
    /// Directories in each group that has inodes.
    pub(crate) directories: Vec<u32>,
    /// Blocks that are free, ascending; the last range reaches to the end.
    pub(crate) free: Vec<Range<u64>>,
}

impl Tables {
    /// Groups from the first on of which blocks are used.
    pub(crate) fn groups_with_blocks(&self) -> u64 {
        self.free.last().map_or(self.geometry.blocks, |free| free.start).div_ceil(GROUP_BLOCKS)
    }

    /// Which blocks of a span are written, in its order: a run of blocks, and whether they are.
    pub(crate) fn written_in(&self, span: &Span) -> Vec<(u64, bool)> {
        let groups = || span.group..span.group + span.groups;
        let mut runs: Vec<(u64, bool)> = Vec::new();
        let mut add = |blocks: u64, is_written: bool| match runs.last_mut() {
            _ if blocks == 0 => {}
            Some((before, was_written)) if *was_written == is_written => *before += blocks,
            _ => runs.push((blocks, is_written)),
        };
        groups().for_each(|group| add(1, self.has_block_bitmap(group)));
        groups().for_each(|group| add(1, self.has_inodes(group)));
        let table_blocks = self.geometry.group_table_blocks();
        for group in groups() {
            let used = self.numbers.span_in(&self.geometry.inode_numbers(group)).div_ceil(INODES_PER_BLOCK);
            add(used, true);
            add(table_blocks - used, false);
        }
        runs
    }

    fn has_inodes(&self, group: u64) -> bool {
        self.numbers.used_in(&self.geometry.inode_numbers(group)) > 0
    }

    pub(crate) fn write_superblock(&self, block: &mut Block) {
        let bytes = &mut block[SUPERBLOCK..2 * SUPERBLOCK];
        let geometry = &self.geometry;
        let free_blocks = self.free.iter().map(|free| free.end - free.start).sum();
        let mut put = |value, fields: &[(usize, usize)]| put(bytes, value, fields);
        put(geometry.inodes(), &[(0x0, 4)]);
        put(geometry.blocks, &[(0x4, 4), (0x150, 4)]);
        put(free_blocks, &[(0xc, 4), (0x158, 4)]);
        let used_inodes = self.numbers.used_in(&(1..geometry.inodes() + 1));
        put(geometry.inodes() - used_inodes, &[(0x10, 4)]);
        // Sizes of blocks and clusters, as shifts of 1024.
        put(2, &[(0x18, 4)]);
        put(2, &[(0x1c, 4)]);
        put(GROUP_BLOCKS, &[(0x20, 4)]);
        put(GROUP_BLOCKS, &[(0x24, 4)]);
        put(geometry.inodes_per_group, &[(0x28, 4)]);
        put(EPOCH_SECONDS, &[(0x30, 4)]);
        // No check after a number of mounts.
        put(0xffff, &[(0x36, 2)]);
        put(MAGIC, &[(0x38, 2)]);
        // Clean; errors are passed over.
        put(1, &[(0x3a, 2)]);
        put(1, &[(0x3c, 2)]);
        put(EPOCH_SECONDS, &[(0x40, 4)]);
        // The revision with inodes of any size.
        put(1, &[(0x4c, 4)]);
        put(FIRST_INODE, &[(0x54, 4)]);
        put(inode::BYTES as u64, &[(0x58, 2)]);
        put(COMPATIBLE, &[(0x5c, 4)]);
        let has_own_seed = self.seed != uuid_seed(self.uuid);
        let own_seed = if has_own_seed { OWN_SEED } else { 0 };
        let values = if self.has_values { VALUES } else { 0 };
        put(INCOMPATIBLE | own_seed | values, &[(0x60, 4)]);
        let shared = if self.has_shared_blocks { SHARED_BLOCKS } else { 0 };
        put(READ_ONLY_COMPATIBLE | shared, &[(0x64, 4)]);
        for (index, word) in self.hash_seed.into_iter().enumerate() {
            put(word.into(), &[(HASH_SEED + 4 * index, 4)]);
        }
        put(hash::VERSION.into(), &[(0xfc, 1)]);
        put(DESCRIPTOR_BYTES as u64, &[(0xfe, 2)]);
        put(MOUNT_OPTIONS, &[(0x100, 4)]);
        put(EPOCH_SECONDS, &[(0x108, 4)]);
        put(inode::EXTRA_BYTES as u64, &[(0x15c, 2)]);
        put(inode::EXTRA_BYTES as u64, &[(0x15e, 2)]);
        put(hash::UNSIGNED.into(), &[(0x160, 4)]);
        put(LOG_GROUPS_PER_FLEX, &[(0x174, 1)]);
        // CRC-32C.
        put(1, &[(0x175, 1)]);
        if has_own_seed {
            put(self.seed.into(), &[(SEED, 4)]);
        }
        bytes[0x68..0x78].copy_from_slice(&self.uuid);
        bytes[0x78..0x88].copy_from_slice(&self.label);
        let sum = checksum(!0, &bytes[..SUPERBLOCK_CHECKSUM]);
        crate::bytes::put(bytes, sum.into(), &[(SUPERBLOCK_CHECKSUM, 4)]);
    }

    /// Writes a block of descriptors.
    pub(crate) fn write_descriptors(&self, number: u64, block: &mut Block) {
        let groups = number * DESCRIPTORS_PER_BLOCK..self.geometry.groups;
        for (group, descriptor) in groups.zip(block.chunks_mut(DESCRIPTOR_BYTES)) {
            self.write_descriptor(group, descriptor);
        }
    }

    fn write_descriptor(&self, group: u64, bytes: &mut [u8]) {
        let geometry = &self.geometry;
        let tables = geometry.tables_of(group);
        let numbers = geometry.inode_numbers(group);
        let free_blocks = self.free_in(group).map(|free| free.end - free.start).sum();
        let free_inodes = geometry.inodes_per_group - self.numbers.used_in(&numbers);
        let unused_inodes = geometry.inodes_per_group - self.numbers.span_in(&numbers);
        let directories = usize::try_from(group).ok().and_then(|group| self.directories.get(group));
        let mut flags = TABLE_ZEROED;
        let (mut block_sum, mut inode_sum) = (0, 0);
        let mut bitmap = [0; BLOCK];
        if self.has_block_bitmap(group) {
            self.write_block_bitmap(group, &mut bitmap);
            block_sum = checksum(self.seed, &bitmap);
        } else {
            flags |= BLOCKS_UNINIT;
        }
        if self.has_inodes(group) {
            self.write_inode_bitmap(group, &mut bitmap);
            let bytes = usize::try_from(geometry.inodes_per_group / 8).expect("no more than a block");
            inode_sum = checksum(self.seed, &bitmap[..bytes]);
        } else {
            flags |= INODES_UNINIT;
        }
        let mut put = |value, fields: &[(usize, usize)]| put(bytes, value, fields);
        put(tables.block_bitmap, &[(0x0, 4), (0x20, 4)]);
        put(tables.inode_bitmap, &[(0x4, 4), (0x24, 4)]);
        put(tables.inodes, &[(0x8, 4), (0x28, 4)]);
        put(free_blocks, &[(0xc, 2), (0x2c, 2)]);
        put(free_inodes, &[(0xe, 2), (0x2e, 2)]);
        put(directories.copied().unwrap_or_default().into(), &[(0x10, 2), (0x30, 2)]);
        put(flags, &[(0x12, 2)]);
        put(block_sum.into(), &[(0x18, 2), (0x38, 2)]);
        put(inode_sum.into(), &[(0x1a, 2), (0x3a, 2)]);
        // Inodes behind the last used one.
        put(unused_inodes, &[(0x1c, 2), (0x32, 2)]);
        let group = u32::try_from(group).expect("as many groups as descriptors in the first one");
        let sum = checksum(checksum(self.seed, &group.to_le_bytes()), bytes);
        bytes[0x1e..0x20].copy_from_slice(&sum.to_le_bytes()[..2]);
    }

    /// The kernel computes the bit map of a group without used blocks, but for the last group.
    fn has_block_bitmap(&self, group: u64) -> bool {
        group < self.groups_with_blocks() || group + 1 == self.geometry.groups
    }

    /// Writes a bit for each block of a group: 1 for what is used, or behind the end.
    pub(crate) fn write_block_bitmap(&self, group: u64, bitmap: &mut Block) {
        bitmap.fill(0xff);
        for free in self.free_in(group) {
            clear(bitmap, free);
        }
    }

    /// Writes a bit for each inode of a group: 1 for what is used, or behind the end.
    pub(crate) fn write_inode_bitmap(&self, group: u64, bitmap: &mut Block) {
        bitmap.fill(0xff);
        let numbers = self.geometry.inode_numbers(group);
        for (bit, _) in numbers.enumerate().filter(|(_, number)| !self.numbers.is_used(*number)) {
            clear(bitmap, bit as u64..bit as u64 + 1);
        }
    }

    /// Free blocks of a group, counted in it.
    fn free_in(&self, group: u64) -> impl Iterator<Item = Range<u64>> {
        let start = group * GROUP_BLOCKS;
        let end = start + self.geometry.group_blocks(group);
        let first = self.free.partition_point(|free| free.end <= start);
        let here = self.free[first..].iter().take_while(move |free| free.start < end);
        here.map(move |free| free.start.max(start) - start..free.end.min(end) - start)
    }
}

/// The seed of checksums of a file system that has no own one.
pub(crate) fn uuid_seed(uuid: [u8; 16]) -> u32 {
    checksum(!0, &uuid)
}

fn clear(bitmap: &mut Block, bits: Range<u64>) {
    for bit in bits {
        let byte = usize::try_from(bit / 8).expect("a bit of a block");
        bitmap[byte] &= !(1 << (bit % 8));
    }
}
