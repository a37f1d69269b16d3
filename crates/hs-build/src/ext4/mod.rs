//! A small reader of ext2, ext3 and ext4 file systems, whose bytes may be anything: a digest proves who made
//! a disk, not that what lies on it is right.
//!
//! - Every number is checked before it is used. No sum or product of numbers from the disk can overflow.
//! - No table is held. A descriptor, an inode or a node of an extent tree is read when it is needed, so
//!   memory is a few blocks, one name, one link, or a file up to the limit that the caller sets.
//! - Every loop ends: a tree's levels are counted, a directory and a file end at their size, which has a
//!   limit.
//! - [`MOST_METADATA_BYTES`] is all that one [`Ext4`] reads besides the content of files.
//!
//! Checksums of the file system are not looked at: the image's own digests have been verified, and an author
//! who forges a disk computes its checksums too. A journal is not replayed. Layout from the kernel's
//! documentation, `filesystems/ext4`.

mod attributes;
mod directory;
mod error;
mod inode;
mod mapping;
mod superblock;

use std::io;

pub use error::{Expected, Ext4Error};
use hs_units::{ByteRange, to_usize};
pub use inode::{FileKind, Inode};
use mapping::Mapping;

use superblock::Geometry;

/// Fills a buffer with what lies on a disk from an offset on.
type Read<'a> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a;

/// A disk that can be read.
pub struct ReadDisk<'a> {
    bytes: u64,
    read: Box<Read<'a>>,
}

impl<'a> ReadDisk<'a> {
    /// A disk of so many bytes; `read` fills a buffer with what lies from an offset on.
    pub fn new(bytes: u64, read: impl FnMut(u64, &mut [u8]) -> io::Result<()> + 'a) -> Self {
        Self { bytes, read: Box::new(read) }
    }

    /// The part of a disk that lies in `range`; `read` reads the disk.
    pub fn part(range: ByteRange, mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()> + 'a) -> Self {
        Self::new(range.len, move |offset, bytes| read(range.offset + offset, bytes))
    }

    /// The same disk, for a reader that ends earlier.
    pub fn borrowed(&mut self) -> ReadDisk<'_> {
        ReadDisk { bytes: self.bytes, read: Box::new(&mut *self.read) }
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Ext4Error> {
        let len = bytes.len();
        (self.read)(offset, bytes).map_err(|error| Ext4Error::Read { offset, len, error })
    }
}

/// The inode of the root directory.
pub const ROOT_INODE: u32 = 2;
/// All that is read besides the content of files, unless the caller trusts the disk: inodes and directories
/// of some 100,000 files.
pub const MOST_METADATA_BYTES: u64 = 1 << 30;
/// A directory with more bytes is not looked into.
pub const MOST_DIRECTORY_BYTES: u64 = 64 << 20;
/// A link leads to a path, and Linux has none that is longer.
const MOST_LINK_BYTES: u64 = 4096;
/// Runs that are remembered of a file: one of 4 GiB without two blocks side by side has as many.
pub const MOST_RUNS: usize = 1 << 20;
/// Bytes of a file that are asked for at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A file system on a disk.
pub struct Ext4<'d> {
    disk: ReadDisk<'d>,
    geometry: Geometry,
    metadata_bytes_left: u64,
}

impl std::fmt::Debug for Ext4<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ext4").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl<'d> Ext4<'d> {
    /// The file system on a disk. Reads its superblock, and nothing else.
    ///
    /// # Errors
    /// When there is none, or it is of a kind that is not known here, or claims what cannot be.
    pub fn open(mut disk: ReadDisk<'d>) -> Result<Self, Ext4Error> {
        let mut bytes = [0; superblock::BYTES];
        disk.read(superblock::OFFSET, &mut bytes)?;
        let geometry = Geometry::decode(&bytes, disk.bytes)?;
        Ok(Self { disk, geometry, metadata_bytes_left: MOST_METADATA_BYTES })
    }

    /// Reads as much metadata as there is: for a disk that this program has just made.
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.metadata_bytes_left = u64::MAX;
        self
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn block_bytes(&self) -> u64 {
        self.geometry.block_bytes
    }

    /// Groups that the file system has.
    #[must_use]
    pub const fn groups(&self) -> u64 {
        self.geometry.groups
    }

    /// The first block of a group's inode table, and the blocks that it has.
    ///
    /// # Errors
    /// When the group's descriptor cannot be read, or the table lies outside the file system.
    pub fn inode_table(&mut self, group: u64) -> Result<(u64, u64), Ext4Error> {
        let offset = self.geometry.descriptor_offset(group)?;
        let mut bytes = [0; superblock::MOST_DESCRIPTOR_BYTES];
        let bytes = &mut bytes[..to_usize(self.geometry.descriptor_bytes)];
        self.read_metadata(offset, bytes)?;
        let first = self.geometry.inode_table_in(bytes, offset)?;
        Ok((first, self.geometry.table_blocks()))
    }

    /// Inodes are numbered from 1 to this.
    #[must_use]
    pub const fn inodes(&self) -> u32 {
        self.geometry.inodes
    }

    /// Where an inode lies on the disk.
    fn inode_offset(&mut self, number: u32) -> Result<u64, Ext4Error> {
        let (group, index) = self.geometry.place_of_inode(number)?;
        let (table, _) = self.inode_table(group)?;
        // The table lies within the disk, and the inode within the table.
        Ok(table * self.geometry.block_bytes + index * self.geometry.inode_bytes)
    }

    /// Reads an inode.
    ///
    /// # Errors
    /// When there is none with this number, or it cannot be read.
    pub fn inode(&mut self, number: u32) -> Result<Inode, Ext4Error> {
        let offset = self.inode_offset(number)?;
        let mut bytes = vec![0; to_usize(self.geometry.inode_bytes)];
        self.read_metadata(offset, &mut bytes)?;
        Ok(Inode::new(number, offset, bytes))
    }

    /// The inode that a directory has under this name.
    ///
    /// # Errors
    /// When it is no directory, is damaged, or cannot be read.
    pub fn find_name(&mut self, directory: &Inode, name: &[u8]) -> Result<Option<u32>, Ext4Error> {
        let mut found = None;
        self.names(directory, &mut |here, number| {
            if here == name {
                found = Some(number);
            }
            found.is_none()
        })?;
        Ok(found)
    }

    /// Names in a directory and their inodes, `.` and `..` among them, until `go_on` says no.
    ///
    /// # Errors
    /// When it is no directory, is damaged, too large, or cannot be read.
    pub fn names(
        &mut self,
        directory: &Inode,
        go_on: &mut dyn FnMut(&[u8], u32) -> bool,
    ) -> Result<(), Ext4Error> {
        directory::names(self, directory, go_on)
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// When it is none, is damaged, too long, or cannot be read.
    pub fn link_target(&mut self, link: &Inode) -> Result<Vec<u8>, Ext4Error> {
        link.must_be(FileKind::Link)?;
        match link.short_target() {
            Some(target) => Ok(target.to_vec()),
            None => self.bytes_of(link, MOST_LINK_BYTES),
        }
    }

    /// The content of a regular file.
    ///
    /// # Errors
    /// When it is none, is damaged, or cannot be read; [`Ext4Error::TooLong`] when it has more than
    /// `most_bytes`, or more than the disk.
    pub fn content(&mut self, file: &Inode, most_bytes: u64) -> Result<Vec<u8>, Ext4Error> {
        file.must_be(FileKind::Regular)?;
        self.bytes_of(file, most_bytes)
    }

    /// Reads what says where the content of a file lies, as a program does that opens it and reads it.
    ///
    /// # Errors
    /// When that is damaged or cannot be read.
    pub fn walk(&mut self, file: &Inode) -> Result<(), Ext4Error> {
        if file.has_inline_data() || file.short_target().is_some() {
            return Ok(());
        }
        let blocks = self.within_disk(file, u64::MAX)?.div_ceil(self.block_bytes());
        let mut mapping = Mapping::of(file);
        let mut at = 0;
        while at < blocks {
            at += mapping.run_at(self, at)?.count;
        }
        Ok(())
    }

    /// Where the content of a file or directory lies, without its holes: each run's first block of the file
    /// system, and how many there are. Nothing where the content lies in the inode.
    ///
    /// # Errors
    /// When what says so is damaged or cannot be read, or there are more than [`MOST_RUNS`].
    pub fn runs(&mut self, file: &Inode) -> Result<Vec<(u64, u64)>, Ext4Error> {
        Ok(self.placed_runs(file)?.into_iter().map(|(_, first, count)| (first, count)).collect())
    }

    /// As [`Ext4::runs`], each behind the block of the file with which it begins.
    pub(crate) fn placed_runs(&mut self, file: &Inode) -> Result<Vec<(u64, u64, u64)>, Ext4Error> {
        let mut runs = Vec::new();
        if file.has_inline_data() || file.short_target().is_some() {
            return Ok(runs);
        }
        let blocks = self.within_disk(file, u64::MAX)?.div_ceil(self.block_bytes());
        let mut mapping = Mapping::of(file);
        let mut at = 0;
        while at < blocks {
            let run = mapping.run_at(self, at)?;
            let count = run.count.min(blocks - at);
            if runs.len() >= MOST_RUNS {
                return Err(file.too_long(at * self.block_bytes()));
            }
            runs.extend(run.first.map(|first| (at, first, count)));
            at += run.count;
        }
        Ok(runs)
    }

    fn bytes_of(&mut self, inode: &Inode, most_bytes: u64) -> Result<Vec<u8>, Ext4Error> {
        let bytes = self.within_disk(inode, most_bytes)?;
        if inode.has_inline_data() {
            return Ok(inode.inline_data(bytes)?.concat());
        }
        let mut content = Vec::new();
        if content.try_reserve_exact(to_usize(bytes)).is_err() {
            return Err(inode.too_long(0));
        }
        let mut mapping = Mapping::of(inode);
        while (content.len() as u64) < bytes {
            let at = content.len() as u64;
            let run = mapping.run_at(self, at / self.block_bytes())?;
            // A run begins where the last one ended, at the beginning of a block.
            let here = run.count.saturating_mul(self.block_bytes()).min(bytes - at);
            self.take_run(run.first, here, &mut content)?;
        }
        Ok(content)
    }

    /// Adds `len` bytes that begin at this block of the disk, or as many zeros.
    fn take_run(&mut self, first: Option<u64>, len: u64, content: &mut Vec<u8>) -> Result<(), Ext4Error> {
        let start = content.len();
        content.resize(start + to_usize(len), 0);
        let Some(first) = first else { return Ok(()) };
        let mut offset = first * self.geometry.block_bytes;
        for piece in content[start..].chunks_mut(to_usize(PIECE_BYTES)) {
            self.disk.read(offset, piece)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// The size of a file, when it is no more than `most_bytes`, and than the disk.
    fn within_disk(&self, inode: &Inode, most_bytes: u64) -> Result<u64, Ext4Error> {
        let limit = most_bytes.min(self.geometry.blocks * self.geometry.block_bytes);
        match inode.size() {
            size if size <= limit => Ok(size),
            _ => Err(inode.too_long(limit)),
        }
    }

    /// A block of metadata.
    fn block(&mut self, number: u64, what: &'static str, named_at: u64) -> Result<Vec<u8>, Ext4Error> {
        if number == 0 || number >= self.geometry.blocks {
            let expected = Expected::Between(1, self.geometry.blocks - 1);
            return Err(Ext4Error::Unexpected { what, offset: named_at, found: number, expected });
        }
        let mut bytes = vec![0; to_usize(self.geometry.block_bytes)];
        self.read_metadata(number * self.geometry.block_bytes, &mut bytes)?;
        Ok(bytes)
    }

    fn read_metadata(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Ext4Error> {
        self.spend(bytes.len() as u64)?;
        self.disk.read(offset, bytes)
    }

    fn spend(&mut self, metadata_bytes: u64) -> Result<(), Ext4Error> {
        let left = self.metadata_bytes_left.checked_sub(metadata_bytes);
        self.metadata_bytes_left = left.ok_or(Ext4Error::TooMuchMetadata { limit: MOST_METADATA_BYTES })?;
        Ok(())
    }
}

/// The number at `at`; zero beyond the end, which no caller reaches: the places are those of structures that
/// are as long as `bytes`.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

#[cfg(test)]
mod tests;
