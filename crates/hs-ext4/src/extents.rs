//! Where the blocks of a file lie: a tree of extents, with its root in the inode. Layout from the kernel's
//! documentation, "Extent Tree".

use hs_units::to_u32;

use crate::bytes::{Block, checksum, put};
use crate::inode::MAP_BYTES;

/// The most blocks of one extent.
pub(crate) const EXTENT_BLOCKS: u32 = 32_768;

const MAGIC: u64 = 0xf30a;
/// Bytes of a header, and of each entry behind it.
const ENTRY_BYTES: usize = 12;
const IN_INODE: usize = 4;
const IN_BLOCK: usize = 340;
/// The checksum follows the entries of a block.
const CHECKSUM: usize = ENTRY_BYTES * (IN_BLOCK + 1);

/// Blocks of a file that lie together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// The first one, counted in the file.
    pub(crate) first: u32,
    /// Blocks of the file that are stored before it.
    pub(crate) before: u32,
    pub(crate) blocks: u32,
}

/// The extents of one file or directory, whose blocks lie one behind the other from `start` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents<'a> {
    pub(crate) start: u64,
    /// Blocks in all.
    pub(crate) blocks: u32,
    /// None for a file without holes before its end.
    pub(crate) list: &'a [Extent],
}

impl Extents<'_> {
    fn len(&self) -> usize {
        if self.list.is_empty() { self.blocks.div_ceil(EXTENT_BLOCKS) as usize } else { self.list.len() }
    }

    fn get(&self, index: usize) -> Extent {
        self.list.get(index).copied().unwrap_or_else(|| {
            let first = to_u32(index as u64) * EXTENT_BLOCKS;
            Extent { first, before: first, blocks: (self.blocks - first).min(EXTENT_BLOCKS) }
        })
    }

    /// The extent with the stored block that so many others come before.
    pub(crate) fn containing(&self, before: u32) -> Extent {
        match self.list.partition_point(|extent| extent.before <= before) {
            0 => self.get((before / EXTENT_BLOCKS) as usize),
            after => self.list[after - 1],
        }
    }

    /// Blocks of each level of the tree below its root, that of the leaves first.
    fn levels(&self) -> Vec<usize> {
        let (mut levels, mut count) = (Vec::new(), self.len());
        while count > IN_INODE {
            count = count.div_ceil(IN_BLOCK);
            levels.push(count);
        }
        levels
    }

    /// Blocks of the tree below its root.
    pub(crate) fn tree_blocks(&self) -> u64 {
        self.levels().into_iter().map(|count| count as u64).sum()
    }

    /// The root, for the inode. The other blocks of the tree lie from `tree` on.
    pub(crate) fn root(&self, tree: u64) -> [u8; MAP_BYTES] {
        let mut root = [0; MAP_BYTES];
        let levels = self.levels();
        let count = levels.last().copied().unwrap_or_else(|| self.len());
        self.write_entries(&levels, (levels.len(), 0..count), tree, IN_INODE, &mut root);
        root
    }

    /// The block with this number of the tree from `tree` on.
    pub(crate) fn write_block(&self, tree: u64, mut number: usize, inode_seed: u32, block: &mut Block) {
        let levels = self.levels();
        let mut level = 0;
        while number >= levels[level] {
            number -= levels[level];
            level += 1;
        }
        let below = if level == 0 { self.len() } else { levels[level - 1] };
        let entries = number * IN_BLOCK..below.min((number + 1) * IN_BLOCK);
        self.write_entries(&levels, (level, entries), tree, IN_BLOCK, block);
        let sum = checksum(inode_seed, &block[..CHECKSUM]);
        put(block, sum.into(), &[(CHECKSUM, 4)]);
    }

    /// Writes the entries of a node in this level, 0 for one with extents.
    fn write_entries(
        &self,
        levels: &[usize],
        (level, entries): (usize, std::ops::Range<usize>),
        tree: u64,
        room: usize,
        node: &mut [u8],
    ) {
        put(node, MAGIC, &[(0, 2)]);
        put(node, entries.len() as u64, &[(2, 2)]);
        put(node, room as u64, &[(4, 2)]);
        put(node, level as u64, &[(6, 2)]);
        // Where the blocks of the level below begin.
        let below: usize = levels.iter().take(level.saturating_sub(1)).sum();
        let extents_below: usize = (0..level).map(|_| IN_BLOCK).product();
        for (index, entry) in entries.zip(node[ENTRY_BYTES..].chunks_mut(ENTRY_BYTES)) {
            let extent = self.get(index * extents_below);
            put(entry, extent.first.into(), &[(0, 4)]);
            if level == 0 {
                put(entry, extent.blocks.into(), &[(4, 2)]);
                put(entry, self.start + u64::from(extent.before), &[(8, 4), (6, 2)]);
            } else {
                put(entry, tree + (below + index) as u64, &[(4, 4), (8, 2)]);
            }
        }
    }
}
