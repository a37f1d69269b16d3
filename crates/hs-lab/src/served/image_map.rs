//! The layout of an image, as the disk engine asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hs_engine::disk::{ChunkKey, ChunkLocation, HotBlock, ImageMap, WindowLocation};
use hs_units::{ByteRange, Lba, Nanos};

use super::layout::ImageLayout;

/// An index of up to this size is read with one request, as `hs-image` does.
const WHOLE_INDEX_BYTES: u64 = 512 << 10;
/// Windows that a page of a larger one knows of, as `hs-build` builds them.
const PAGE_WINDOWS: u64 = 512;

/// Consecutive blocks of the disk that follow each other in a hot chunk.
#[derive(Clone, Copy, Debug)]
struct HotRun {
    /// Behind the last block.
    end: u64,
    chunk: u32,
    /// The number of the first block in the chunk.
    block_in_chunk: u32,
}

/// An image of this layout. Clones share what does not change.
#[derive(Clone, Debug)]
pub struct LayoutMap<'a> {
    layout: &'a ImageLayout,
    /// By first block.
    hot: Rc<BTreeMap<u64, HotRun>>,
    /// Pages of the index that are in memory.
    pages: BTreeSet<u32>,
    page_windows: u64,
}

impl<'a> LayoutMap<'a> {
    /// The map of this layout.
    #[must_use]
    pub fn new(layout: &'a ImageLayout) -> Self {
        let mut hot = BTreeMap::new();
        for (chunk, number) in layout.hot.iter().zip(0..) {
            let mut block_in_chunk = 0;
            for run in &chunk.extents {
                hot.insert(run.start.0, HotRun { end: run.end().0, chunk: number, block_in_chunk });
                block_in_chunk += run.count as u32;
            }
        }
        let is_whole = layout.index.len <= WHOLE_INDEX_BYTES;
        let page_windows = if is_whole { layout.windows.len().max(1) as u64 } else { PAGE_WINDOWS };
        // An index without bytes is known from the start.
        let pages = if layout.index.len == 0 { BTreeSet::from([0]) } else { BTreeSet::new() };
        Self { layout, hot: Rc::new(hot), pages, page_windows }
    }

    pub(crate) const fn layout(&self) -> &'a ImageLayout {
        self.layout
    }

    /// A chunk was decompressed: a page of the index is known from now on.
    pub(crate) fn insert(&mut self, key: ChunkKey) {
        if let ChunkKey::Page(page) = key {
            self.pages.insert(page);
        }
    }

    /// A decompressed chunk was dropped.
    pub(crate) fn remove(&mut self, key: ChunkKey) {
        if let ChunkKey::Page(page) = key {
            self.pages.remove(&page);
        }
    }

    /// Bytes of a chunk when it is decompressed.
    pub(crate) fn raw_bytes(&self, key: ChunkKey) -> u64 {
        match key {
            ChunkKey::Hot(chunk) => self.hot_chunk(chunk).raw_bytes.into(),
            ChunkKey::Cold(_) => self.layout.window_bytes,
            ChunkKey::Page(page) => self.page(page).raw_bytes.into(),
        }
    }

    fn run_at(&self, block: u64) -> Option<(u64, HotRun)> {
        let (first, run) = self.hot.range(..=block).next_back()?;
        (block < run.end).then_some((*first, *run))
    }
}

impl ImageMap for LayoutMap<'_> {
    fn disk_bytes(&self) -> u64 {
        self.layout.windows.len() as u64 * self.layout.window_bytes
    }
    fn window_bytes(&self) -> u64 {
        self.layout.window_bytes
    }
    fn hot_chunks(&self) -> u32 {
        self.layout.hot.len() as u32
    }
    fn hot_chunk(&self, chunk: u32) -> ChunkLocation {
        let chunk = &self.layout.hot[chunk as usize];
        ChunkLocation { range: chunk.at, raw_bytes: chunk.raw_bytes }
    }
    fn hot_block(&self, lba: Lba) -> Option<HotBlock> {
        let (first, run) = self.run_at(lba.0)?;
        let block_in_chunk = run.block_in_chunk + (lba.0 - first) as u32;
        Some(HotBlock { chunk: run.chunk, block_in_chunk, run: (run.end - lba.0) as u32 })
    }
    fn next_hot_after(&self, lba: Lba) -> Option<Lba> {
        let next = lba.0 + 1;
        let behind = || self.hot.range(next..).next().map(|(first, _)| *first);
        self.run_at(next).map(|_| next).or_else(behind).map(Lba)
    }
    fn hot_needed(&self, chunk: u32) -> Nanos {
        self.layout.hot[chunk as usize].needed
    }
    fn tripwire_block(&self, _chunk: u32) -> Option<u32> {
        None
    }
    fn window(&self, window: u64) -> Option<WindowLocation> {
        let place = self.layout.windows.get(window as usize).copied().flatten();
        let raw_bytes = self.layout.window_bytes as u32;
        let place = place
            .map_or(WindowLocation::Zero, |range| WindowLocation::Stored(ChunkLocation { range, raw_bytes }));
        self.pages.contains(&self.page_of(window)).then_some(place)
    }
    fn page_of(&self, window: u64) -> u32 {
        (window / self.page_windows) as u32
    }
    fn page(&self, page: u32) -> ChunkLocation {
        // Pages have equal parts of the index.
        let ByteRange { offset, len } = self.layout.index;
        let pages = self.windows().div_ceil(self.page_windows).max(1);
        let begins = |page: u64| offset + len * page / pages;
        let range = ByteRange::new(begins(page.into()), begins(u64::from(page) + 1) - begins(page.into()));
        ChunkLocation { range, raw_bytes: range.len as u32 }
    }
}

#[cfg(test)]
mod tests {
    use hs_units::{BLOCK_BYTES, BlockRange, Prng};

    use super::super::layout::HotChunk;
    use super::*;

    const WINDOW: u64 = 8 * BLOCK_BYTES;

    fn layout(hot: Vec<HotChunk>, windows: u64, index: ByteRange) -> ImageLayout {
        let place = |window: u64| (window % 3 != 1).then(|| ByteRange::new(window * 1_000, 900));
        ImageLayout {
            window_bytes: WINDOW,
            windows: (0..windows).map(place).collect(),
            index,
            tables: ByteRange::new(4_096, 0),
            hot,
        }
    }

    /// Against a plain list of which block of which chunk each block is.
    #[test]
    fn hot_blocks_are_found_as_in_a_plain_list() {
        let mut prng = Prng::new(7);
        for _ in 0..50 {
            let mut owners = vec![None; 400];
            let mut hot: Vec<HotChunk> = Vec::new();
            let mut block = 0;
            while block < 380 {
                let count = 1 + prng.below(12);
                if prng.below(3) > 0 {
                    if hot.is_empty() || prng.below(3) == 0 {
                        hot.push(HotChunk {
                            at: ByteRange::new(0, 1),
                            raw_bytes: 0,
                            extents: Vec::new(),
                            needed: Nanos::ZERO,
                        });
                    }
                    let number = hot.len() as u32 - 1;
                    let chunk = &mut hot[number as usize];
                    let first = chunk.raw_bytes / BLOCK_BYTES as u32;
                    chunk.extents.push(BlockRange::new(Lba(block), count));
                    chunk.raw_bytes += (count * BLOCK_BYTES) as u32;
                    (0..count).for_each(|n| owners[(block + n) as usize] = Some((number, first + n as u32)));
                }
                block += count;
            }
            let layout = layout(hot, 50, ByteRange::new(0, 100));
            let map = LayoutMap::new(&layout);
            for lba in 0..400 {
                let found = map.hot_block(Lba(lba));
                assert_eq!(found.map(|hot| (hot.chunk, hot.block_in_chunk)), owners[lba as usize]);
                for n in 0..found.map_or(0, |hot| u64::from(hot.run)) {
                    let of_run = owners[lba as usize].map(|(chunk, block)| (chunk, block + n as u32));
                    assert_eq!(owners[(lba + n) as usize], of_run);
                }
                let next = (lba + 1..400).find(|next| owners[*next as usize].is_some());
                assert_eq!(map.next_hot_after(Lba(lba)), next.map(Lba));
            }
        }
    }

    #[test]
    fn a_window_is_known_while_its_page_is_in_memory() {
        // One of 2,000 windows, in four pages; a smaller index is one page.
        let index = ByteRange::new(1 << 30, WHOLE_INDEX_BYTES + 3);
        let large = layout(Vec::new(), 2_000, index);
        let mut map = LayoutMap::new(&large);
        assert_eq!((map.page_of(511), map.page_of(512), map.page_of(1_999)), (0, 1, 3));
        let pages: Vec<ByteRange> = (0..4).map(|page| map.page(page).range).collect();
        assert!(pages.windows(2).all(|pair| pair[0].end() == pair[1].offset), "{pages:?}");
        assert_eq!((pages[0].offset, pages[3].end()), (index.offset, index.end()));
        map.insert(ChunkKey::Page(1));
        map.insert(ChunkKey::Cold(0));
        let place = ChunkLocation { range: ByteRange::new(512_000, 900), raw_bytes: WINDOW as u32 };
        assert_eq!(map.window(512), Some(WindowLocation::Stored(place)));
        assert_eq!((map.window(511), map.window(514)), (None, Some(WindowLocation::Zero)));
        assert_eq!((map.window(1_024), map.raw_bytes(ChunkKey::Page(1))), (None, pages[1].len));
        map.remove(ChunkKey::Page(1));
        assert_eq!(map.window(512), None);

        let small = layout(Vec::new(), 2_000, ByteRange::new(0, WHOLE_INDEX_BYTES));
        let map = LayoutMap::new(&small);
        assert_eq!((map.page_of(1_999), map.page(0).range), (0, small.index));
    }
}
