//! Where the ext4 file system of an image has its inodes: the kernel reads those ahead by a rule of their own.
//!
//! Fields are those of the kernel's documentation, Documentation/filesystems/ext4, "Super Block" and "Block Group Descriptors".

use hs_image::{Blocks, Image};
use hs_units::{BLOCK_BYTES, BlockRange, Lba};

const MAGIC: u16 = 0xef53;
/// Descriptors may be longer than 32 bytes.
const INCOMPAT_64BIT: u32 = 0x80;
/// Descriptors do not lie together.
const INCOMPAT_META_BG: u32 = 0x10;
const SUPERBLOCK_OFFSET: usize = 1024;
/// Of a disk of 128 GiB; what a larger one claims is not looked at.
const MOST_GROUPS: u64 = 1024;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// What the superblock says of the inode tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Geometry {
    groups: u64,
    blocks_per_table: u64,
    descriptor_bytes: usize,
}

impl Geometry {
    /// From the disk's first block; nothing where it holds no ext4 of blocks of 4 KiB.
    fn read(block: &[u8]) -> Option<Self> {
        let superblock = block.get(SUPERBLOCK_OFFSET..)?;
        let field = |at| u32_at(superblock, at);
        let incompat = field(0x60)?;
        if u16_at(superblock, 0x38)? != MAGIC || field(0x18)? != 2 || incompat & INCOMPAT_META_BG != 0 {
            return None;
        }
        let groups = u64::from(field(0x4)?).div_ceil(u64::from(field(0x20)?.max(1)));
        let table_bytes = u64::from(field(0x28)?) * u64::from(u16_at(superblock, 0x58)?);
        let long = incompat & INCOMPAT_64BIT != 0;
        let descriptor_bytes = if long { usize::from(u16_at(superblock, 0xfe)?) } else { 32 };
        let is_sound = groups <= MOST_GROUPS && (32..=1024).contains(&descriptor_bytes);
        let blocks_per_table = table_bytes.div_ceil(BLOCK_BYTES);
        is_sound.then_some(Self { groups, blocks_per_table, descriptor_bytes })
    }
}

/// The inode tables of the file system in `image`; none where they cannot be found, which costs a prediction some exactness only.
pub(super) fn of_image(image: &Image) -> Vec<BlockRange> {
    let mut blocks = Blocks::new(image);
    let Some(geometry) = blocks.block(Lba(0)).ok().and_then(Geometry::read) else { return Vec::new() };
    let per_block = BLOCK_BYTES as usize / geometry.descriptor_bytes;
    let table = |group: u64| {
        let lba = Lba(1 + group / per_block as u64);
        let descriptor = group as usize % per_block * geometry.descriptor_bytes;
        let first = u32_at(blocks.block(lba).ok()?, descriptor + 0x8)?;
        Some(BlockRange::new(Lba(first.into()), geometry.blocks_per_table))
    };
    (0..geometry.groups).map_while(table).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let mut put =
            |at: usize, bytes: &[u8]| block[1024 + at..1024 + at + bytes.len()].copy_from_slice(bytes);
        put(0x4, &112_302_u32.to_le_bytes());
        put(0x18, &2_u32.to_le_bytes());
        put(0x20, &32_768_u32.to_le_bytes());
        put(0x28, &4_080_u32.to_le_bytes());
        put(0x38, &MAGIC.to_le_bytes());
        put(0x58, &256_u16.to_le_bytes());
        put(0x60, &INCOMPAT_64BIT.to_le_bytes());
        put(0xfe, &64_u16.to_le_bytes());
        block
    }

    #[test]
    fn a_superblock_says_how_many_tables_there_are_and_how_long() {
        let geometry = Geometry { groups: 4, blocks_per_table: 255, descriptor_bytes: 64 };
        assert_eq!(Geometry::read(&superblock()), Some(geometry));
    }

    #[test]
    fn what_is_no_ext4_or_absurd_has_none() {
        assert_eq!(Geometry::read(&[]), None);
        assert_eq!(Geometry::read(&[0; 4096]), None);
        for (at, value) in [(0x18, 0), (0x20, 1), (0x60, u32::MAX), (0xfe, 0), (0x20, 0)] {
            let mut block = superblock();
            block[1024 + at..1024 + at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(Geometry::read(&block), None, "{at:#x}");
        }
    }
}
