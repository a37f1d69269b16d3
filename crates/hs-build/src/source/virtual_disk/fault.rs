//! What is wrong with a virtual disk.

use std::io;

use hs_units::ByteSize;

/// What is wrong with a virtual disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VirtualDiskFault {
    /// Part of it cannot be.
    #[error("its {0} is damaged")]
    Damaged(&'static str),
    /// Something that is not read.
    #[error("it {0}, which is not read; `qemu-img convert -O raw` makes a raw disk of it")]
    Unread(&'static str),
    /// A disk that is too large.
    #[error("it has a disk of {} in parts of {}, which are too many", ByteSize(*bytes), ByteSize(*block_bytes))]
    LargeDisk {
        /// As it says.
        bytes: u64,
        /// Bytes of a part.
        block_bytes: u64,
    },
    /// Something lies behind the end of the file.
    #[error("{what} at {offset} lies behind the end of the file; it may be cut short")]
    OutOfFile {
        /// What.
        what: &'static str,
        /// Where.
        offset: u64,
    },
    /// A compressed part does not unpack.
    #[error("the compressed part at {offset} is damaged")]
    Compressed {
        /// Where it lies in the file.
        offset: u64,
    },
    /// It could not be read.
    #[error("a read of {bytes} bytes at {offset} failed: {error}")]
    Read {
        /// Where.
        offset: u64,
        /// How much.
        bytes: u64,
        /// Why.
        error: io::Error,
    },
}
