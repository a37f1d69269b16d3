//! One inode. Offsets from the kernel's documentation, "Index Nodes" and "Inline Data".

use std::fmt::{self, Display};

use hs_units::to_usize;

use super::error::{Expected, Ext4Error};
use super::{attributes, u16_at, u32_at};

/// Where the map of blocks lies in an inode, or a short link, or the first bytes of inline data.
const MAP: std::ops::Range<usize> = 0x28..0x64;
/// Bytes of every inode; what follows is as long as the field there says.
const OLD_BYTES: usize = 128;

const FLAG_ENCRYPTED: u32 = 0x800;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_INLINE: u32 = 0x1000_0000;
/// `system.data`: where inline data goes on.
const INLINE_PREFIX: u8 = 7;
const INLINE_NAME: &[u8] = b"data";

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a pipe, a socket, or nothing that there is.
    Other,
}

impl Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regular => "a regular file",
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Other => "no file, directory or link",
        })
    }
}

/// An inode, as it lies on the disk.
#[derive(Clone, Debug)]
pub struct Inode {
    number: u32,
    offset: u64,
    bytes: Vec<u8>,
}

impl Inode {
    /// `bytes` are at least 128.
    pub(super) const fn new(number: u32, offset: u64, bytes: Vec<u8>) -> Self {
        Self { number, offset, bytes }
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Where it lies on the disk.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        match u16_at(&self.bytes, 0) & 0xf000 {
            0x8000 => FileKind::Regular,
            0x4000 => FileKind::Directory,
            0xa000 => FileKind::Link,
            _ => FileKind::Other,
        }
    }

    /// The size that it claims, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        // In a directory's inode the upper half has been other things.
        let has_high = self.kind() == FileKind::Regular;
        let high = if has_high { u64::from(u32_at(&self.bytes, 0x6c)) << 32 } else { 0 };
        high | u64::from(u32_at(&self.bytes, 4))
    }

    fn flags(&self) -> u32 {
        u32_at(&self.bytes, 0x20)
    }

    pub(super) fn has_extents(&self) -> bool {
        self.flags() & FLAG_EXTENTS != 0
    }

    pub(super) fn has_inline_data(&self) -> bool {
        self.flags() & FLAG_INLINE != 0
    }

    /// The 60 bytes that say where the blocks are.
    pub(super) fn map(&self) -> &[u8] {
        &self.bytes[MAP]
    }

    /// The target of a link that is short enough for the inode itself.
    pub(super) fn short_target(&self) -> Option<&[u8]> {
        let is_here = self.kind() == FileKind::Link && !self.has_extents() && !self.has_inline_data();
        self.map().get(..to_usize(self.size())).filter(|target| is_here && target.len() < self.map().len())
    }

    /// Refuses what is of another kind, or encrypted.
    pub(super) fn must_be(&self, expected: FileKind) -> Result<(), Ext4Error> {
        let (inode, found) = (self.number, self.kind());
        match found {
            _ if found != expected => Err(Ext4Error::Kind { inode, found, expected }),
            _ if self.flags() & FLAG_ENCRYPTED != 0 => Err(Ext4Error::Encrypted { inode }),
            _ => Ok(()),
        }
    }

    pub(super) fn too_long(&self, limit: u64) -> Ext4Error {
        Ext4Error::TooLong { inode: self.number, found: self.size(), limit }
    }

    /// So many bytes that lie in the inode itself: those in place of the map, and the others.
    pub(super) fn inline_data(&self, bytes: u64) -> Result<[&[u8]; 2], Ext4Error> {
        let first = self.map().len().min(to_usize(bytes));
        let rest = to_usize(bytes) - first;
        let there = if rest == 0 { &[] } else { self.inline_rest().unwrap_or_default() };
        match there.get(..rest) {
            Some(rest) => Ok([&self.map()[..first], rest]),
            None => Err(Ext4Error::Unexpected {
                what: "the size of an inode with inline data",
                offset: self.offset,
                found: bytes,
                expected: Expected::Between(0, (self.map().len() + there.len()) as u64),
            }),
        }
    }

    fn inline_rest(&self) -> Option<&[u8]> {
        let extra = usize::from(u16_at(&self.bytes, OLD_BYTES));
        let area = self.bytes.get(OLD_BYTES + extra..)?;
        if area.len() < 4 || u32_at(area, 0) != attributes::MAGIC {
            return None;
        }
        let mut entries = attributes::entries(&area[4..], 0).map_while(Result::ok);
        let entry = entries.find(|entry| entry.prefix == INLINE_PREFIX && entry.name == INLINE_NAME)?;
        Some(entry.value)
    }
}
