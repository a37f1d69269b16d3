//! Edits the inodes of a file system that `mkfs.ext4` has just made: 4096-byte blocks, 256-byte inodes,
//! 64-byte descriptors, extents, checksums, no journal, directories without an index. Anything else is
//! refused. What lies where, [`crate::ext4`] says.

mod attributes;
mod inode;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use hs_units::{BLOCK_BYTES, to_usize};

use super::SourceError;
pub(super) use crate::ext4::ROOT_INODE;
use crate::ext4::ReadDisk;
pub(super) use inode::Inode;

const BLOCK: usize = to_usize(BLOCK_BYTES);
const SUPERBLOCK_OFFSET: u64 = 1024;
const DESCRIPTOR_BYTES: usize = 64;

/// `INCOMPAT_*` bits of the features asked for: filetype, extents, 64bit, flex_bg. No other may be set.
const INCOMPATIBLE: u32 = 0x2 | 0x40 | 0x80 | 0x200;
/// `RO_COMPAT_METADATA_CSUM`.
const METADATA_CHECKSUMS: u32 = 0x400;

/// An ext4 file system in a scratch file.
pub(super) struct Ext4<'a> {
    file: &'a File,
    reader: crate::ext4::Ext4<'a>,
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
    /// Reads the superblock.
    ///
    /// # Errors
    /// [`SourceError::UnexpectedImage`] for any other kind of file system than described above, and
    /// [`SourceError::UnexpectedFileSystem`] for none at all.
    pub(super) fn open(file: &'a File) -> Result<Self, SourceError> {
        let bytes = file.metadata().map_err(|_| unexpected(0, "it cannot be read"))?.len();
        let disk = ReadDisk::new(bytes, |offset, bytes| file.read_exact_at(bytes, offset));
        // `mkfs.ext4` has just made it.
        let reader = crate::ext4::Ext4::open(disk)?.trusted();
        let mut superblock = [0; 1024];
        read_at(file, SUPERBLOCK_OFFSET, &mut superblock)?;
        let word = |offset| u32_at(&superblock, offset);
        let as_asked = reader.block_bytes() == BLOCK_BYTES
            && usize::from(u16_at(&superblock, 0x58)) == inode::BYTES
            && usize::from(u16_at(&superblock, 0xfe)) == DESCRIPTOR_BYTES
            && word(0x60) == INCOMPATIBLE
            && word(0x64) & METADATA_CHECKSUMS != 0;
        if !as_asked {
            return Err(unexpected(SUPERBLOCK_OFFSET, "sizes or features are not those asked for"));
        }
        Ok(Self { file, reader, checksum_seed: checksum(!0, &superblock[0x68..0x78]) })
    }

    /// Inode numbers run from 1 to this.
    pub(super) const fn inodes(&self) -> u32 {
        self.reader.inodes()
    }

    /// Reads one inode.
    pub(super) fn read_inode(&mut self, number: u32) -> Result<Inode, SourceError> {
        let mut bytes = [0; inode::BYTES];
        read_at(self.file, self.reader.inode_offset(number)?, &mut bytes)?;
        Ok(Inode::new(number, bytes))
    }

    /// The names in a directory and their inodes, without `.` and `..`.
    pub(super) fn read_directory(&mut self, number: u32) -> Result<HashMap<OsString, u32>, SourceError> {
        let directory = self.reader.inode(number)?;
        let mut names = HashMap::new();
        self.reader.names(&directory, &mut |name, inode| {
            if name != b"." && name != b".." {
                names.insert(OsString::from_vec(name.to_vec()), inode);
            }
            true
        })?;
        Ok(names)
    }

    /// Computes the inode's checksum and writes it.
    pub(super) fn write_inode(&mut self, inode: &mut Inode) -> Result<(), SourceError> {
        inode.update_checksum(self.checksum_seed);
        write_at(self.file, self.reader.inode_offset(inode.number())?, inode.bytes())
    }

    /// Puts the attributes of an inode, and of its attribute block if it has one, in the order of their
    /// names. The inode is not written.
    pub(super) fn sort_attributes(&self, inode: &mut Inode) -> Result<(), SourceError> {
        let number = inode.attribute_block();
        if number == 0 {
            return attributes::sort(inode, None);
        }
        let offset = number.checked_mul(BLOCK_BYTES).ok_or_else(|| unexpected(0, "an attribute block"))?;
        let mut block = [0; BLOCK];
        read_at(self.file, offset, &mut block)?;
        attributes::sort(inode, Some(&mut block))?;
        attributes::update_block_checksum(&mut block, number, self.checksum_seed);
        write_at(self.file, offset, &block)
    }
}

fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
    file.read_exact_at(buf, offset).map_err(|_| unexpected(offset, "it cannot be read"))
}

fn write_at(file: &File, offset: u64, bytes: &[u8]) -> Result<(), SourceError> {
    file.write_all_at(bytes, offset).map_err(|_| unexpected(offset, "it cannot be written"))
}
