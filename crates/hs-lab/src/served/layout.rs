//! Where the bytes of a disk lie on its medium.

use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Nanos};

/// A hot chunk of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotChunk {
    /// Where it lies in the file.
    pub at: ByteRange,
    /// Bytes of the disk that it holds.
    pub raw_bytes: u32,
    /// Which blocks.
    pub extents: Vec<BlockRange>,
    /// The program's own time until it needs the chunk; zero where that is not known.
    pub needed: Nanos,
}

/// What a simulation has to know of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageLayout {
    /// Bytes of a cold window.
    pub window_bytes: u64,
    /// Where each window lies in the file; `None` where the disk is zero.
    pub windows: Vec<Option<ByteRange>>,
    /// Where the index of the windows lies: read when it is first needed, with one request where it is small,
    /// and page by page where it is not.
    pub index: ByteRange,
    /// Tables of the hot region: they end where its chunks begin.
    pub tables: ByteRange,
    /// The hot chunks, in order.
    pub hot: Vec<HotChunk>,
}

impl ImageLayout {
    /// An image whose hot region of `chunks` chunks lies at the front of the file, and which has `windows`
    /// cold windows of `window_bytes` behind it, not compressed. A chunk has twice as many bytes of the disk
    /// as it has in the file. [`ImageLayout::chunk_on_disk`] and [`ImageLayout::cold_on_disk`] say where
    /// both are on the disk.
    #[must_use]
    pub fn hot_first(chunks: u32, stored_bytes: u64, windows: u64, window_bytes: u64) -> Self {
        let raw_bytes = 2 * stored_bytes;
        // A window of zeros follows each chunk, so that no read continues one of another chunk.
        let windows_each = raw_bytes.div_ceil(window_bytes) + 1;
        let chunk = |number: u64| HotChunk {
            at: ByteRange::new(number * stored_bytes, stored_bytes),
            raw_bytes: raw_bytes as u32,
            extents: vec![BlockRange::new(
                Lba(number * windows_each * window_bytes / BLOCK_BYTES),
                raw_bytes / BLOCK_BYTES,
            )],
            needed: Nanos::ZERO,
        };
        let hot_bytes = u64::from(chunks) * stored_bytes;
        let window = |number: u64| Some(ByteRange::new(hot_bytes + number * window_bytes, window_bytes));
        let zeros = u64::from(chunks) * windows_each;
        Self {
            window_bytes,
            windows: (0..zeros).map(|_| None).chain((0..windows).map(window)).collect(),
            index: ByteRange::new(0, 0),
            tables: ByteRange::new(0, 0),
            hot: (0..chunks.into()).map(chunk).collect(),
        }
    }

    /// The bytes of the disk that the first extent of a hot chunk has: all of the chunk's, where
    /// [`ImageLayout::hot_first`] made it.
    #[must_use]
    pub fn chunk_on_disk(&self, chunk: u32) -> ByteRange {
        let extent = self.hot[chunk as usize].extents[0];
        ByteRange::new(extent.start.byte_offset(), extent.bytes())
    }

    /// Where the cold windows begin on the disk, where [`ImageLayout::hot_first`] made `cold_bytes` of them.
    #[must_use]
    pub fn cold_on_disk(&self, cold_bytes: u64) -> u64 {
        self.windows.len() as u64 * self.window_bytes - cold_bytes
    }
}
