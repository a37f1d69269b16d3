//! Where the blocks of a disk lie in an image: all that the engine knows of one.

use hs_units::{BLOCK_BYTES, ByteRange, Lba, Nanos};

/// Names a chunk of an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChunkKey {
    /// A hot chunk, by its number through all hot segments.
    Hot(u32),
    /// The chunk of a cold window, by the number of the window.
    Cold(u64),
    /// A page of the index of cold windows.
    Page(u32),
}

/// Where a chunk lies, and how large it is when it is decompressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkLocation {
    /// Bytes of the image.
    pub range: ByteRange,
    /// Bytes of the disk, or of the index.
    pub raw_bytes: u32,
}

/// Where a cold window is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowLocation {
    /// Nowhere: all of its bytes are zero.
    Zero,
    /// In a chunk.
    Stored(ChunkLocation),
}

/// Where a block is in the hot region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotBlock {
    /// The chunk.
    pub chunk: u32,
    /// The block's number in it.
    pub block_in_chunk: u32,
    /// How many blocks of the disk from this one on follow each other in the chunk.
    pub run: u32,
}

/// An image as the engine sees it: pure, and quick to ask.
///
/// Only pages of the index come and go. The shell puts a page into the map before it reports it with
/// [`handle_decoded`](super::DiskEngine::handle_decoded), and takes it out at its
/// [`Action::Drop`](super::Action::Drop).
pub trait ImageMap {
    /// Bytes of the disk.
    fn disk_bytes(&self) -> u64;
    /// Bytes of a cold window; the last one may have fewer.
    fn window_bytes(&self) -> u64;
    /// How many hot chunks there are.
    fn hot_chunks(&self) -> u32;
    /// Where a hot chunk lies.
    fn hot_chunk(&self, chunk: u32) -> ChunkLocation;
    /// Where the hot region has a block, if it has it.
    fn hot_block(&self, lba: Lba) -> Option<HotBlock>;
    /// The first block behind this one that the hot region has.
    fn next_hot_after(&self, lba: Lba) -> Option<Lba>;
    /// By when a hot chunk is needed, by the program's own time; zero where nothing is known.
    fn hot_needed(&self, _chunk: u32) -> Nanos {
        Nanos::ZERO
    }
    /// A block of a hot chunk, by its number in it, that the kernel reads alone when it misses it.
    fn tripwire_block(&self, chunk: u32) -> Option<u32>;
    /// Where a cold window is; `None` when the page of the index that says so is not in the map.
    fn window(&self, window: u64) -> Option<WindowLocation>;
    /// The page of the index that says where a cold window is.
    fn page_of(&self, window: u64) -> u32;
    /// Where a page of the index lies.
    fn page(&self, page: u32) -> ChunkLocation;

    /// How many cold windows there are.
    fn windows(&self) -> u64 {
        self.disk_bytes().div_ceil(self.window_bytes())
    }

    /// The blocks of a cold window.
    fn blocks_of(&self, window: u64) -> std::ops::Range<u64> {
        let end = ((window + 1) * self.window_bytes()).min(self.disk_bytes());
        window * self.window_bytes() / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)
    }
}
