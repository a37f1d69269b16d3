//! What an ext4 file system cannot hold.

/// Why an entry cannot be in an ext4 file system. The caller knows its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A file has more names than an inode can count.
    #[error("it has more than {} hard links", crate::plan::MOST_LINKS)]
    Links,
    /// A name is empty, too long, or has a byte that no name has.
    #[error("a name has 1 to 255 bytes, without a slash and a zero")]
    Name,
    /// A file is larger than block numbers within a file reach.
    #[error("it is larger than 16 TiB")]
    FileSize,
    /// A symbolic link is empty, or longer than a block.
    #[error("a symbolic link has 1 to 4095 bytes")]
    Target,
    /// The number of a device does not fit.
    #[error("the number of a device has 12 and 20 bits")]
    DeviceNumber,
    /// Names of attributes do not fit into the inode and one block.
    #[error("the names of its extended attributes take more than one 4096-byte block")]
    Attributes,
    /// The value of an attribute is larger than Linux shows.
    #[error("an extended attribute has more than 65536 bytes")]
    AttributeValue,
    /// An access control list is not one.
    #[error("its access control list is damaged")]
    AccessList,
    /// There is no number for a further inode.
    #[error("a file system has at most 4,294,967,285 files")]
    Inodes,
}

/// Why a plan cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A directory has more names than an index of two levels reaches.
    #[error("it has more names than the index of a directory holds")]
    Names {
        /// The path of the directory, from the root.
        path: Vec<u8>,
    },
    /// Two entries of a directory have the same name.
    #[error("its directory has this name twice")]
    SameName {
        /// The path of one of the two, from the root.
        path: Vec<u8>,
    },
    /// Descriptors of groups would not fit in front of the first one.
    #[error("its file system would have {blocks} blocks, which is too large")]
    TooLarge {
        /// Blocks of 4096 bytes.
        blocks: u64,
    },
}

impl LayoutError {
    /// The path of what is refused, from the root; empty for the root itself.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Names { path } | Self::SameName { path } => path,
            Self::TooLarge { .. } => &[],
        }
    }
}
