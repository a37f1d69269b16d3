//! Why a profile is refused.

use core::fmt;

use hs_units::Digest;

/// One of the compressed parts of a profile's body, in file order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// Command and medium.
    Text,
    /// The reads, column by column.
    Reads,
    /// Block digests.
    Digests,
    /// File names and page runs.
    Files,
}

impl Section {
    /// Every section, in file order.
    pub const ALL: [Self; 4] = [Self::Text, Self::Reads, Self::Digests, Self::Files];
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Reads => "reads",
            Self::Digests => "digests",
            Self::Files => "files",
        })
    }
}

/// A quantity that has a limit; see [`crate::limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Bytes of the disk.
    DiskBytes,
    /// Nanoseconds of a time or a span.
    Nanos,
    /// Number of reads.
    Reads,
    /// Number of distinct blocks.
    Digests,
    /// Number of files.
    Files,
    /// Number of page runs.
    Runs,
    /// Bytes of the command.
    CommandBytes,
    /// Bytes of the medium's name.
    MediumBytes,
    /// Bytes of a path.
    PathBytes,
    /// Bytes of the body before compression.
    RawBodyBytes,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DiskBytes => "bytes of disk",
            Self::Nanos => "nanoseconds",
            Self::Reads => "reads",
            Self::Digests => "block digests",
            Self::Files => "files",
            Self::Runs => "page runs",
            Self::CommandBytes => "bytes of command",
            Self::MediumBytes => "bytes of medium name",
            Self::PathBytes => "bytes of path",
            Self::RawBodyBytes => "bytes of uncompressed body",
        })
    }
}

/// What is wrong with the bytes of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syntax {
    /// The section ends inside a value, or before the values that the header counts.
    Short,
    /// Bytes are left after the last value.
    Long,
    /// A number is longer than it must be, or exceeds 64 bits.
    Varint,
    /// A number leads outside the range of its kind.
    Range,
    /// A text is not UTF-8.
    Utf8,
}

impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "ends too early",
            Self::Long => "has bytes left over",
            Self::Varint => "has a malformed number",
            Self::Range => "has a number out of range",
            Self::Utf8 => "has a text that is not UTF-8",
        })
    }
}

/// What is wrong with one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadFault {
    /// It reads no block.
    Empty,
    /// It ends behind the end of the disk.
    OutsideDisk,
    /// It arrived before the read in front of it.
    Unsorted,
}

impl fmt::Display for ReadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "reads no block",
            Self::OutsideDisk => "ends behind the end of the disk",
            Self::Unsorted => "arrived before the read in front of it",
        })
    }
}

/// What is wrong with one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFault {
    /// The path is not absolute, holds a NUL byte or a `..` component.
    Path,
    /// The inode number is zero, which stands for metadata elsewhere.
    Inode,
    /// A run holds no block.
    EmptyRun,
    /// A run ends behind the end of the disk.
    OutsideDisk,
    /// A run ends behind the highest page number.
    Page,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Path => "has a path that is not absolute and plain",
            Self::Inode => "has inode number zero",
            Self::EmptyRun => "has a run of no blocks",
            Self::OutsideDisk => "has a run that ends behind the end of the disk",
            Self::Page => "has a run that ends behind the highest page",
        })
    }
}

/// Why bytes are not a profile, or a profile cannot be written or used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The bytes stop early.
    #[error("the profile is cut off: {found} bytes of {expected}")]
    Truncated {
        /// Bytes that the header, or its size, calls for.
        expected: u64,
        /// Bytes present.
        found: u64,
    },
    /// Bytes follow the last section.
    #[error("the profile ends at byte {expected}, but {found} bytes are there")]
    TrailingBytes {
        /// Bytes that the header calls for.
        expected: u64,
        /// Bytes present.
        found: u64,
    },
    /// The magic is another.
    #[error("not a profile: it begins with {found:02x?}, not with HSPROF")]
    BadMagic {
        /// The first eight bytes.
        found: [u8; 8],
    },
    /// A version that this reader does not know.
    #[error("profile version {found} is not known here (known: {known}); use a newer headstart")]
    UnknownVersion {
        /// The file's version.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The header was altered.
    #[error("the profile's header is damaged: digest {found}, expected {expected}")]
    HeaderDigest {
        /// As the header says.
        expected: Digest,
        /// As computed.
        found: Digest,
    },
    /// The body was altered.
    #[error("the profile's body is damaged: digest {found}, expected {expected}")]
    BodyDigest {
        /// As the header says.
        expected: Digest,
        /// As computed.
        found: Digest,
    },
    /// A flag bit that this version does not define.
    #[error("the profile's header has unknown flags {flags:#x}")]
    UnknownFlags {
        /// The unknown bits.
        flags: u32,
    },
    /// A header field that its flag or its version calls unused is not zero.
    #[error("the profile's header is not zero at byte {offset}, where it must be")]
    NotZero {
        /// Offset of the field in the header.
        offset: usize,
    },
    /// More than [`crate::limits`] allows.
    #[error("{found} {what}: a profile has {limit} at most")]
    OverLimit {
        /// What there is too much of.
        what: Limit,
        /// The most there may be.
        limit: u64,
        /// How much there is.
        found: u64,
    },
    /// A section could not be compressed.
    #[error("the profile's {section} section could not be compressed")]
    Compress {
        /// The section.
        section: Section,
    },
    /// A section is not one zstd frame of the allowed kind.
    #[error("the profile's {section} section does not decompress")]
    Frame {
        /// The section.
        section: Section,
    },
    /// A section decompresses to another length than the header says.
    #[error("the profile's {section} section does not hold {expected} bytes, as its header says")]
    SectionLength {
        /// The section.
        section: Section,
        /// Bytes that the header says.
        expected: u64,
    },
    /// A section's bytes do not parse.
    #[error("the profile's {section} section {syntax} at byte {offset}")]
    SectionSyntax {
        /// The section.
        section: Section,
        /// Offset in the uncompressed section.
        offset: usize,
        /// What is wrong there.
        syntax: Syntax,
    },
    /// A read that cannot be.
    #[error("read {index} of the profile {fault}")]
    BadRead {
        /// Its place in arrival order, from 0.
        index: usize,
        /// What is wrong.
        fault: ReadFault,
    },
    /// A file that cannot be.
    #[error("file {index} of the profile {fault}")]
    BadFile {
        /// Its place in the list, from 0.
        index: usize,
        /// What is wrong.
        fault: FileFault,
    },
    /// There is not exactly one digest for each distinct block.
    #[error("the profile has {found} block digests for {expected} distinct blocks")]
    DigestCount {
        /// Distinct blocks read.
        expected: u64,
        /// Digests present.
        found: u64,
    },
    /// The program got ready after the recording ended.
    #[error("the profile says ready at {ready_ns} ns, after its end at {ended_ns} ns")]
    ReadyAfterEnd {
        /// Ready, in nanoseconds since the first moment of recording.
        ready_ns: u64,
        /// End, likewise.
        ended_ns: u64,
    },
    /// The profile was recorded on another disk.
    #[error("the profile was recorded on disk {expected}, this is disk {found}: record a start of this disk")]
    WrongDisk {
        /// The disk digest in the profile.
        expected: Digest,
        /// The digest of the disk at hand.
        found: Digest,
    },
    /// The disk digest agrees, the size does not.
    #[error("the profile was recorded on a disk of {expected} bytes, this one has {found}")]
    WrongDiskSize {
        /// Bytes of the profile's disk.
        expected: u64,
        /// Bytes of the disk at hand.
        found: u64,
    },
}
