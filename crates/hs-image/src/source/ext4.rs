//! Just enough of ext4 to find and edit the inodes of a file system that `mkfs.ext4` has just made: 4096-byte
//! blocks, 256-byte inodes, 64-byte descriptors, extents, checksums, no journal, directories without an
//! index. Anything else is refused. Layout from the kernel's documentation, `filesystems/ext4`.

mod attributes;
mod directory;
mod inode;

use std::fs::File;
use std::os::unix::fs::FileExt;

use hs_units::BLOCK_BYTES;

use super::SourceError;
pub(super) use inode::Inode;

const BLOCK: usize = BLOCK_BYTES as usize;
const SUPERBLOCK_OFFSET: u64 = 1024;
const DESCRIPTOR_BYTES: usize = 64;

/// `INCOMPAT_*` bits of the features asked for: filetype, extents, 64bit, flex_bg. No other may be set.
const INCOMPATIBLE: u32 = 0x2 | 0x40 | 0x80 | 0x200;
/// `RO_COMPAT_METADATA_CSUM`.
const METADATA_CHECKSUMS: u32 = 0x400;

/// The inode of the root directory.
pub(super) const ROOT_INODE: u32 = 2;

/// An ext4 file system in a scratch file.
pub(super) struct Ext4<'a> {
    file: &'a File,
    blocks: u64,
    inodes_per_group: u32,
    /// The first block of each group's inode table.
    inode_tables: Vec<u64>,
    checksum_seed: u32,
}

/// An error in the file system's bytes at `offset`.
fn unexpected(offset: u64, reason: &'static str) -> SourceError {
    SourceError::UnexpectedImage { offset, reason }
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from(u16_at(bytes, offset)) | u32::from(u16_at(bytes, offset + 2)) << 16
}

/// ext4's CRC-32C: a seed is a finished checksum that goes on, without the usual inversions.
fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

impl<'a> Ext4<'a> {
    /// Reads the superblock and the group descriptors.
    ///
    /// # Errors
    /// [`SourceError::UnexpectedImage`] for any other kind of file system than described above.
    pub(super) fn open(file: &'a File) -> Result<Self, SourceError> {
        let mut superblock = [0; 1024];
        read_at(file, SUPERBLOCK_OFFSET, &mut superblock)?;
        let word = |offset| u32_at(&superblock, offset);
        if u16_at(&superblock, 0x38) != 0xef53 {
            return Err(unexpected(SUPERBLOCK_OFFSET, "no ext4 magic number"));
        }
        let as_asked = word(0x18) == 2 // 4096-byte blocks
            && word(0x14) == 0 // first data block
            && u16_at(&superblock, 0x58) == inode::BYTES as u16
            && u16_at(&superblock, 0xfe) == DESCRIPTOR_BYTES as u16
            && word(0x60) == INCOMPATIBLE
            && word(0x64) & METADATA_CHECKSUMS != 0;
        if !as_asked {
            return Err(unexpected(SUPERBLOCK_OFFSET, "sizes or features are not those asked for"));
        }
        let blocks = u64::from(word(0x4)) | u64::from(word(0x150)) << 32;
        let (blocks_per_group, inodes_per_group) = (word(0x20), word(0x28));
        if blocks == 0
            || blocks_per_group == 0
            || inodes_per_group == 0
            || inodes_per_group > 8 * BLOCK as u32
        {
            return Err(unexpected(SUPERBLOCK_OFFSET, "impossible group sizes"));
        }
        let mut ext4 = Self {
            file,
            blocks,
            inodes_per_group,
            inode_tables: Vec::new(),
            checksum_seed: checksum(!0, &superblock[0x68..0x78]),
        };
        ext4.read_descriptors(blocks.div_ceil(u64::from(blocks_per_group)))?;
        Ok(ext4)
    }

    fn read_descriptors(&mut self, groups: u64) -> Result<(), SourceError> {
        let table_blocks = u64::from(self.inodes_per_group).div_ceil((BLOCK / inode::BYTES) as u64);
        let mut block = [0; BLOCK];
        let per_block = (BLOCK / DESCRIPTOR_BYTES) as u64;
        for group in 0..groups {
            if group.is_multiple_of(per_block) {
                self.read_block(1 + group / per_block, &mut block)?;
            }
            let descriptor = &block[(group % per_block) as usize * DESCRIPTOR_BYTES..][..DESCRIPTOR_BYTES];
            let table = u64::from(u32_at(descriptor, 0x8)) | u64::from(u32_at(descriptor, 0x28)) << 32;
            if table.checked_add(table_blocks).is_none_or(|end| end > self.blocks) {
                return Err(unexpected(BLOCK_BYTES, "an inode table lies outside the file system"));
            }
            self.inode_tables.push(table);
        }
        Ok(())
    }

    /// Inode numbers run from 1 to this.
    pub(super) fn inodes(&self) -> u64 {
        self.inode_tables.len() as u64 * u64::from(self.inodes_per_group)
    }

    /// Reads one inode.
    pub(super) fn read_inode(&self, number: u32) -> Result<Inode, SourceError> {
        let mut bytes = [0; inode::BYTES];
        read_at(self.file, self.inode_offset(number)?, &mut bytes)?;
        Ok(Inode::new(number, bytes))
    }

    /// Computes the inode's checksum and writes it.
    pub(super) fn write_inode(&self, inode: &mut Inode) -> Result<(), SourceError> {
        inode.update_checksum(self.checksum_seed);
        write_at(self.file, self.inode_offset(inode.number())?, inode.bytes())
    }

    /// Puts the attributes of an inode, and of its attribute block if it has one, in the order of their names.
    /// The inode is not written.
    pub(super) fn sort_attributes(&self, inode: &mut Inode) -> Result<(), SourceError> {
        let number = inode.attribute_block();
        if number == 0 {
            return attributes::sort(inode, None);
        }
        let mut block = [0; BLOCK];
        self.read_block(number, &mut block)?;
        attributes::sort(inode, Some(&mut block))?;
        attributes::update_block_checksum(&mut block, number, self.checksum_seed);
        write_at(self.file, number * BLOCK_BYTES, &block)
    }

    fn inode_offset(&self, number: u32) -> Result<u64, SourceError> {
        let index = number.checked_sub(1).ok_or_else(|| unexpected(0, "inode 0"))?;
        let table = *self
            .inode_tables
            .get((index / self.inodes_per_group) as usize)
            .ok_or_else(|| unexpected(0, "an inode number is too large"))?;
        Ok(table * BLOCK_BYTES + u64::from(index % self.inodes_per_group) * inode::BYTES as u64)
    }

    fn read_block(&self, number: u64, block: &mut [u8; BLOCK]) -> Result<(), SourceError> {
        if number >= self.blocks {
            return Err(unexpected(0, "a block number lies outside the file system"));
        }
        read_at(self.file, number * BLOCK_BYTES, block)
    }
}

fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
    file.read_exact_at(buf, offset).map_err(|_| unexpected(offset, "it cannot be read"))
}

fn write_at(file: &File, offset: u64, bytes: &[u8]) -> Result<(), SourceError> {
    file.write_all_at(bytes, offset).map_err(|_| unexpected(offset, "it cannot be written"))
}
