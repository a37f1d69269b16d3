//! Why bytes are not an image.

use core::fmt;

use hs_units::{BlockRange, ByteRange, Digest};

use crate::Codec;

/// The part of an image that an error is about.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// The image file as a whole.
    File,
    /// The superblock, or its mirror.
    Superblock,
    /// The root of the cold index.
    ColdRoot,
    /// One leaf of the cold index.
    ColdLeaf {
        /// The leaf's number, from zero.
        leaf: u64,
    },
    /// The index of a hot segment.
    HotIndex {
        /// Its absolute offset in the file.
        offset: u64,
    },
    /// The hints of a hot segment.
    Hints {
        /// Their absolute offset in the file.
        offset: u64,
    },
    /// A stored chunk.
    Chunk {
        /// Where it lies, relative to its region.
        range: ByteRange,
    },
    /// The header of a pack, or its table of runs.
    Pack,
    /// The window that a composed chunk and its base make.
    Window {
        /// Where the chunk lies, relative to its region.
        range: ByteRange,
    },
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("image file"),
            Self::Superblock => f.write_str("superblock"),
            Self::ColdRoot => f.write_str("cold index root"),
            Self::ColdLeaf { leaf } => write!(f, "cold index leaf {leaf}"),
            Self::HotIndex { offset } => write!(f, "hot index at byte {offset}"),
            Self::Hints { offset } => write!(f, "hints at byte {offset}"),
            Self::Chunk { range } => write!(f, "chunk at {range} of its region"),
            Self::Pack => f.write_str("pack"),
            Self::Window { range } => write!(f, "window of the chunk at {range} of its region"),
        }
    }
}

/// Why bytes are not an image that this crate reads.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// A part has another length than what refers to it says, or than the format fixes.
    #[error("{part}: expected {expected} bytes, found {found}")]
    Size {
        /// What is too short or too long.
        part: Part,
        /// Bytes it must have.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// The first bytes are not those of this structure.
    #[error("{part}: expected magic {:?}, found {:?}", expected.escape_ascii().to_string(),
        found.escape_ascii().to_string())]
    BadMagic {
        /// The structure that should start here.
        part: Part,
        /// Its magic.
        expected: [u8; 8],
        /// The bytes in its place.
        found: [u8; 8],
    },
    /// The file has a format version that this crate does not read.
    #[error("{part}: expected format version {expected}, found {found}: use a newer headstart")]
    UnsupportedVersion {
        /// The structure that states it.
        part: Part,
        /// The version that this crate reads.
        expected: u32,
        /// The file's version.
        found: u32,
    },
    /// The image uses incompatible features that this crate does not know.
    #[error(
        "superblock: expected only the incompatible features {known:#018x}, found {found:#018x}: use a newer \
         headstart"
    )]
    UnknownFeatures {
        /// Bits that this crate knows.
        known: u64,
        /// Bits of the image.
        found: u64,
    },
    /// Bytes are not those that their digest (for the superblock: its checksum) names.
    #[error("{part}: expected digest {expected}, found {found}")]
    DigestMismatch {
        /// Whose bytes are wrong.
        part: Part,
        /// The digest that the image states.
        expected: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
    /// A reserved byte is not zero.
    #[error("{part}: expected a zero reserved byte at offset {offset}, found {found:#04x}")]
    ReservedNotZero {
        /// Where the byte is.
        part: Part,
        /// Its offset in that part.
        offset: u64,
        /// Its value.
        found: u8,
    },
    /// The last block has bytes behind the end of the disk.
    #[error("superblock: the disk has {exact_bytes} bytes, and behind them its last block is not zero")]
    BytesBehindDisk {
        /// Where the disk ends.
        exact_bytes: u64,
    },
    /// A field is beyond a limit of the format.
    #[error("{part}: expected {field} in {min}..={max}, found {found}")]
    Limit {
        /// Where the field is.
        part: Part,
        /// Its name in docs/FORMAT.md.
        field: &'static str,
        /// The least value allowed.
        min: u64,
        /// The greatest value allowed.
        max: u64,
        /// Its value.
        found: u64,
    },
    /// A field contradicts other fields.
    #[error("{part}: expected {field} {expected}, found {found}")]
    Inconsistent {
        /// Where the field is.
        part: Part,
        /// Its name in docs/FORMAT.md.
        field: &'static str,
        /// What the other fields make it.
        expected: u64,
        /// Its value.
        found: u64,
    },
    /// A range of bytes leaves the space that it must lie in.
    #[error("{part}: expected {field} inside {space}, found {}+{}", range.offset, range.len)]
    OutOfBounds {
        /// Where the range is stated.
        part: Part,
        /// What the range is.
        field: &'static str,
        /// The space.
        space: ByteRange,
        /// The range; its end may overflow.
        range: ByteRange,
    },
    /// Two ranges of bytes overlap, or overlap without being the same chunk.
    #[error("{part}: expected disjoint ranges, found {first} and {second}")]
    Overlap {
        /// Where they are stated.
        part: Part,
        /// The range that starts first.
        first: ByteRange,
        /// The other.
        second: ByteRange,
    },
    /// Bytes between two regions of the file that belong to neither.
    #[error("{part}: expected less than {limit} bytes of padding, found the gap {gap}")]
    Gap {
        /// Where the regions are stated.
        part: Part,
        /// Padding must be shorter than this.
        limit: u64,
        /// The gap.
        gap: ByteRange,
    },
    /// A block is in two extents of one segment.
    #[error("{part}: expected every block in one extent, found extents {first} and {second}")]
    ExtentsOverlap {
        /// The hot index.
        part: Part,
        /// The extent with the lower start.
        first: BlockRange,
        /// The other.
        second: BlockRange,
    },
    /// A run of blocks is empty or leaves the disk.
    #[error("{part}: expected a run inside the disk's {disk_blocks} blocks, found {}+{}", run.start, run.count)]
    OutsideDisk {
        /// Where the run is stated.
        part: Part,
        /// Blocks of the disk.
        disk_blocks: u64,
        /// The run.
        run: BlockRange,
    },
    /// A pack names something else than a file beside it.
    #[error("pack: expected the name of a file without a folder, found \"{name}\"")]
    PackName {
        /// What it names.
        name: String,
    },
    /// A chunk without a digest where each must have one, or the other way round.
    #[error("{part}: expected {} a digest", if *expected { "each chunk to have" } else { "no chunk to have" })]
    ChunkDigest {
        /// Where it is stated.
        part: Part,
        /// Whether chunks have one.
        expected: bool,
    },
    /// A codec number that this crate does not know.
    #[error(
        "{part}: expected codec 1 (store), 2 (zstd), 3 (lz4), 4 (zlib) or 5 (composed), found {found}: use a \
         newer headstart"
    )]
    UnknownCodec {
        /// Where it is stated.
        part: Part,
        /// The number.
        found: u16,
    },
    /// A composed chunk where there can be none.
    #[error("{part}: expected a chunk that is not composed: only cold windows of an image with a base are")]
    MisplacedComposed {
        /// Where it is stated.
        part: Part,
    },
    /// A zstd frame's first bytes are not those that the format prescribes.
    #[error(
        "chunk: expected a zstd frame that starts {expected:02x?} with a window of up to 4 MiB, found {found:02x?}"
    )]
    FrameHeader {
        /// The prescribed bytes before the window descriptor.
        expected: [u8; 5],
        /// The first bytes found, window descriptor last; zeros beyond the chunk's end.
        found: [u8; 6],
    },
    /// The codec could not decode a chunk.
    #[error("chunk: expected {expected_bytes} bytes from {codec}, found: {reason}")]
    Decompress {
        /// The codec.
        codec: Codec,
        /// Raw bytes that were asked for.
        expected_bytes: u64,
        /// The codec's word for what is wrong.
        reason: &'static str,
    },
    /// A chunk decoded to another length than the index states.
    #[error("chunk: expected {expected} raw bytes from {codec}, found {found}")]
    RawSize {
        /// The codec.
        codec: Codec,
        /// Bytes that the index states.
        expected: u64,
        /// Bytes that the chunk holds.
        found: u64,
    },
}
