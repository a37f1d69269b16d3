//! What a profile may hold at most. Writers refuse more, readers reject more: a file of a few KiB can
//! decompress to all of it, and docs/PROFILE.md says what that takes.

use hs_units::Nanos;

/// Bytes of the largest disk: a block number and an end of a range then fit with room to spare.
pub const MAX_DISK_BYTES: u64 = 1 << 60;
/// The latest time and the longest span (146 years), so that an arrival plus a cost never overflows.
pub const MAX_NANOS: Nanos = Nanos(1 << 62);
/// Reads. A desktop start has some 10⁴; the limit leaves two orders of magnitude.
pub const MAX_READS: u64 = 1 << 20;
/// Distinct blocks (16 GiB of hot data).
pub const MAX_DIGESTS: u64 = 4 << 20;
/// Files.
pub const MAX_FILES: u64 = 1 << 20;
/// Runs of pages, all files together.
pub const MAX_RUNS: u64 = 4 << 20;
/// The highest page number plus one (a file of [`MAX_DISK_BYTES`] in pages of a block, and holes).
pub const MAX_PAGES: u64 = 1 << 52;
/// Bytes of the command: the argument list that `execve` takes by default on Linux.
pub const MAX_COMMAND_BYTES: u64 = 2 << 20;
/// Bytes of the medium's name.
pub const MAX_MEDIUM_BYTES: u64 = 4096;
/// Bytes of one path (`PATH_MAX`).
pub const MAX_PATH_BYTES: u64 = 4096;
/// Bytes of all sections before compression.
pub const MAX_RAW_BODY_BYTES: u64 = 128 << 20;
/// Bytes of the whole file: what compression adds to bytes that it cannot shorten is less than a hundredth.
pub const MAX_FILE_BYTES: u64 = MAX_RAW_BODY_BYTES + MAX_RAW_BODY_BYTES / 64;
/// Base-2 logarithm of the largest window that a section's zstd frame may ask for (8 MiB).
pub const MAX_WINDOW_LOG: u32 = 23;
