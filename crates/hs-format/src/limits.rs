//! Every limit of the format, with its derivation. A reader refuses what exceeds one before it
//! allocates or reads anything on behalf of it.

use hs_units::{BLOCK_BYTES, to_u32};

/// The format version that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// Bytes in a superblock: one block, so that one aligned read of any medium brings it.
pub const SUPERBLOCK_BYTES: usize = 4096;

/// The incompatible feature `base`: cold windows may refer to blocks of another disk, which the superblock
/// names.
pub const FEATURE_BASE: u64 = 1;

/// The incompatible feature `unread`: cold windows are those of a disk that was not read, and have no
/// digests. Only the image that a pack makes has it.
pub const FEATURE_UNREAD: u64 = 2;

/// The incompatible feature of an image some of whose hot chunks are those of its base's image.
pub const FEATURE_BORROWED: u64 = 1 << 2;

/// The incompatible feature of an image some of whose hot chunks have blocks that are none of its disk.
pub const FEATURE_STALE: u64 = 1 << 3;

/// Incompatible features that this crate knows.
pub const KNOWN_INCOMPAT: u64 = FEATURE_BASE | FEATURE_UNREAD | FEATURE_BORROWED | FEATURE_STALE;

/// Bytes of the header of a pack.
pub const PACK_HEADER_BYTES: usize = 4096;

/// Most bytes of the name of the file that a pack is for: what file systems allow.
pub const MAX_PACK_NAME_BYTES: usize = 256;

/// Most samples of that file.
pub const MAX_PACK_SAMPLES: usize = 64;

/// Most runs of windows in a pack: a table of 64 MiB.
pub const MAX_PACK_RUNS: u32 = 4 << 20;

/// The most files behind the one that holds the disk of a pack.
pub const MAX_PACK_BACKING: u32 = 64;

/// The most samples of each of these.
pub const MAX_BACKING_SAMPLES: usize = 8;

/// The first of [`COMPAT_TABLES_BITS`] bits of the compatible features that are a number: how many blocks at
/// the disk's start hold the tables of its file system.
pub const COMPAT_TABLES_SHIFT: u32 = 16;

/// See [`COMPAT_TABLES_SHIFT`].
pub const COMPAT_TABLES_BITS: u32 = 24;

/// The bits of the compatible features that are a number: by how many bytes the disk is shorter than its last
/// block. Readers that do not know it give the block as a whole, which ends with as many zeros.
pub const COMPAT_SHORT: u64 = BLOCK_BYTES - 1;

/// Largest logical disk, 16 TiB: 2^32 blocks, so that a block number fits 32 bits in the hot index
/// and in hints (ext4 without `64bit` ends at the same size).
pub const MAX_DISK_BYTES: u64 = BLOCK_BYTES << 32;

/// Largest image file: what a signed 64-bit file offset reaches.
pub const MAX_IMAGE_BYTES: u64 = i64::MAX as u64;

/// Most raw bytes in one chunk, 4 MiB. It bounds the memory of a worker (raw and stored: 8 MiB)
/// and the codec's window.
pub const MAX_CHUNK_RAW_BYTES: u32 = 4 << 20;

/// Most blocks in one cold window: [`MAX_CHUNK_RAW_BYTES`] in blocks.
pub const MAX_WINDOW_BLOCKS: u32 = MAX_CHUNK_RAW_BYTES / to_u32(BLOCK_BYTES);

/// Blocks in one cold window unless the builder is told otherwise: 128 KiB.
pub const DEFAULT_WINDOW_BLOCKS: u32 = 32;

/// Bytes of one window's entry in a cold leaf.
pub const WINDOW_ENTRY_BYTES: usize = 48;

/// Bytes of one leaf's entry in the cold root.
pub const LEAF_ENTRY_BYTES: usize = 48;

/// Most windows in one cold leaf: the largest power of two whose leaf (768 KiB) stays under 1 MiB.
pub const MAX_WINDOWS_PER_LEAF: u32 = 16_384;

/// Windows in one cold leaf unless the builder is told otherwise. A leaf is then 24 KiB, 1 ms at
/// 25 MB/s, and the root of a 100 GB disk in 128 KiB windows 75 KB.
pub const DEFAULT_WINDOWS_PER_LEAF: u32 = 512;

/// Most bytes in one cold leaf.
pub const MAX_LEAF_BYTES: u32 = MAX_WINDOWS_PER_LEAF * to_u32(WINDOW_ENTRY_BYTES as u64);

/// Most bytes in the cold root, 16 MiB: the largest disk at the default window and leaf sizes needs
/// 12 MiB.
pub const MAX_ROOT_BYTES: u32 = 16 << 20;

/// Most hot segments in one image: what the superblock has slots for.
pub const MAX_HOT_SEGMENTS: usize = 16;

/// Most bytes in the hot indexes of all segments together, 16 MiB: two million extents, a hundred times what
/// a start needs.
pub const MAX_HOT_INDEX_BYTES: u32 = 16 << 20;

/// Most bytes in the hints of all segments together, 16 MiB.
pub const MAX_HINTS_BYTES: u32 = 16 << 20;

/// The padding that may stand between two regions is shorter than this: enough to align a region
/// to a block, so that a file system can share it between two images (reflink).
pub const MAX_PADDING_BYTES: u64 = BLOCK_BYTES;

/// Bytes in one logical window of the disk digest, 128 KiB whatever the cold windows are.
pub const DISK_DIGEST_WINDOW_BYTES: usize = 128 << 10;

/// Most children of one node of the disk digest's tree.
pub const DISK_DIGEST_FANOUT: usize = 1024;
