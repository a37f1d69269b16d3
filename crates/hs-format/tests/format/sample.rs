//! A builder of whole images in memory, as plain as can be.

use std::collections::HashMap;
use std::sync::LazyLock;

use hs_format::limits::SUPERBLOCK_BYTES;
use hs_format::*;
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba};

const BLOCK: usize = BLOCK_BYTES as usize;

/// What to build.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) disk: Vec<u8>,
    pub(crate) window_blocks: u32,
    pub(crate) windows_per_leaf: u32,
    pub(crate) codec: Codec,
    /// For each hot segment, the extents of each of its chunks.
    pub(crate) hot: Vec<Vec<Vec<BlockRange>>>,
    pub(crate) hints: Vec<Hint>,
}

/// The disk of the golden images: 23 blocks in windows of two, with zero windows, a leaf of zeros, two
/// equal windows and a short last window. What is not zero repeats every 64 bytes.
pub(crate) fn small_recipe(codec: Codec) -> Recipe {
    let mut disk = vec![0; 23 * BLOCK];
    for block in [0, 1, 3, 6, 7, 18, 19, 22] {
        let content = if block >= 18 && block != 22 { block - 12 } else { block };
        for (i, byte) in disk[block * BLOCK..][..BLOCK].iter_mut().enumerate() {
            *byte = (content * 8 + i % 64) as u8;
        }
    }
    let run = |start, count| BlockRange::new(Lba(start), count);
    Recipe {
        disk,
        window_blocks: 2,
        windows_per_leaf: 3,
        codec,
        hot: vec![vec![vec![run(22, 1), run(3, 1)], vec![run(6, 2)]], vec![vec![run(0, 2)]]],
        hints: vec![
            Hint { lba: Lba(22), inode: 12, page: 0, blocks: 1 },
            Hint { lba: Lba(3), inode: 0, page: 3, blocks: 1 },
        ],
    }
}

/// A built image and what it was built from.
pub(crate) struct Sample {
    pub(crate) disk: Vec<u8>,
    pub(crate) image: Vec<u8>,
    pub(crate) superblock: Superblock,
}

impl Sample {
    /// The image of [`small_recipe`], built once.
    pub(crate) fn small() -> &'static Self {
        static SMALL: LazyLock<Sample> = LazyLock::new(|| build(&small_recipe(Codec::Zstd)));
        &SMALL
    }

    pub(crate) fn bytes(&self, range: ByteRange) -> &[u8] {
        &self.image[range.offset as usize..range.end() as usize]
    }

    pub(crate) fn root_bytes(&self) -> &[u8] {
        self.bytes(self.superblock.cold.in_file(self.superblock.cold.root))
    }

    pub(crate) fn root(&self) -> ColdRoot {
        ColdRoot::decode(Unverified::new(self.root_bytes()), &self.superblock).expect("a good root")
    }

    pub(crate) fn leaf_bytes(&self, leaf: usize) -> &[u8] {
        self.bytes(self.superblock.cold.in_file(self.root().leaves[leaf].range))
    }
}

pub(crate) fn build(recipe: &Recipe) -> Sample {
    let disk_bytes = recipe.disk.len() as u64;
    let (cold_chunks, tables) = build_cold(recipe);
    let mut image = vec![0; SUPERBLOCK_BYTES];
    let mut hot = Vec::new();
    for chunks in &recipe.hot {
        let (index, stored) = build_hot(recipe, chunks);
        let hints = if hot.is_empty() { Hints(recipe.hints.clone()) } else { Hints::default() };
        hot.push(HotSegment::placed_at(image.len() as u64, &index, &hints));
        image.extend(index.encode());
        image.extend(hints.encode());
        image.extend(stored);
    }
    // The cold region is aligned here, which the format allows and does not ask for.
    image.resize(image.len().next_multiple_of(BLOCK), 0);
    let cold = tables.placed_at(image.len() as u64);
    image.extend(cold_chunks);
    image.extend(&tables.bytes);
    let superblock = Superblock {
        features: Features::default(),
        disk_bytes,
        image_bytes: (image.len() + SUPERBLOCK_BYTES) as u64,
        disk_digest: disk_digest(&recipe.disk),
        cold,
        hot,
        base: None,
        signature: None,
    };
    superblock.check_file(superblock.image_bytes).expect("the builder obeys the rules");
    image[..SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
    image.extend(superblock.encode());
    Sample { disk: recipe.disk.clone(), image, superblock }
}

fn disk_digest(disk: &[u8]) -> hs_units::Digest {
    let mut hasher = DiskHasher::new(disk.len() as u64);
    for window in disk.chunks(hs_format::limits::DISK_DIGEST_WINDOW_BYTES) {
        hasher.update_window(window);
    }
    hasher.finish()
}

fn build_cold(recipe: &Recipe) -> (Vec<u8>, EncodedColdTables) {
    let geometry = ColdGeometry {
        disk_bytes: recipe.disk.len() as u64,
        window_blocks: recipe.window_blocks,
        windows_per_leaf: recipe.windows_per_leaf,
    };
    let mut compressor = Compressor::new(recipe.codec, 3);
    let mut tables = ColdTables::new(geometry).expect("a good geometry");
    let (mut chunks, mut seen) = (Vec::new(), HashMap::new());
    for window in recipe.disk.chunks(geometry.window_bytes() as usize) {
        if window.iter().all(|&byte| byte == 0) {
            tables.push(WindowRef::Zero);
            continue;
        }
        let chunk = *seen.entry(window).or_insert_with(|| {
            let mut stored = Vec::new();
            let codec = compressor.compress(window, &mut stored);
            let chunk = ChunkRef::of_stored(chunks.len() as u64, &stored, codec, window.len() as u32);
            chunks.extend(stored);
            chunk
        });
        tables.push(WindowRef::Chunk(chunk));
    }
    let tables = tables.finish(chunks.len() as u64, seen.len() as u64).expect("consistent counts");
    (chunks, tables)
}

fn build_hot(recipe: &Recipe, chunks: &[Vec<BlockRange>]) -> (HotIndex, Vec<u8>) {
    let mut compressor = Compressor::new(recipe.codec, 3);
    let (mut builder, mut all) = (HotIndexBuilder::new(), Vec::new());
    for extents in chunks {
        let mut raw = Vec::new();
        for run in extents {
            raw.extend(&recipe.disk[run.start.byte_offset() as usize..run.end().byte_offset() as usize]);
        }
        let mut stored = Vec::new();
        let codec = compressor.compress(&raw, &mut stored);
        builder.push(&stored, codec, extents);
        all.extend(stored);
    }
    (builder.finish(recipe.disk.len() as u64 / BLOCK_BYTES).expect("good extents"), all)
}
