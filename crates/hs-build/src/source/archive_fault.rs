//! What is wrong with an archive.

use std::io;
use std::path::PathBuf;

use hs_units::ByteSize;
use tar_core::parse::ParseError;

/// What is wrong with an archive, or with one of its entries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveFault {
    /// A header is damaged, or not of an archive.
    #[error("its header cannot be read: {0}")]
    Header(ParseError),
    /// It is something else.
    #[error(
        "this is no tar archive, plain or packed with gzip, zstd or xz; a disk is read at any place, so it \
             cannot come from a stream: write it to a file first"
    )]
    NoArchive,
    /// It ends in the middle.
    #[error("it ends in the middle, after {bytes} bytes; it may be cut short")]
    Truncated {
        /// Bytes until there, unpacked.
        bytes: u64,
    },
    /// The end mark is missing.
    #[error("it ends without the zeros that end an archive, after {bytes} bytes; it may be cut short")]
    NoEnd {
        /// Bytes until there, unpacked.
        bytes: u64,
    },
    /// It could not be read or unpacked.
    #[error("cannot read it: {0}")]
    Read(io::Error),
    /// There is no room for contents.
    #[error("cannot keep its contents in a file in {}: {error}", folder.display())]
    Keep {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It becomes larger than it may.
    #[error("unpacked it has more than {}; --unpack-limit allows more", ByteSize(*most_bytes))]
    TooLarge {
        /// The most that it may have.
        most_bytes: u64,
    },
    /// A name would lead out of the root.
    #[error(
        "the name {name:?} has a part `..`, which could lead out of the root; make the archive without it"
    )]
    Above {
        /// The name.
        name: String,
    },
    /// The root is given as something else than a directory.
    #[error("this is the root, which is a directory and nothing else")]
    RootIsDirectory,
    /// Something lies below what is no directory.
    #[error("{name:?} on the way to it is no directory")]
    NotADirectory {
        /// What is none.
        name: String,
    },
    /// Links lead to one another.
    #[error("more than 40 symbolic links lead to it")]
    TooManyLinks,
    /// A hard link names what is not there.
    #[error("it is a hard link to {target:?}, which is not in the archive before it")]
    LinkToNothing {
        /// What it names.
        target: String,
    },
    /// A hard link names a directory.
    #[error("it is a hard link to {target:?}, which is a directory")]
    LinkToDirectory {
        /// What it names.
        target: String,
    },
    /// A hard or symbolic link names nothing.
    #[error("it is a link without a target")]
    NoTarget,
    /// A symbolic link is longer than any file system has it.
    #[error("its target has more than {most_bytes} bytes")]
    LongTarget {
        /// The most that a target has.
        most_bytes: usize,
    },
    /// More entries than are held in memory.
    #[error("it has more than {most} entries")]
    TooManyEntries {
        /// The most.
        most: usize,
    },
    /// More names than are held in memory.
    #[error("its names, links, attributes and lists of holes take more than {}", ByteSize(*most_bytes))]
    TooManyNameBytes {
        /// The most.
        most_bytes: u64,
    },
    /// A number of its header is one that no file can have.
    #[error("its {field} is {value}, which no file can have")]
    Number {
        /// Which.
        field: &'static str,
        /// As it is written.
        value: String,
    },
    /// The list of records of an entry, or of all, does not follow the form.
    #[error("its records are damaged, behind which others may be lost")]
    Records,
    /// A record for all entries that changes what they are.
    #[error("it has the record {key:?} for all entries, which is read of single entries only")]
    ForAll {
        /// The key.
        key: String,
    },
    /// The map of a sparse file contradicts itself.
    #[error("the list of its holes is wrong: {0}")]
    Sparse(&'static str),
    /// An entry of a kind that is no file.
    #[error("it is of kind {kind:?}, which is no file; {hint}")]
    Kind {
        /// The letter in its header.
        kind: char,
        /// What to try.
        hint: &'static str,
    },
    /// A whiteout that says nothing.
    #[error("it is a whiteout of no name")]
    Whiteout,
}
