//! What an ext4 file system cannot hold.

use crate::plan::NodeId;

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
    /// The attributes do not fit into the inode and one block.
    #[error("its extended attributes take more than one 4096-byte block")]
    Attributes,
    /// An access control list is not one.
    #[error("its access control list is damaged")]
    AccessList,
    /// There is no number for a further inode.
    #[error("a file system has at most 4,294,967,285 files")]
    Inodes,
}

/// Why a plan cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A directory has more names than an index of two levels reaches.
    #[error("a directory has more names than its index holds")]
    Names {
        /// The directory.
        directory: NodeId,
    },
    /// Two entries of a directory have the same name.
    #[error("a directory has the same name twice")]
    SameName {
        /// One of the two.
        node: NodeId,
    },
    /// Descriptors of groups would not fit in front of the first one.
    #[error("a file system of {blocks} blocks is too large")]
    TooLarge {
        /// Blocks of 4096 bytes.
        blocks: u64,
    },
}
