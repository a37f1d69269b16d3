//! A start of UML-KNOPPIX whose image lies on a server, through SFS (Suzaki and others, "SFS による UML-KNOPPIX
//! サービスの性能評価", about 2004).
//!
//! A block of the image is fetched in reads of 8 KiB that are asked for together; a read takes the wire, what SFS does
//! for it, and the wire; then the client decompresses the block.

use hs_device::Service;
use hs_engine::queue::Direction;
use hs_units::{ByteRange, Nanos};

use crate::simulation::Station;

/// Bytes of a read of NFS 3, as clients of the time asked.
pub(super) const READ: u64 = 8 << 10;

/// Bytes that a start of KNOPPIX transfers.
pub(super) const KNOPPIX_BYTES: u64 = 51_600_000;

/// What the start takes when nothing has to be transferred: the second one, from the host's page cache.
pub(super) const COMPUTING: f64 = 80.0;

/// Bytes of a block of cloop as it lies on the server: 68,156 KB in 3,668 references (seeds 000, table 1).
pub(super) const BLOCK: u64 = 68_156 * 1_024 / 3_668;

/// Bytes of a frame that carry something (TCP over Ethernet with time stamps), and on the wire altogether.
const SEGMENT: u64 = 1_448;
const FRAME: u64 = 1_538;

/// Highest rate that was seen without compression: what SFS can do. Bits a second.
const SFS_RATE: f64 = 80e6;

/// Highest rate that was seen with compression: what SFS and decompression can do, one block after the other.
const CLOOP_RATE: f64 = 38.7e6;

/// Bits a second that were measured on the wire of 1 Gbit/s.
pub(super) const GIGABIT: f64 = 580e6;

/// What SFS does for a read, on both sides together.
pub(super) fn processing(bytes: u64) -> Nanos {
    // Most of it is crossing between processes, once a read, however long it is.
    let _ = bytes;
    Nanos::from_secs_f64(READ as f64 * 8.0 / SFS_RATE)
}

/// What the client takes to decompress a block.
pub(super) fn decompression() -> Nanos {
    let whole = BLOCK as f64 * 8.0 / CLOOP_RATE;
    let fetching = BLOCK.div_ceil(READ) as f64 * processing(READ).as_secs_f64();
    Nanos::from_secs_f64((whole - fetching).max(0.0))
}
