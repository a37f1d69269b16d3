//! The superblock: how large everything is, and so where it lies. Fields from the kernel's documentation,
//! "Super Block" and "Block Group Descriptors".

use hs_units::to_u32;

use super::error::{Expected, Ext4Error};
use super::{u16_at, u32_at};

pub(super) const OFFSET: u64 = 1024;
pub(super) const BYTES: usize = 1024;
pub(super) const MOST_DESCRIPTOR_BYTES: usize = 1024;

const MAGIC: u16 = 0xef53;
/// Blocks have 1024 bytes shifted by at most this.
const MOST_BLOCK_SHIFT: u32 = 6;
/// `mke2fs -g` takes no less.
const LEAST_BLOCKS_PER_GROUP: u64 = 256;
/// Inodes of the first revision.
const OLD_INODE_BYTES: u64 = 128;
const OLD_DESCRIPTOR_BYTES: u64 = 32;

const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
/// filetype, recover, meta_bg, extents, 64bit, mmp, flex_bg, ea_inode, csum_seed, largedir, inline_data,
/// encrypt, casefold. Not compression, journal_dev or dirdata.
const KNOWN_INCOMPAT: u32 =
    0x2 | 0x4 | INCOMPAT_META_BG | 0x40 | INCOMPAT_64BIT | 0x100 | 0x200 | 0x400 | 0x2000 | 0x4000 | 0x3_8000;

/// Sizes that agree with each other, and with the disk's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) groups: u64,
    pub(super) inodes: u32,
    pub(super) inode_bytes: u64,
    pub(super) descriptor_bytes: u64,
    first_data_block: u64,
    blocks_per_group: u64,
    inodes_per_group: u64,
    is_64bit: bool,
    /// The first group whose descriptors lie in a group of their own kind, with `meta_bg`.
    first_meta_group: u64,
    copies: Copies,
}

/// Which groups begin with a copy of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Copies {
    Every,
    /// 0, 1, and powers of 3, 5 and 7.
    Sparse,
    /// 0, and these.
    These([u32; 2]),
}

impl Copies {
    fn has(&self, group: u64) -> bool {
        let is_power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        match self {
            _ if group == 0 => true,
            Self::Every => true,
            Self::Sparse => group == 1 || [3, 5, 7].into_iter().any(is_power_of),
            Self::These(groups) => groups.iter().any(|here| u64::from(*here) == group),
        }
    }
}

/// A number in the superblock that must lie between these.
fn bounded(what: &'static str, found: u64, least: u64, most: u64) -> Result<u64, Ext4Error> {
    if (least..=most).contains(&found) {
        return Ok(found);
    }
    Err(Ext4Error::Unexpected { what, offset: OFFSET, found, expected: Expected::Between(least, most) })
}

/// A size that is a power of two, too.
fn power_of_two(what: &'static str, found: u64, least: u64, most: u64) -> Result<u64, Ext4Error> {
    if bounded(what, found, least, most)?.is_power_of_two() {
        return Ok(found);
    }
    let expected = Expected::Described("a power of two");
    Err(Ext4Error::Unexpected { what, offset: OFFSET, found, expected })
}

impl Geometry {
    /// What a superblock says, for a disk of so many bytes.
    pub(super) fn decode(bytes: &[u8; BYTES], disk_bytes: u64) -> Result<Self, Ext4Error> {
        let field = |at| u32_at(bytes, at);
        let magic = u16_at(bytes, 0x38);
        if magic != MAGIC {
            return Err(Ext4Error::NoSuperblock { offset: OFFSET, found: magic });
        }
        let (compat, incompat, ro_compat) = (field(0x5c), field(0x60), field(0x64));
        if incompat & !KNOWN_INCOMPAT != 0 {
            return Err(Ext4Error::Features { found: incompat, unknown: incompat & !KNOWN_INCOMPAT });
        }
        let shift = bounded("the superblock's block size", field(0x18).into(), 0, MOST_BLOCK_SHIFT.into())?;
        let block_bytes = 1024 << shift;
        let is_64bit = incompat & INCOMPAT_64BIT != 0;
        let high = if is_64bit { u64::from(field(0x150)) << 32 } else { 0 };
        let blocks = bounded(
            "the superblock's number of blocks",
            high | u64::from(field(0x4)),
            2,
            (disk_bytes / block_bytes).max(2),
        )?;
        let first_data_block =
            bounded("the superblock's first data block", field(0x14).into(), 0, 1.min(blocks - 1))?;
        let blocks_per_group = bounded(
            "the superblock's number of blocks in a group",
            field(0x20).into(),
            LEAST_BLOCKS_PER_GROUP,
            u32::MAX.into(),
        )?;
        let groups = (blocks - first_data_block).div_ceil(blocks_per_group);
        let most_inodes = 8 * block_bytes;
        let inodes_per_group =
            bounded("the superblock's number of inodes in a group", field(0x28).into(), 1, most_inodes)?;
        let most_inodes = (groups * inodes_per_group).min(u32::MAX.into());
        let inodes = to_u32(bounded("the superblock's number of inodes", field(0x0).into(), 1, most_inodes)?);
        let is_old = field(0x4c) == 0;
        let inode_bytes = if is_old { OLD_INODE_BYTES } else { u16_at(bytes, 0x58).into() };
        power_of_two("the superblock's inode size", inode_bytes, OLD_INODE_BYTES, block_bytes)?;
        let descriptor_bytes = if is_64bit { u16_at(bytes, 0xfe).into() } else { OLD_DESCRIPTOR_BYTES };
        let least = if is_64bit { 2 * OLD_DESCRIPTOR_BYTES } else { OLD_DESCRIPTOR_BYTES };
        let most = MOST_DESCRIPTOR_BYTES as u64;
        power_of_two("the superblock's descriptor size", descriptor_bytes, least, most)?;
        let copies = match () {
            () if compat & COMPAT_SPARSE_SUPER2 != 0 => Copies::These([field(0x24c), field(0x250)]),
            () if ro_compat & RO_COMPAT_SPARSE_SUPER != 0 => Copies::Sparse,
            () => Copies::Every,
        };
        let has_meta_groups = incompat & INCOMPAT_META_BG != 0;
        let first_meta_group = if has_meta_groups { field(0x104).into() } else { u64::MAX };
        Ok(Self {
            block_bytes,
            blocks,
            groups,
            inodes,
            inode_bytes,
            descriptor_bytes,
            first_data_block,
            blocks_per_group,
            inodes_per_group,
            is_64bit,
            first_meta_group,
            copies,
        })
    }

    /// Blocks of a group's inode table.
    pub(super) const fn table_blocks(&self) -> u64 {
        (self.inodes_per_group * self.inode_bytes).div_ceil(self.block_bytes)
    }

    /// The group of an inode, and its place in the table there.
    pub(super) fn place_of_inode(&self, number: u32) -> Result<(u64, u64), Ext4Error> {
        let number = bounded("an inode's number", number.into(), 1, self.inodes.into())?;
        Ok(((number - 1) / self.inodes_per_group, (number - 1) % self.inodes_per_group))
    }

    /// Where the descriptor of a group lies (`ext4_get_group_desc`, `descriptor_loc`).
    pub(super) fn descriptor_offset(&self, group: u64) -> Result<u64, Ext4Error> {
        bounded("a group's number", group, 0, self.groups - 1)?;
        let in_a_block = self.block_bytes / self.descriptor_bytes;
        let number = group / in_a_block;
        let superblock_block = OFFSET / self.block_bytes;
        let block = if number < self.first_meta_group {
            superblock_block + 1 + number
        } else {
            let first_group = number * in_a_block;
            let first_block = self.first_data_block + first_group * self.blocks_per_group;
            // With blocks of 1 KiB that are counted from 0, the boot block comes before the superblock.
            let is_behind_boot = self.block_bytes == 1024 && number == 0 && self.first_data_block == 0;
            first_block + u64::from(self.copies.has(first_group)) + u64::from(is_behind_boot)
        };
        bounded("the block of a group's descriptor", block, 1, self.blocks - 1)?;
        Ok(block * self.block_bytes + group % in_a_block * self.descriptor_bytes)
    }

    /// Where a group's inode table begins, as its descriptor at `offset` says.
    pub(super) fn inode_table_in(&self, descriptor: &[u8], offset: u64) -> Result<u64, Ext4Error> {
        let high = if self.is_64bit { u64::from(u32_at(descriptor, 0x28)) << 32 } else { 0 };
        let found = high | u64::from(u32_at(descriptor, 0x8));
        let most = self.blocks.saturating_sub(self.table_blocks());
        if (1..=most).contains(&found) {
            return Ok(found);
        }
        let (what, expected) = ("the inode table in a group's descriptor", Expected::Between(1, most));
        Err(Ext4Error::Unexpected { what, offset, found, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0x0, &16_320_u32.to_le_bytes());
        put(0x4, &112_302_u32.to_le_bytes());
        put(0x18, &2_u32.to_le_bytes());
        put(0x20, &32_768_u32.to_le_bytes());
        put(0x28, &4_080_u32.to_le_bytes());
        put(0x38, &MAGIC.to_le_bytes());
        put(0x4c, &1_u32.to_le_bytes());
        put(0x58, &256_u16.to_le_bytes());
        put(0x60, &INCOMPAT_64BIT.to_le_bytes());
        put(0xfe, &64_u16.to_le_bytes());
        bytes
    }

    const DISK_BYTES: u64 = 112_302 * 4096;

    #[test]
    fn sizes_that_agree_say_where_things_lie() {
        let geometry = Geometry::decode(&superblock(), DISK_BYTES).expect("sound");
        assert_eq!((geometry.groups, geometry.table_blocks()), (4, 255));
        assert_eq!(geometry.descriptor_offset(3).expect("there"), 4096 + 3 * 64);
        assert_eq!(geometry.place_of_inode(4081).expect("there"), (1, 0));
        geometry.descriptor_offset(4).expect_err("no such group");
        geometry.place_of_inode(0).expect_err("no such inode");
        geometry.place_of_inode(16_321).expect_err("no such inode");
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        Geometry::decode(&superblock(), DISK_BYTES - 1).expect_err("longer than its disk");
        Geometry::decode(&superblock(), 0).expect_err("no disk");
        Geometry::decode(&[0; BYTES], DISK_BYTES).expect_err("nothing");
        let wrong: [(usize, u32); 14] = [
            (0x0, 0),
            (0x0, 16_321),
            (0x4, 0),
            (0x4, u32::MAX),
            (0x14, 2),
            (0x18, 7),
            (0x20, 255),
            (0x28, 0),
            (0x28, 32_769),
            (0x38, 0),
            (0x58, 192),
            (0x58, 8192),
            (0xfe, 32),
            (0xfe, 0),
        ];
        for (at, value) in wrong {
            let mut bytes = superblock();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            Geometry::decode(&bytes, DISK_BYTES).expect_err("refused");
        }
    }

    #[test]
    fn copies_lie_where_the_kernel_has_them() {
        let groups = |copies: Copies| (0..50).filter(|group| copies.has(*group)).collect::<Vec<_>>();
        assert_eq!(groups(Copies::Sparse), [0, 1, 3, 5, 7, 9, 25, 27, 49]);
        assert_eq!(groups(Copies::These([1, 48])), [0, 1, 48]);
        assert_eq!(groups(Copies::Every).len(), 50);
    }
}
