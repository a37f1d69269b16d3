//! Builds an image from parts that can be changed one by one, and fixes every digest above them.

use hs_format::limits::{DISK_DIGEST_WINDOW_BYTES, SUPERBLOCK_BYTES};
use hs_format::{
    ChunkRef, Codec, ColdGeometry, ColdLeaf, ColdRegion, ColdRoot, Compressor, DiskHasher, Features, Hint,
    Hints, HotIndex, HotIndexBuilder, HotSegment, LeafRef, Superblock, WindowRef, chunk_digest,
};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Digest, Lba, Prng};

use crate::sample::BLOCK;

const WINDOW_BLOCKS: u32 = 2;
const WINDOWS_PER_LEAF: u32 = 4;

/// The parts of an image of 24 blocks: 12 windows in 3 leaves, one hot chunk with two extents.
pub(crate) struct Forge {
    pub(crate) disk: Vec<u8>,
    pub(crate) cold_chunks: Vec<u8>,
    pub(crate) windows: Vec<WindowRef>,
    pub(crate) hot_index: Vec<u8>,
    pub(crate) hints: Vec<u8>,
    pub(crate) hot_chunks: Vec<u8>,
    /// Between the hot segment and the cold region.
    pub(crate) padding: Vec<u8>,
    pub(crate) change_root: Option<fn(&mut Vec<u8>)>,
    pub(crate) change_superblock: Option<fn(&mut Superblock)>,
}

fn compress(raw: &[u8]) -> (Vec<u8>, Codec) {
    let mut stored = Vec::new();
    let codec = Compressor::new(Codec::Zstd, 3).compress(raw, &mut stored);
    (stored, codec)
}

fn extents() -> [BlockRange; 2] {
    [BlockRange::new(Lba(2), 1), BlockRange::new(Lba(5), 1)]
}

impl Forge {
    pub(crate) fn new() -> Self {
        let mut disk = vec![0; 24 * BLOCK];
        for (window, bytes) in disk.chunks_mut(WINDOW_BLOCKS as usize * BLOCK).enumerate() {
            Prng::new(window as u64).fill(&mut bytes[..900]);
        }
        disk[24 * BLOCK - 1] = 7;
        let (mut cold_chunks, mut windows) = (Vec::new(), Vec::new());
        for raw in disk.chunks(WINDOW_BLOCKS as usize * BLOCK) {
            let (stored, codec) = compress(raw);
            let chunk = ChunkRef::of_stored(cold_chunks.len() as u64, &stored, codec, raw.len() as u32);
            windows.push(WindowRef::Chunk(chunk));
            cold_chunks.extend(stored);
        }
        let raw: Vec<u8> = extents()
            .iter()
            .flat_map(|run| disk[run.start.byte_offset() as usize..][..BLOCK].to_vec())
            .collect();
        let hint = Hint { lba: Lba(2), inode: 12, page: 0, blocks: 1 };
        let mut forge = Self {
            disk,
            cold_chunks,
            windows,
            hot_index: Vec::new(),
            hints: Hints(vec![hint]).encode(),
            hot_chunks: Vec::new(),
            padding: Vec::new(),
            change_root: None,
            change_superblock: None,
        };
        forge.replace_hot_chunk(&raw);
        forge
    }

    /// Changes the entry of a window.
    pub(crate) fn change_window(&mut self, window: usize, change: impl FnOnce(&mut ChunkRef)) {
        let WindowRef::Chunk(mut chunk) = self.windows[window] else { panic!("window {window} is stored") };
        change(&mut chunk);
        self.windows[window] = WindowRef::Chunk(chunk);
    }

    /// Gives a window's entry the digest of the bytes that it means.
    pub(crate) fn fix_digest(&mut self, window: usize) {
        let stored = self.cold_chunks.clone();
        self.change_window(window, |chunk| {
            let bytes = &stored[chunk.range.offset as usize..chunk.range.end() as usize];
            chunk.digest = chunk_digest(bytes);
        });
    }

    /// Stores `raw`, of any size, as the chunk of a window; no entry names its old bytes then.
    pub(crate) fn replace_chunk(&mut self, window: usize, raw: &[u8]) {
        let (stored, codec) = compress(raw);
        let range = ByteRange::new(self.cold_chunks.len() as u64, stored.len() as u64);
        self.change_window(window, |chunk| {
            *chunk = ChunkRef { range, codec, digest: chunk_digest(&stored), ..*chunk };
        });
        self.cold_chunks.extend(stored);
    }

    /// Stores `raw`, of any size, as the hot chunk, which claims to be two blocks.
    pub(crate) fn replace_hot_chunk(&mut self, raw: &[u8]) {
        let (stored, codec) = compress(raw);
        let mut index = HotIndexBuilder::new();
        index.push(&stored, codec, &extents());
        self.hot_index = index.finish(self.disk.len() as u64 / BLOCK_BYTES).expect("a good index").encode();
        self.hot_chunks = stored;
    }

    /// Overwrites an entry of the hot index's extent table.
    pub(crate) fn set_extent(&mut self, extent: usize, run: BlockRange) {
        let at = self.hot_index.len() - (2 - extent) * 8;
        self.hot_index[at..at + 4].copy_from_slice(&(run.start.0 as u32).to_le_bytes());
        self.hot_index[at + 4..at + 8].copy_from_slice(&(run.count as u32).to_le_bytes());
    }

    /// The image, with every digest right.
    pub(crate) fn seal(&self) -> Vec<u8> {
        let mut image = vec![0; SUPERBLOCK_BYTES];
        let segment = self.segment(image.len() as u64);
        image.extend([&self.hot_index[..], &self.hints, &self.hot_chunks, &self.padding].concat());
        let (tables, mut cold) = self.cold(image.len() as u64);
        image.extend(&self.cold_chunks);
        image.extend(&tables);
        cold.distinct_chunks = self.distinct_chunks();
        let mut superblock = Superblock {
            features: Features::default(),
            disk_bytes: self.disk.len() as u64,
            image_bytes: (image.len() + SUPERBLOCK_BYTES) as u64,
            disk_digest: disk_digest(&self.disk),
            cold,
            hot: vec![segment],
            base: None,
            signature: None,
        };
        if let Some(change) = self.change_superblock {
            change(&mut superblock);
        }
        let bytes = superblock.encode();
        image[..SUPERBLOCK_BYTES].copy_from_slice(&bytes);
        image.extend(bytes);
        image
    }

    fn segment(&self, offset: u64) -> HotSegment {
        let index = ByteRange::new(offset, self.hot_index.len() as u64);
        let hints = ByteRange::new(index.end(), self.hints.len() as u64);
        HotSegment {
            index,
            hints,
            chunks: ByteRange::new(hints.end(), self.hot_chunks.len() as u64),
            index_digest: HotIndex::digest_of(&self.hot_index),
            hints_digest: Hints::digest_of(&self.hints),
            blocks: 2,
            chunk_count: 1,
            own_ms: 0,
        }
    }

    fn cold(&self, offset: u64) -> (Vec<u8>, ColdRegion) {
        let mut tables = Vec::new();
        let mut root = ColdRoot { leaves: Vec::new() };
        let leaves_offset = self.cold_chunks.len() as u64;
        for windows in self.windows.chunks(WINDOWS_PER_LEAF as usize) {
            let leaf = ColdLeaf::new(windows).encode();
            root.leaves.push(LeafRef::of_encoded(leaves_offset + tables.len() as u64, &leaf));
            tables.extend(leaf);
        }
        let mut root = root.encode();
        if let Some(change) = self.change_root {
            change(&mut root);
        }
        let root_range = ByteRange::new(leaves_offset + tables.len() as u64, root.len() as u64);
        let region = ColdRegion {
            range: ByteRange::new(offset, root_range.end()),
            window_blocks: WINDOW_BLOCKS,
            windows_per_leaf: WINDOWS_PER_LEAF,
            leaves_offset,
            root: root_range,
            root_digest: ColdRoot::digest_of(&root),
            distinct_chunks: 0,
        };
        tables.extend(root);
        (tables, region)
    }

    fn distinct_chunks(&self) -> u64 {
        let ranges = self.windows.iter().filter_map(|window| match window {
            WindowRef::Zero => None,
            WindowRef::Chunk(chunk) => Some(chunk.range),
        });
        let distinct: std::collections::BTreeSet<ByteRange> = ranges.collect();
        distinct.len() as u64
    }
}

fn disk_digest(disk: &[u8]) -> Digest {
    let mut hasher = DiskHasher::new(disk.len() as u64);
    disk.chunks(DISK_DIGEST_WINDOW_BYTES).for_each(|window| hasher.update_window(window));
    hasher.finish()
}

/// An image of zeros with hot segments of `extents` extents each, all of one block, and as many hints.
pub(crate) fn many_extents(segments: u64, extents: u64) -> Vec<u8> {
    let (disk_blocks, stored) = (extents.next_multiple_of(1024), [7]);
    let mut index = HotIndexBuilder::new();
    let blocks: Vec<_> = (0..extents).map(|lba| BlockRange::new(Lba(lba), 1)).collect();
    for chunk in blocks.chunks(1024) {
        index.push(&stored, Codec::Zstd, chunk);
    }
    let index = index.finish(disk_blocks).expect("a good index");
    let hint = |lba: u64| Hint { lba: Lba(lba), inode: 12, page: lba as u32, blocks: 1 };
    let hints = Hints((0..extents).map(hint).collect());
    let chunks = vec![stored[0]; index.chunks_bytes() as usize];
    let (mut superblock, root) = zero_parts(disk_blocks * BLOCK_BYTES, 1024, 1);
    let mut tables = Vec::new();
    for _ in 0..segments {
        let at = (SUPERBLOCK_BYTES + tables.len()) as u64;
        superblock.hot.push(HotSegment::placed_at(at, &index, &hints));
        tables.extend([index.encode(), hints.encode(), chunks.clone()].concat());
    }
    superblock.cold.range.offset += tables.len() as u64;
    superblock.image_bytes += tables.len() as u64;
    [&superblock.encode()[..], &tables, &root, &superblock.encode()].concat()
}

/// An image of zeros of any size.
pub(crate) fn zeros(disk_bytes: u64, window_blocks: u32, windows_per_leaf: u32) -> Vec<u8> {
    let (superblock, root) = zero_parts(disk_bytes, window_blocks, windows_per_leaf);
    [&superblock.encode()[..], &root, &superblock.encode()].concat()
}

/// Its superblock and its root.
fn zero_parts(disk_bytes: u64, window_blocks: u32, windows_per_leaf: u32) -> (Superblock, Vec<u8>) {
    let geometry = ColdGeometry { disk_bytes, window_blocks, windows_per_leaf };
    let root = ColdRoot { leaves: vec![LeafRef::ZERO; geometry.leaf_count() as usize] }.encode();
    let mut hasher = DiskHasher::new(disk_bytes);
    hasher.zero_windows(disk_bytes / DISK_DIGEST_WINDOW_BYTES as u64);
    let root_range = ByteRange::new(0, root.len() as u64);
    let superblock = Superblock {
        features: Features::default(),
        disk_bytes,
        image_bytes: (2 * SUPERBLOCK_BYTES + root.len()) as u64,
        disk_digest: hasher.finish(),
        cold: ColdRegion {
            range: ByteRange::new(SUPERBLOCK_BYTES as u64, root_range.len),
            window_blocks,
            windows_per_leaf,
            leaves_offset: 0,
            root: root_range,
            root_digest: ColdRoot::digest_of(&root),
            distinct_chunks: 0,
        },
        hot: Vec::new(),
        base: None,
        signature: None,
    };
    (superblock, root)
}
