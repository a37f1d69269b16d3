//! An image as the engine sees it.

use std::sync::Arc;

use hs_engine::disk::{ChunkLocation, HotBlock, ImageMap, WindowLocation};
use hs_format::{ChunkRef, WindowRef};
use hs_image::{Image, IndexPages};
use hs_units::{ByteRange, Lba, Nanos};

/// The tables of an image, and the pages of its index that are in memory.
#[derive(Debug)]
pub(crate) struct DiskMap {
    pub(crate) image: Arc<Image>,
    pub(crate) pages: IndexPages,
}

impl DiskMap {
    pub(crate) fn new(image: Arc<Image>) -> Self {
        Self { image, pages: IndexPages::default() }
    }

    /// The chunk of a cold window, as long as the page that says where it is stays in memory.
    pub(crate) fn cold_chunk(&self, window: u64) -> Option<ChunkRef> {
        match self.pages.window(&self.image, window)? {
            WindowRef::Chunk(chunk) => Some(chunk),
            WindowRef::Zero => None,
        }
    }
}

impl ImageMap for DiskMap {
    fn disk_bytes(&self) -> u64 {
        self.image.disk_bytes()
    }

    fn window_bytes(&self) -> u64 {
        self.image.window_bytes()
    }

    fn hot_chunks(&self) -> u32 {
        self.image.hot_chunk_count()
    }

    fn hot_chunk(&self, chunk: u32) -> ChunkLocation {
        let range = self.image.hot_chunk(chunk).1;
        ChunkLocation { range, raw_bytes: self.image.hot_bytes(chunk) }
    }

    fn hot_block(&self, lba: Lba) -> Option<HotBlock> {
        let place = self.image.hot_place(lba)?;
        Some(HotBlock { chunk: place.chunk, block_in_chunk: place.block_in_chunk, run: place.run })
    }

    fn next_hot_after(&self, lba: Lba) -> Option<Lba> {
        self.image.next_hot_after(lba)
    }

    fn hot_needed(&self, chunk: u32) -> Nanos {
        self.image.hot_needed(chunk)
    }

    /// A miss whose predecessor is missing too is a random read to the kernel, which then reads what was
    /// asked for and nothing ahead (`page_cache_sync_ra` of mm/readahead.c: "Standalone, small random read.
    /// Read as is"). Such is the first block of an extent behind a cold block. It is also where readers of
    /// the extent begin.
    fn tripwire_block(&self, chunk: u32) -> Option<u32> {
        let mut block = 0;
        for extent in self.image.hot_extents(chunk) {
            let before = extent.start.0.checked_sub(1).map(Lba);
            if before.is_some_and(|before| self.image.hot_place(before).is_none()) {
                return Some(block);
            }
            block += extent.count as u32;
        }
        None
    }

    fn window(&self, window: u64) -> Option<WindowLocation> {
        Some(match self.pages.window(&self.image, window)? {
            WindowRef::Zero => WindowLocation::Zero,
            WindowRef::Chunk(chunk) => WindowLocation::Stored(ChunkLocation {
                range: self.image.cold_range(&chunk),
                raw_bytes: chunk.raw_bytes,
            }),
        })
    }

    fn page_of(&self, window: u64) -> u32 {
        self.pages.page_of(&self.image, window)
    }

    fn page(&self, page: u32) -> ChunkLocation {
        // A leaf is only asked for by the root that names it, which stays.
        let range = self.pages.page(&self.image, page).map_or(ByteRange::new(0, 0), |(_, range)| range);
        ChunkLocation { range, raw_bytes: range.len as u32 }
    }
}
