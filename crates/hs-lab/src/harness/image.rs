//! The image of a world: hot chunks, cold windows, and the pages of an index.

use std::collections::BTreeSet;

use hs_engine::disk::{ChunkKey, ChunkLocation, HotBlock, ImageMap, WindowLocation};
use hs_units::{BLOCK_BYTES, ByteRange, Lba, Nanos};

/// Stored bytes of a chunk, and of a page of the index.
pub(super) const STORED: u64 = 48 << 10;
const PAGE_STORED: u64 = 8 << 10;
/// Blocks of a window.
pub(super) const WINDOW_BLOCKS: u64 = 32;
/// Bytes of a window, and of a hot chunk.
pub(super) const RAW: u64 = WINDOW_BLOCKS * BLOCK_BYTES;
/// Windows that one page of the index knows of.
const PAGE_WINDOWS: u64 = 512;
/// Of so many windows one is zero, the one with this remainder.
const ZERO: (u64, u64) = (13, 5);
/// A hot chunk has half of one window, from its beginning, and half of the next one, from its eighth block
/// on.
const HALF: u64 = WINDOW_BLOCKS / 2;
const OFFSET: [u64; 2] = [0, 8];

/// An image of so many hot chunks and cold windows; there are twice as many windows as hot chunks at least.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) hot: u32,
    pub(super) windows: u64,
    /// How long the recorded program took from one hot chunk to the next.
    pub(super) pace: Nanos,
    pub(super) pages: BTreeSet<u32>,
}

impl Image {
    /// Whether a window is zero.
    pub(super) const fn is_zero(window: u64) -> bool {
        window % ZERO.0 == ZERO.1
    }

    /// The block of the disk that a hot chunk has at a place.
    pub(super) const fn block_of(chunk: u32, block: u64) -> u64 {
        let half = block / HALF;
        (chunk as u64 * 2 + half) * WINDOW_BLOCKS + OFFSET[half as usize] + block % HALF
    }

    fn hot_run(&self, window: u64) -> Option<(u64, u64)> {
        let first = window * WINDOW_BLOCKS + OFFSET[(window % 2) as usize];
        (window < u64::from(self.hot) * 2).then_some((first, first + HALF))
    }

    /// Whether a read of this range has to do with a chunk.
    pub(super) fn touches(range: ByteRange, key: ChunkKey) -> bool {
        let windows = match key {
            ChunkKey::Hot(chunk) => u64::from(chunk) * 2..u64::from(chunk) * 2 + 2,
            ChunkKey::Cold(window) => window..window + 1,
            ChunkKey::Page(_) => return true,
        };
        range.offset < windows.end * RAW && windows.start * RAW < range.end()
    }

    /// Whether a read of this range cannot do without a chunk, unless a hot one is damaged.
    pub(super) fn needs(&self, range: ByteRange, key: ChunkKey) -> bool {
        if !Self::touches(range, key) {
            return false;
        }
        let is_in = |lba: u64| {
            let hot = self.hot_block(Lba(lba));
            match key {
                // A block that was held back may be there without its chunk.
                ChunkKey::Hot(chunk) => {
                    hot.is_some_and(|hot| hot.chunk == chunk && u64::from(hot.block_in_chunk) != HALF)
                }
                ChunkKey::Cold(window) => hot.is_none() && lba / WINDOW_BLOCKS == window,
                ChunkKey::Page(_) => false,
            }
        };
        (range.offset / BLOCK_BYTES..range.end().div_ceil(BLOCK_BYTES)).any(is_in)
    }

    /// Where the bytes of the image end.
    pub(super) fn bytes(&self) -> u64 {
        self.cold(self.windows).end()
    }

    fn cold(&self, window: u64) -> ByteRange {
        let zeroes = (window + ZERO.0 - 1 - ZERO.1) / ZERO.0;
        let before = u64::from(self.hot) * STORED + self.windows.div_ceil(PAGE_WINDOWS) * PAGE_STORED;
        ByteRange::new(before + (window - zeroes) * STORED, STORED)
    }
}

impl ImageMap for Image {
    fn disk_bytes(&self) -> u64 {
        self.windows * RAW
    }
    fn window_bytes(&self) -> u64 {
        RAW
    }
    fn hot_chunks(&self) -> u32 {
        self.hot
    }
    fn hot_chunk(&self, chunk: u32) -> ChunkLocation {
        ChunkLocation { range: ByteRange::new(u64::from(chunk) * STORED, STORED), raw_bytes: RAW as u32 }
    }
    fn hot_block(&self, lba: Lba) -> Option<HotBlock> {
        let window = lba.0 / WINDOW_BLOCKS;
        let (first, end) = self.hot_run(window).filter(|(first, end)| (*first..*end).contains(&lba.0))?;
        let block_in_chunk = (window % 2 * HALF + lba.0 - first) as u32;
        Some(HotBlock { chunk: (window / 2) as u32, block_in_chunk, run: (end - lba.0) as u32 })
    }
    fn next_hot_after(&self, lba: Lba) -> Option<Lba> {
        let next = lba.0 + 1;
        let window = next / WINDOW_BLOCKS;
        let (first, end) = self.hot_run(window)?;
        let behind = || self.hot_run(window + 1).map(|(first, _)| first);
        (next < end).then_some(next.max(first)).or_else(behind).map(Lba)
    }
    fn hot_needed(&self, chunk: u32) -> Nanos {
        Nanos(self.pace.0 * u64::from(chunk))
    }
    fn tripwire_block(&self, _chunk: u32) -> Option<u32> {
        Some(HALF as u32)
    }
    fn window(&self, window: u64) -> Option<WindowLocation> {
        self.pages.contains(&self.page_of(window)).then(|| {
            if Self::is_zero(window) {
                return WindowLocation::Zero;
            }
            WindowLocation::Stored(ChunkLocation { range: self.cold(window), raw_bytes: RAW as u32 })
        })
    }
    fn page_of(&self, window: u64) -> u32 {
        (window / PAGE_WINDOWS) as u32
    }
    fn page(&self, page: u32) -> ChunkLocation {
        let offset = u64::from(self.hot) * STORED + u64::from(page) * PAGE_STORED;
        ChunkLocation { range: ByteRange::new(offset, PAGE_STORED), raw_bytes: 4 * PAGE_STORED as u32 }
    }
}

/// Bytes of a chunk when it is decompressed.
pub(super) fn raw_bytes(image: &Image, key: ChunkKey) -> u64 {
    match key {
        ChunkKey::Hot(_) | ChunkKey::Cold(_) => RAW,
        ChunkKey::Page(page) => image.page(page).raw_bytes.into(),
    }
}
