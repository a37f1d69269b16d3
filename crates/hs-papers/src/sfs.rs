//! Starts of UML-KNOPPIX whose images lie on a server (Suzaki and others, "SFS による UML-KNOPPIX サービスの性能評価",
//! about 2004).
//!
//! A piece of the image is fetched in reads of 8 KiB that are requested together. A read takes SFS's
//! processor time, and the wire, which all clients share. Where the server does SFS's work, that is shared as
//! well.

use hs_device::Service;
use hs_engine::queue::Direction;
use hs_lab::Station;
use hs_units::{ByteRange, Nanos};

/// Bytes of a read of NFS, as clients of the time asked.
const READ: u64 = 8 << 10;

/// Bytes that a start of KNOPPIX transfers.
pub(crate) const KNOPPIX_BYTES: u64 = 51_600_000;

/// Seconds that the start takes when nothing has to be transferred: the second one, from the host's page
/// cache.
pub(crate) const COMPUTING: f64 = 80.0;

/// Bytes of a block of cloop as it lies on the server: 68,156 KB in 3,668 references (seeds 000, table 1).
pub(crate) const BLOCK: u64 = 68_156 * 1_024 / 3_668;

/// Bytes of a frame that carry something (TCP over Ethernet with time stamps), and on the wire altogether.
const SEGMENT: u64 = 1_448;
const FRAME: u64 = 1_538;

/// The highest rate that was seen without compression, in bits a second: SFS's own limit.
const SFS_RATE: f64 = 80e6;

/// The highest rate that was seen with compression: the limit of SFS and decompression, one block after the
/// other.
const CLOOP_RATE: f64 = 38.7e6;

/// Bits a second that were measured on the wire of 1 Gbit/s.
pub(crate) const GIGABIT: f64 = 580e6;

/// SFS's time for a read, on both sides together. Most of it is switching between processes, once a read,
/// however long the read is.
fn processing() -> Nanos {
    Nanos::from_secs_f64(READ as f64 * 8.0 / SFS_RATE)
}

/// The client's time to decompress a block.
pub(crate) fn decompression() -> f64 {
    let fetching = BLOCK.div_ceil(READ) as f64 * processing().as_secs_f64();
    (BLOCK as f64 * 8.0 / CLOOP_RATE - fetching).max(0.0)
}

/// Bytes of the address space of each client: their images lie side by side.
const CLIENT_SPACE: u64 = 1 << 40;

/// Where the piece of a client is.
pub(crate) fn place(client: u64, offset: u64, len: u64) -> ByteRange {
    ByteRange::new(client * CLIENT_SPACE + offset, len)
}

/// The server, the wire, and SFS on the clients.
pub(crate) struct Sfs {
    /// Bits a second of the wire.
    wire: f64,
    /// Whether the server does SFS's work for all clients, or each client for itself.
    at_server: bool,
    /// When SFS of each client, or of the server, and the wire are free.
    sfs: Vec<Nanos>,
    wire_free: Nanos,
}

impl Sfs {
    pub(crate) fn new(wire: f64, clients: u64, at_server: bool) -> Self {
        Self { wire, at_server, sfs: vec![Nanos::ZERO; clients as usize], wire_free: Nanos::ZERO }
    }
}

impl Station for Sfs {
    fn serve(&mut self, now: Nanos, direction: Direction, range: ByteRange) -> Service {
        assert!(direction == Direction::Read, "the image is only read");
        let client = if self.at_server { 0 } else { (range.offset / CLIENT_SPACE) as usize };
        let (mut first_byte, mut done) = (None, now);
        let mut left = range.len;
        while left > 0 {
            let bytes = left.min(READ);
            left -= bytes;
            self.sfs[client] = self.sfs[client].max(now) + processing();
            let frames = bytes.div_ceil(SEGMENT);
            let bits = (bytes + frames * (FRAME - SEGMENT)) as f64 * 8.0;
            self.wire_free = self.wire_free.max(self.sfs[client]) + Nanos::from_secs_f64(bits / self.wire);
            done = self.wire_free;
            first_byte.get_or_insert(done);
        }
        Service { starts: now, first_byte: first_byte.unwrap_or(now), done }
    }
}
