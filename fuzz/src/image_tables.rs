//! Bytes as each table behind a superblock, with the digests made right, since no mutation would ever find
//! one: a hostile image whose name is its own. The first byte chooses the table, the next ones the numbers
//! that the superblock would give, the rest is the table. Also bytes as a chunk, for the decoder.

use hs_format::{
    Codec, ColdLeaf, ColdRegion, ColdRoot, Decompressor, Features, Hints, HotIndex, HotSegment, LeafRef,
    Superblock, Unverified, WindowRef,
};
use hs_units::{BLOCK_BYTES, ByteRange, Digest, Lba};

/// Small numbers, so that tables of a few hundred bytes can be right.
struct Shape {
    disk_blocks: u64,
    window_blocks: u32,
    windows_per_leaf: u32,
    chunks_bytes: u64,
}

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((&[table, blocks, window, per_leaf, chunks], bytes)) = data.split_first_chunk() else {
        return false;
    };
    let shape = Shape {
        disk_blocks: u64::from(blocks) + 1,
        window_blocks: u32::from(window % 8) + 1,
        windows_per_leaf: u32::from(per_leaf % 8) + 1,
        chunks_bytes: u64::from(chunks) * 64,
    };
    match table % 5 {
        0 => root(&shape, bytes),
        1 => leaf(&shape, bytes, u64::from(table / 5)),
        2 => hot_index(&shape, bytes, table / 5 % 2 == 1, table / 10 % 2 == 1),
        3 => hints(&shape, bytes),
        _ => chunk(&shape, bytes),
    }
}

/// A superblock such as the tables need: what is not about them may be wrong.
fn superblock(shape: &Shape, root: &[u8]) -> Superblock {
    let leaves = root.chunks_exact(48).filter(|entry| entry[8..12] != [0; 4]);
    let leaves_bytes: u64 =
        leaves.map(|entry| u64::from(u32::from_le_bytes([entry[8], entry[9], entry[10], entry[11]]))).sum();
    let root_range = ByteRange::new(shape.chunks_bytes + leaves_bytes, root.len() as u64);
    Superblock {
        features: Features::default(),
        disk_bytes: shape.disk_blocks * BLOCK_BYTES,
        image_bytes: 1 << 40,
        disk_digest: Digest::default(),
        cold: ColdRegion {
            range: ByteRange::new(4096, root_range.end()),
            window_blocks: shape.window_blocks,
            windows_per_leaf: shape.windows_per_leaf,
            leaves_offset: shape.chunks_bytes,
            root: root_range,
            root_digest: ColdRoot::digest_of(root),
            distinct_chunks: 0,
        },
        hot: Vec::new(),
        base: None,
        signature: None,
    }
}

fn root(shape: &Shape, bytes: &[u8]) -> bool {
    let superblock = superblock(shape, bytes);
    let Ok(root) = ColdRoot::decode(Unverified::new(bytes), &superblock) else { return false };
    assert_eq!(root.encode(), bytes, "one root has one encoding");
    assert_eq!(root.leaves.len() as u64, superblock.leaf_count());
    for leaf in root.leaves.iter().filter(|leaf| !leaf.is_zero()) {
        assert!(leaf.range.offset >= shape.chunks_bytes && leaf.range.end() <= superblock.cold.root.offset);
    }
    true
}

fn leaf(shape: &Shape, bytes: &[u8], number: u64) -> bool {
    let superblock = superblock(shape, &[]);
    let reference = LeafRef::of_encoded(shape.chunks_bytes, bytes);
    let Ok(leaf) = ColdLeaf::decode(Unverified::new(bytes), number, &reference, &superblock) else {
        return false;
    };
    assert_eq!(leaf.encode(), bytes, "one leaf has one encoding");
    let first = number * u64::from(shape.windows_per_leaf);
    for (i, window) in leaf.windows().enumerate() {
        let WindowRef::Chunk(chunk) = window else { continue };
        assert_eq!(chunk.raw_bytes, superblock.window_raw_bytes(first + i as u64));
        assert!(chunk.range.end() <= shape.chunks_bytes);
        assert!(chunk.range.len > 0 && chunk.range.len <= u64::from(chunk.raw_bytes));
    }
    true
}

fn hot_index(shape: &Shape, bytes: &[u8], borrows: bool, has_stale: bool) -> bool {
    let field =
        |at: usize| bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("eight")));
    let segment = HotSegment {
        index: ByteRange::new(4096, bytes.len() as u64),
        hints: ByteRange::default(),
        chunks: ByteRange::new(0, field(24)),
        index_digest: HotIndex::digest_of(bytes),
        hints_digest: Digest::default(),
        blocks: field(16),
        chunk_count: field(8) as u32,
        own_ms: 0,
    };
    let mut superblock = superblock(shape, &[]);
    superblock.features = superblock.features.of_borrowed(borrows).of_stale(has_stale);
    let Ok(index) = HotIndex::decode(Unverified::new(bytes), &segment, &superblock) else { return false };
    assert_eq!(index.encode(), bytes, "one index has one encoding");
    assert!(borrows || !index.chunks.iter().any(|hot| hot.is_borrowed));
    assert!(has_stale || !index.has_stale());
    let own = index.chunks.iter().filter(|hot| !hot.is_borrowed).map(|hot| hot.chunk.range.len);
    assert_eq!(own.sum::<u64>(), index.chunks_bytes());
    let mut seen = 0;
    for (number, hot) in index.chunks.iter().enumerate() {
        let mut block_in_chunk = 0;
        for run in index.extents_of(number as u32) {
            for (i, lba) in run.blocks().enumerate() {
                let place = index.lookup(lba).expect("a block of an extent is found");
                assert_eq!((place.chunk, place.block_in_chunk), (number as u32, block_in_chunk));
                assert_eq!(u64::from(place.run), run.count - i as u64);
                block_in_chunk += 1;
                seen += 1;
            }
        }
        let blocks = u64::from(block_in_chunk) + u64::from(hot.stale_blocks);
        assert_eq!(blocks * BLOCK_BYTES, u64::from(hot.chunk.raw_bytes));
    }
    assert_eq!(seen, index.blocks());
    let hot = (0..shape.disk_blocks).filter(|&lba| index.lookup(Lba(lba)).is_some()).count() as u64;
    assert_eq!(hot, seen);
    true
}

fn hints(shape: &Shape, bytes: &[u8]) -> bool {
    let segment = HotSegment {
        index: ByteRange::default(),
        hints: ByteRange::new(4096, bytes.len() as u64),
        chunks: ByteRange::default(),
        index_digest: Digest::default(),
        hints_digest: Hints::digest_of(bytes),
        blocks: 1,
        chunk_count: 1,
        own_ms: 0,
    };
    let Ok(hints) = Hints::decode(Unverified::new(bytes), &segment, &superblock(shape, &[])) else {
        return false;
    };
    assert_eq!(hints.encode(), bytes, "hints have one encoding");
    assert!(hints.0.iter().all(|hint| hint.lba.0 + u64::from(hint.blocks) <= shape.disk_blocks));
    true
}

fn chunk(shape: &Shape, bytes: &[u8]) -> bool {
    let raw_bytes = shape.window_blocks * BLOCK_BYTES as u32;
    let mut decompressor = Decompressor::new();
    let mut accepted = false;
    for codec in [Codec::Zstd, Codec::Lz4, Codec::Zlib] {
        if let Ok(raw) = decompressor.decompress(codec, bytes, raw_bytes) {
            assert_eq!(raw.len(), raw_bytes as usize);
            accepted = true;
        }
    }
    // With a zlib header; the Adler-32 sum will be wrong, but the inflater works until then.
    let stream = [&[0x78, 0xda], bytes].concat();
    let _ = decompressor.decompress(Codec::Zlib, &stream, raw_bytes);
    // With the prescribed start, so that the fuzzer gets to the blocks.
    let framed = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x58], bytes].concat();
    let _ = decompressor.decompress(Codec::Zstd, &framed, raw_bytes);
    accepted
}
