//! What is built is what is read.

use hs_format::*;
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Prng};
use proptest::prelude::*;

use crate::reader::read_image;
use crate::sample::{Recipe, Sample, build, small_recipe};

/// A disk of zero, repetitive, equal and random blocks, and hot chunks of random disjoint runs.
fn random_recipe(seed: u64, blocks: u64, window_blocks: u32, windows_per_leaf: u32) -> Recipe {
    let mut prng = Prng::new(seed);
    let mut disk = vec![0; (blocks * BLOCK_BYTES) as usize];
    for block in disk.chunks_mut(BLOCK_BYTES as usize) {
        match prng.below(4) {
            0 => prng.fill(block),
            1 => block.fill(7),
            2 => block[..9].fill(prng.below(256) as u8),
            _ => {}
        }
    }
    let mut hot = Vec::new();
    for _ in 0..prng.below(4) {
        let (mut chunks, mut extents, mut lba) = (Vec::new(), Vec::new(), prng.below(3));
        while lba < blocks {
            let count = (1 + prng.below(4)).min(blocks - lba);
            extents.insert(prng.below(extents.len() as u64 + 1) as usize, BlockRange::new(Lba(lba), count));
            lba += count + prng.below(3);
            if prng.below(3) == 0 {
                chunks.push(std::mem::take(&mut extents));
            }
        }
        chunks.extend((!extents.is_empty()).then_some(extents));
        hot.extend((!chunks.is_empty()).then_some(chunks));
    }
    let codec = if seed.is_multiple_of(5) { Codec::Store } else { Codec::Zstd };
    Recipe { disk, window_blocks, windows_per_leaf, codec, hot, hints: Vec::new() }
}

proptest! {
    #[test]
    fn images(seed: u64, blocks in 1_u64..80, window_blocks in 1_u32..9, windows_per_leaf in 1_u32..9) {
        let sample = build(&random_recipe(seed, blocks, window_blocks, windows_per_leaf));
        prop_assert_eq!(Superblock::decode(Unverified::new(&sample.superblock.encode())), Ok(sample.superblock.clone()));
        prop_assert!(read_image(&sample.image) == Ok(sample.disk));
    }

    #[test]
    fn hints(entries in proptest::collection::vec((0_u64..1 << 32, any::<u64>(), any::<u32>(), 1_u32..9), 0..50)) {
        let mut superblock = Sample::small().superblock.clone();
        superblock.disk_bytes = limits::MAX_DISK_BYTES;
        let hint = |(lba, inode, page, blocks): (u64, u64, u32, u32)| Hint {
            lba: Lba(lba.min((1 << 32) - u64::from(blocks))),
            inode,
            page: page.min(u32::MAX - blocks),
            blocks,
        };
        let hints = Hints(entries.into_iter().map(hint).collect());
        let bytes = hints.encode();
        let mut segment = superblock.hot[0];
        segment.hints.len = bytes.len() as u64;
        segment.hints_digest = Hints::digest_of(&bytes);
        prop_assert_eq!(Hints::decode(Unverified::new(&bytes), &segment, &superblock), Ok(hints));
    }
}

#[test]
fn the_sample_has_what_its_description_says() {
    let sample = Sample::small();
    assert_eq!(read_image(&sample.image).as_ref(), Ok(&sample.disk));
    let root = sample.root();
    let zero: Vec<_> = root.leaves.iter().map(LeafRef::is_zero).collect();
    assert_eq!(zero, [false, false, true, false]);
    let first =
        ColdLeaf::decode(Unverified::new(sample.leaf_bytes(1)), 1, &root.leaves[1], &sample.superblock)
            .expect("good");
    let last =
        ColdLeaf::decode(Unverified::new(sample.leaf_bytes(3)), 3, &root.leaves[3], &sample.superblock)
            .expect("good");
    assert_eq!(first.window(0), last.window(0), "equal windows share a chunk");
    assert_eq!(first.window(1), WindowRef::Zero);
    assert!(matches!(last.window(2), WindowRef::Chunk(ChunkRef { raw_bytes: 4096, .. })));
    assert_eq!(sample.superblock.cold.distinct_chunks, 4);
    let windows: Vec<_> = first.windows().collect();
    assert_eq!(ColdLeaf::new(&windows).encode(), sample.leaf_bytes(1));
    assert_eq!(root.encode(), sample.root_bytes());
}

#[test]
fn the_cold_region_does_not_depend_on_hot_segments() {
    let with = build(&small_recipe(Codec::Zstd));
    let without = build(&Recipe { hot: Vec::new(), ..small_recipe(Codec::Zstd) });
    let cold = |sample: &Sample| sample.bytes(sample.superblock.cold.range).to_vec();
    assert_eq!(cold(&with), cold(&without));
    assert_eq!(with.superblock.disk_digest, without.superblock.disk_digest);
    assert_ne!(with.superblock.image_digest(), without.superblock.image_digest());
}

#[test]
fn codec_and_windows_do_not_change_the_disk_digest() {
    let one = build(&small_recipe(Codec::Zstd));
    let other = build(&Recipe { window_blocks: 5, ..small_recipe(Codec::Store) });
    assert_eq!(one.superblock.disk_digest, other.superblock.disk_digest);
}

#[test]
fn a_signature_does_not_change_the_name() {
    let mut superblock = Sample::small().superblock.clone();
    let name = superblock.image_digest();
    superblock.signature = Some(Signature { kind: 1, key_id: [2; 8], signature: [3; 64] });
    assert_eq!(superblock.image_digest(), name);
    assert_eq!(Superblock::decode(Unverified::new(&superblock.encode())), Ok(superblock.clone()));
    superblock.disk_digest.0[0] ^= 1;
    assert_ne!(superblock.image_digest(), name);
}

#[test]
fn own_times_of_programs_are_kept() {
    let mut superblock = Sample::small().superblock.clone();
    superblock.hot[0].own_ms = 1_234;
    let bytes = superblock.encode();
    assert_eq!(bytes[176 + 36..176 + 40], 1_234_u32.to_le_bytes());
    assert_eq!(Superblock::decode(Unverified::new(&bytes)), Ok(superblock));
}

#[test]
fn unknown_compatible_features_are_ignored_and_named() {
    let mut superblock = Sample::small().superblock.clone();
    let name = superblock.image_digest();
    superblock.features.compat = 1 << 63;
    assert_eq!(Superblock::decode(Unverified::new(&superblock.encode())), Ok(superblock.clone()));
    assert_ne!(superblock.image_digest(), name);
}

#[test]
fn a_hundred_gigabytes_of_zeros_are_a_root() {
    let geometry = ColdGeometry {
        disk_bytes: 100 << 30,
        window_blocks: limits::DEFAULT_WINDOW_BLOCKS,
        windows_per_leaf: limits::DEFAULT_WINDOWS_PER_LEAF,
    };
    let mut tables = ColdTables::new(geometry).expect("within limits");
    (0..geometry.windows()).for_each(|_| tables.push(WindowRef::Zero));
    let encoded = tables.finish(0, 0).expect("consistent");
    assert_eq!(encoded.bytes.len() as u64, geometry.leaf_count() * 48);
    assert!(encoded.bytes.iter().all(|&byte| byte == 0));
}
