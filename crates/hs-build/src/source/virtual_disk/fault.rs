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
    /// A VHDX file has changes that are only in its log; `qemu-img convert` refuses it too.
    #[error(
        "it was not closed: changes are in its log only. Open it once in its hypervisor, or run `qemu-img check -r \
         all` on a copy, which puts them in place"
    )]
    NotClosed,
    /// A file that has a part of the disk cannot be taken.
    #[error("its part {name}: {fault}")]
    Part {
        /// As the disk's text calls it.
        name: String,
        /// What is wrong.
        fault: Box<VirtualDiskFault>,
    },
    /// Such a file is not one that may be opened.
    #[error("it has a part of the disk in {name}, which {reason}")]
    PartName {
        /// As the disk's text calls it.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// Such a file cannot be opened.
    #[error("it has a part of the disk in {name}, which cannot be opened: {error}")]
    PartFile {
        /// As the disk's text calls it.
        name: String,
        /// Why not.
        error: io::Error,
    },
    /// A disk of too many files.
    #[error("it has a disk of more than {most} parts")]
    Parts {
        /// So many are taken.
        most: usize,
    },
    /// A disk that is too large.
    #[error("it has a disk of {} in parts of {}, which are too many", ByteSize(*bytes), ByteSize(*block_bytes))]
    LargeDisk {
        /// As it says.
        bytes: u64,
        /// Bytes of a part.
        block_bytes: u64,
    },
    /// Parts of the disk have the same bytes of the file.
    #[error("its tables name more than its {file_bytes} bytes: they name some of them twice")]
    SharedParts {
        /// Bytes of the file.
        file_bytes: u64,
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
