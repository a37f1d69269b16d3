//! Why a file system could not be read.

use std::fmt::{self, Display};
use std::io;

use super::FileKind;

/// Why a file system, or something in it, could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ext4Error {
    /// The disk could not be read.
    #[error("cannot read {len} bytes at {offset}: {error}")]
    Read {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: usize,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// There is no such file system.
    #[error("no ext4 superblock at byte {offset}: magic number {found:#06x}, expected 0xef53")]
    NoSuperblock {
        /// Where it would be.
        offset: u64,
        /// What is there.
        found: u16,
    },
    /// The file system has features without which it cannot be read right.
    #[error(
        "the superblock names incompatible features {found:#x}, of which {unknown:#x} are not known here"
    )]
    Features {
        /// All of them.
        found: u32,
        /// Those that are not known.
        unknown: u32,
    },
    /// A number cannot be right.
    #[error("{what} at byte {offset} is {found}, expected {expected}")]
    Unexpected {
        /// What the number says.
        what: &'static str,
        /// Where the structure begins in which it stands.
        offset: u64,
        /// The number.
        found: u64,
        /// What it could be.
        expected: Expected,
    },
    /// An inode is of another kind than it must be.
    #[error("inode {inode} is {found}, expected {expected}")]
    Kind {
        /// Its number.
        inode: u32,
        /// What it is.
        found: FileKind,
        /// What it must be.
        expected: FileKind,
    },
    /// The content of an inode is encrypted.
    #[error("inode {inode} is encrypted")]
    Encrypted {
        /// Its number.
        inode: u32,
    },
    /// A file, directory or link is larger than what is read.
    #[error("inode {inode} has {found} bytes, more than {limit}")]
    TooLong {
        /// Its number.
        inode: u32,
        /// Its size.
        found: u64,
        /// The most that is read.
        limit: u64,
    },
    /// So much has been read of directories and inodes that the file system must have been made to waste
    /// time.
    #[error("its directories and inodes have more than {limit} bytes to read")]
    TooMuchMetadata {
        /// The most that is read.
        limit: u64,
    },
}

/// What a number could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This number.
    Exactly(u64),
    /// From the first to the second.
    Between(u64, u64),
    /// As described.
    Described(&'static str),
}

impl Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(number) => write!(f, "{number}"),
            Self::Between(least, most) => write!(f, "{least} to {most}"),
            Self::Described(text) => f.write_str(text),
        }
    }
}
