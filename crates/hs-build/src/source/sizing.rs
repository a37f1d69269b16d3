//! How large the file system must be: an upper bound of what `mkfs.ext4 -d` will allocate, from the tree
//! alone, so that equal trees get equal sizes. Free blocks at the end are holes and cost an image nothing,
//! so the bound need not be tight.

use std::collections::HashMap;

use hs_units::BLOCK_BYTES;

use super::file_data::UsedBlocks;

/// Bytes of an inode in the file systems made here.
pub(super) const INODE_BYTES: u64 = 256;

/// Blocks in a group: what one 4096-byte bitmap block describes.
const GROUP_BLOCKS: u64 = 8 * BLOCK_BYTES;

/// Inodes in a group at most. One bitmap block describes 32,768; mke2fs shrinks its groups when that is
/// exceeded, so stay below.
const GROUP_INODES: u64 = 30_000;

/// Bytes for names in a directory block, without its checksum tail.
const DIRECTORY_BLOCK_ROOM: u64 = BLOCK_BYTES - 12;

/// Extents in one block of an extent tree is 340; a split leaves two halves.
const EXTENTS_PER_BLOCK: u64 = 170;

/// Extents in the inode itself.
const EXTENTS_IN_INODE: u64 = 4;

/// Longest link target stored in the inode, in bytes.
const FAST_SYMLINK_BYTES: usize = 59;

/// One inode for this many free bytes, as mke2fs does it by default.
const FREE_BYTES_PER_INODE: u64 = 16_384;

/// What a tree needs, added up while it is walked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Needs {
    inodes: u64,
    blocks: u64,
    directories: HashMap<usize, DirectoryFill>,
}

/// How far a directory's blocks are filled when each name goes after the one before. mke2fs fills gaps too,
/// so it needs no more than this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DirectoryFill {
    full_blocks: u64,
    used_bytes: u64,
}

impl Needs {
    pub(super) fn add_inode(&mut self) {
        self.inodes += 1;
    }

    pub(super) fn add_attribute_block(&mut self, needed: bool) {
        self.blocks += u64::from(needed);
    }

    /// Adds the directory with this entry index.
    pub(super) fn add_directory(&mut self, index: usize) {
        // `.` and `..` take 12 bytes each.
        self.directories.insert(index, DirectoryFill { full_blocks: 0, used_bytes: 24 });
    }

    /// Adds a name of `name_bytes` to a directory that was added before.
    pub(super) fn add_name(&mut self, directory: usize, name_bytes: usize) {
        let entry_bytes = (8 + name_bytes as u64).next_multiple_of(4);
        if let Some(fill) = self.directories.get_mut(&directory) {
            if fill.used_bytes + entry_bytes > DIRECTORY_BLOCK_ROOM {
                fill.full_blocks += 1;
                fill.used_bytes = 0;
            }
            fill.used_bytes += entry_bytes;
        }
    }

    pub(super) fn add_symlink(&mut self, target_bytes: usize) {
        self.blocks += u64::from(target_bytes > FAST_SYMLINK_BYTES);
    }

    pub(super) fn add_file(&mut self, used: UsedBlocks) {
        // An extent holds at most 32,768 blocks, and the allocator may have to step over a group's metadata.
        let extents = used.runs + 2 * (used.blocks / GROUP_BLOCKS);
        self.blocks += used.blocks + extent_blocks(extents);
    }

    /// Blocks for data, names, links, attributes and extent trees, without the file system's own tables.
    fn tree_blocks(&self) -> u64 {
        let directories: u64 = self
            .directories
            .values()
            // The blocks of a growing directory are apart, with files between them.
            .map(|fill| fill.full_blocks + 1 + extent_blocks(fill.full_blocks + 1))
            .sum();
        self.blocks + directories
    }

    /// The file system to make: room for the tree and `free_bytes` more.
    pub(super) fn geometry(&self, free_bytes: u64) -> Geometry {
        // Inodes 1 to 10 are reserved, 11 is lost+found with four blocks.
        let inodes = self.inodes + 11 + free_bytes / FREE_BYTES_PER_INODE;
        let data_blocks = self.tree_blocks() + 4;
        // A sixty-fourth and 1 MiB on top cover extents cut in two where the allocator meets used blocks.
        let mut wanted = data_blocks + data_blocks / 64 + 256;
        if free_bytes > 0 {
            wanted += free_bytes.div_ceil(BLOCK_BYTES);
            // The kernel keeps a fiftieth, at most 4096 blocks, for itself (`ext4_set_resv_clusters`).
            wanted += (wanted / 49 + 1).min(4096);
        }
        let mut blocks = (inodes.div_ceil(GROUP_INODES) - 1) * GROUP_BLOCKS + 1;
        loop {
            let groups = blocks.div_ceil(GROUP_BLOCKS);
            let table_blocks = table_blocks(groups, inodes);
            let needed = (wanted + table_blocks.total).max(blocks);
            let last_group = needed % GROUP_BLOCKS;
            // mke2fs leaves out a last group that holds little more than its own tables.
            let needed = if last_group != 0 && last_group < 2 * table_blocks.largest_group + 64 {
                needed + 2 * table_blocks.largest_group + 64
            } else {
                needed
            };
            if needed.div_ceil(GROUP_BLOCKS) == groups {
                return Geometry { blocks: needed, inodes, used_blocks: data_blocks + table_blocks.total };
            }
            blocks = needed;
        }
    }
}

/// The file system to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    pub(super) blocks: u64,
    pub(super) inodes: u64,
    /// Blocks that will be written at most.
    used_blocks: u64,
}

impl Geometry {
    /// Size of the file system.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }

    /// Bytes that the scratch file will take at most, with a reserve for the scratch file system's own
    /// tables.
    pub(super) fn written_bytes(&self) -> u64 {
        let bytes = self.used_blocks * BLOCK_BYTES;
        bytes + bytes / 128 + (1 << 20)
    }
}

/// Blocks for `extents` outside the inode.
fn extent_blocks(extents: u64) -> u64 {
    if extents < EXTENTS_IN_INODE { 0 } else { extents.div_ceil(EXTENTS_PER_BLOCK) + 2 }
}

/// The file system's own tables.
struct TableBlocks {
    total: u64,
    /// The most that one group has.
    largest_group: u64,
}

fn table_blocks(groups: u64, inodes: u64) -> TableBlocks {
    let inodes_per_block = BLOCK_BYTES / INODE_BYTES;
    let inode_table = inodes.div_ceil(groups).div_ceil(inodes_per_block) + 1;
    // A descriptor has 64 bytes. Copies lie in group 0, 1 and the powers of 3, 5 and 7 (sparse_super).
    let descriptors = 1 + (groups * 64).div_ceil(BLOCK_BYTES);
    let copies = 2 + [3, 5, 7].into_iter().map(|base| groups.ilog(base) as u64 + 1).sum::<u64>();
    TableBlocks {
        total: groups * (2 + inode_table) + copies.min(groups) * descriptors,
        largest_group: 2 + inode_table + descriptors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_inodes_get_enough_groups() {
        let mut needs = Needs::default();
        (0..1_000_000).for_each(|_| needs.add_inode());
        let geometry = needs.geometry(0);
        assert!(geometry.inodes.div_ceil(geometry.blocks.div_ceil(GROUP_BLOCKS)) <= GROUP_INODES);
    }

    #[test]
    fn the_last_group_is_never_too_small() {
        for blocks in (0..140_000).step_by(37) {
            let needs = Needs { inodes: blocks / 9, blocks, directories: HashMap::new() };
            let geometry = needs.geometry(0);
            let groups = geometry.blocks.div_ceil(GROUP_BLOCKS);
            let rest = geometry.blocks % GROUP_BLOCKS;
            let tables = table_blocks(groups, geometry.inodes);
            assert!(rest == 0 || groups == 1 || rest > tables.largest_group + 50, "{blocks}: {geometry:?}");
            assert!(geometry.blocks >= blocks + tables.total);
        }
    }
}
