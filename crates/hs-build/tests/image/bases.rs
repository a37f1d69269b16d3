//! Images that do not store what the disk of another image has.

use std::num::NonZeroUsize;
use std::sync::Arc;

use hs_build::{BaseBlocks, BuildError, OptimizeOptions};
use hs_format::{Codec, Decompressor, WindowRef};
use hs_image::{Image, ImageError, verify};
use hs_store::{FileStore, MemoryStore};
use hs_units::{BlockRange, Lba, Prng};
use proptest::prelude::*;

use crate::sample::{BLOCK, Bench, WithBase, disk, disk_like, fast_build, open, profile, random_profile};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_is_built_with_a_base_is_read_with_it(seed: u64, log in 12_u32..18, base_log in 12_u32..18) {
        let mut prng = Prng::new(seed);
        let blocks = 1 + prng.below(300);
        let base = disk(&mut prng, blocks, 1 << base_log);
        let blocks = 1 + prng.below(300);
        let child = disk_like(&mut prng, &base, blocks);
        let with = WithBase::new(base, 1 << base_log, child, &fast_build(1 << log, 2));
        let image = with.open("child.hsi");
        let raw = with.child.source();
        verify(&image, Some((&raw, "disk.raw")), &|_| {}).expect("every block is right");
        // Recorded blocks are copied, from wherever they are.
        let profile = random_profile(&mut prng, &image, &with.child.disk);
        let file = with.child.path("child.hsi");
        let hot = with.child.path("hot.hsi");
        hs_build::optimize(&image, Some(&file), &[profile], &hot, &crate::sample::hot_options(2), &|_| {})
            .expect("optimized");
        prop_assert_eq!(open(&hot).superblock().base, image.superblock().base);
        verify(&with.open("hot.hsi"), Some((&raw, "disk.raw")), &|_| {}).expect("every block is right");
    }
}

/// A disk of random blocks, and one with each second of them.
fn halves() -> WithBase {
    let mut base = vec![0; 200 * BLOCK];
    Prng::new(1).fill(&mut base);
    let mut child = base.clone();
    for block in child.chunks_mut(BLOCK).step_by(2) {
        Prng::new(u64::from(block[0])).fill(block);
    }
    WithBase::new(base, 65_536, child, &fast_build(16_384, 2))
}

#[test]
fn what_the_base_has_is_not_stored() {
    let with = halves();
    assert_eq!((with.report.composed_windows, with.report.chunks), (50, 50));
    let whole = with.child.build("whole.hsi", &fast_build(16_384, 2)).image_bytes;
    let saved = whole - with.report.image_bytes;
    assert!((95 * BLOCK as u64..=100 * BLOCK as u64).contains(&saved), "{saved} bytes");
    // Windows that are smaller without the blocks that the base has are as ever.
    let mut child = vec![3; 8 * BLOCK];
    child[..BLOCK].copy_from_slice(&with.base.disk[..BLOCK]);
    child[5 * BLOCK..].fill(4);
    let mut base = with.base.disk.clone();
    base[BLOCK..2 * BLOCK].fill(3);
    let other = WithBase::new(base, 65_536, child, &fast_build(16_384, 1));
    assert_eq!(other.report.composed_windows, 1);
}

#[test]
fn an_image_that_needs_no_base_names_none() {
    let with = WithBase::new(vec![1; 8 * BLOCK], 65_536, vec![2; 8 * BLOCK], &fast_build(16_384, 1));
    let image = open(&with.child.path("child.hsi"));
    assert_eq!((with.report.composed_windows, image.superblock().base), (0, None));
    assert_eq!(image.superblock().features, hs_format::Features::default());
}

#[test]
fn equal_windows_are_stored_once_wherever_their_blocks_are() {
    let mut base = vec![0; 64 * BLOCK];
    Prng::new(5).fill(&mut base);
    // Each block of the window is on the base twice.
    let window = base[8 * BLOCK..12 * BLOCK].to_vec();
    base[41 * BLOCK..45 * BLOCK].copy_from_slice(&window);
    let child = [&window[..], &base[..4 * BLOCK], &window, &window].concat();
    let with = WithBase::new(base, 65_536, child, &fast_build(16_384, 1));
    assert_eq!((with.report.chunks, with.report.shared_windows), (2, 2));
}

#[test]
fn blocks_come_from_one_window_of_the_base_where_that_is_possible() {
    let mut base = vec![0; 64 * BLOCK];
    Prng::new(6).fill(&mut base);
    let window = base[40 * BLOCK..44 * BLOCK].to_vec();
    // Its blocks are also in other windows of the base, one by one.
    for (number, at) in [(0, 1), (1, 17), (2, 33), (3, 50)] {
        base[at * BLOCK..][..BLOCK].copy_from_slice(&window[number * BLOCK..][..BLOCK]);
    }
    let with = WithBase::new(base, 16_384, window, &fast_build(16_384, 1));
    let Ok(WindowRef::Chunk(chunk)) = open(&with.child.path("child.hsi")).window(0) else { panic!("stored") };
    assert_eq!((chunk.codec, chunk.range.len), (Codec::Composed, 50));
    let at = open(&with.child.path("child.hsi")).cold_range(&chunk).offset as usize;
    let stored = &with.child.bytes("child.hsi")[at..at + 16];
    let numbers: Vec<u32> =
        stored.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    assert_eq!(numbers, [40, 41, 42, 43]);
}

#[test]
// R34
fn only_the_disk_that_is_named_is_a_base_and_it_has_none_itself() {
    let with = halves();
    let image = open(&with.child.path("child.hsi"));
    let missing = image.check_has_base().expect_err("no base").to_string();
    let named = image.superblock().base.expect("a base").disk_digest.to_string();
    assert!(missing.contains("--base") && missing.contains(&named), "{missing}");
    let error = verify(&image, None, &|_| {}).expect_err("no base");
    assert!(matches!(error, ImageError::NeedsBase { .. }), "{error}");
    let store = |bench: &Bench, name: &str| Arc::new(FileStore::open(bench.path(name)).expect("there"));
    // Another disk.
    let other = Bench::new(with.child.disk.clone());
    other.build("other.hsi", &fast_build(65_536, 1));
    let refused = image.use_base(WithBase::read_base(store(&other, "other.hsi"))).expect_err("another disk");
    assert!(matches!(refused, ImageError::OtherBase { .. }), "{refused}");
    assert!(refused.to_string().contains(&named), "{refused}");
    // The right digest, and another size: its author lied.
    let mut superblock = open(&with.base.path("base.hsi")).superblock().clone();
    superblock.disk_bytes -= BLOCK as u64;
    let lying = WithBase::lying_base(with.base.bytes("base.hsi"), &superblock);
    let refused = image.use_base(WithBase::read_base(Arc::new(lying))).expect_err("another size");
    assert!(matches!(refused, ImageError::OtherBase { .. }), "{refused}");
    // An image that needs a base is none.
    let refused = image.use_base(WithBase::read_base(store(&with.child, "child.hsi"))).expect_err("a chain");
    assert!(matches!(refused, ImageError::BaseOfBase { .. }), "{refused}");
    let refused = BaseBlocks::read(&image, NonZeroUsize::MIN, &|_| {}).expect_err("a chain");
    assert!(matches!(refused, BuildError::BaseOfBase { .. }), "{refused}");
    assert!(image.base().is_none(), "none of them is used");
    // An image without a base takes none.
    let plain = open(&with.base.path("base.hsi"));
    plain.use_base(WithBase::read_base(store(&other, "other.hsi"))).expect("ignored");
    assert!(plain.base().is_none());
}

#[test]
fn the_same_image_whatever_the_threads() {
    let build = |threads| {
        let mut prng = Prng::new(9);
        let base = disk(&mut prng, 200, 16_384);
        let child = disk_like(&mut prng, &base, 200);
        let with = WithBase::new(base, 65_536, child, &fast_build(16_384, threads));
        with.child.bytes("child.hsi")
    };
    assert!(build(1) == build(4));
}

#[test]
fn damage_of_the_base_is_an_error_that_names_both() {
    let with = halves();
    let image = open(&with.child.path("child.hsi"));
    let mut bytes = with.base.bytes("base.hsi");
    bytes[5000] ^= 1;
    let store = Arc::new(MemoryStore::new(bytes).named("spoiled-base"));
    image.use_base(Arc::new(hs_image::ReadBase::new(Image::open(store).expect("opens")))).expect("is it");
    let error = verify(&image, None, &|_| {}).expect_err("a damaged base");
    assert!(matches!(error, ImageError::Base { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("spoiled-base") && text.contains("child.hsi") && text.contains("digest"), "{text}");
}

/// A base with a hot region, and a delta whose start reads the same blocks, of which some are others.
fn related_starts() -> WithBase {
    let mut base = vec![0; 300 * BLOCK];
    Prng::new(11).fill(&mut base);
    let mut child = base.clone();
    for block in [45, 46, 150] {
        Prng::new(block as u64).fill(&mut child[block * BLOCK..][..BLOCK]);
    }
    let with = WithBase::new(base, 65_536, child, &fast_build(16_384, 2));
    let reads = [BlockRange::new(Lba(40), 100), BlockRange::new(Lba(148), 60)];
    let of = |bench: &Bench, image: &Image| profile(image, &bench.disk, &reads);
    let base = of(&with.base, &open(&with.base.path("base.hsi")));
    with.base.optimize("base.hsi", "fast.hsi", &[base]);
    let child = of(&with.child, &open(&with.child.path("child.hsi")));
    optimize_on(&with, "fast.hsi", &child, "delta.hsi");
    optimize_on(&with, "base.hsi", &child, "whole.hsi");
    with
}

/// Makes a hot region for the child, with this image as its base.
fn optimize_on(with: &WithBase, base: &str, start: &hs_trace::Profile, name: &str) {
    let image = with.open_on("child.hsi", base);
    let file = with.child.path("child.hsi");
    let (to, options) = (with.child.path(name), crate::sample::hot_options(2));
    hs_build::optimize(&image, Some(&file), std::slice::from_ref(start), &to, &options, &|_| {})
        .expect("optimized");
}

#[test]
// R56
fn hot_chunks_that_the_base_has_are_borrowed() {
    let with = related_starts();
    let (delta, whole) = (with.open_on("delta.hsi", "fast.hsi"), with.open_on("whole.hsi", "base.hsi"));
    let chunks = 0..delta.hot_chunk_count();
    let own: Vec<u32> = chunks.clone().filter(|chunk| !delta.is_borrowed(*chunk)).collect();
    assert!(own.len() == 3 && chunks.len() > 20, "{own:?} of {chunks:?}");
    assert!(delta.superblock().features.borrows() && !whole.superblock().features.borrows());
    let stored = |image: &Image| image.superblock().hot[0].chunks.len;
    let own_bytes: u64 = own.iter().map(|chunk| delta.hot_chunk(*chunk).0.range.len).sum();
    assert_eq!(stored(&delta), own_bytes);
    assert!(stored(&whole) > 5 * own_bytes, "{} and {own_bytes}", stored(&whole));
    let raw = with.child.source();
    let report = verify(&delta, Some((&raw, "disk.raw")), &|_| {}).expect("every block is right");
    assert_eq!(report.hot_chunks, chunks.end);
    // They are the same chunks.
    for chunk in chunks.clone() {
        let of = |image: &Image| (image.hot_chunk(chunk).0.digest, image.hot_extents(chunk).to_vec());
        assert_eq!(of(&delta), of(&whole));
    }
    // With nothing to borrow, all are stored again.
    let start = profile(&delta, &with.child.disk, &[BlockRange::new(Lba(40), 100)]);
    let options = OptimizeOptions { replaces: true, ..crate::sample::hot_options(2) };
    let (from, to) = (with.child.path("delta.hsi"), with.child.path("again.hsi"));
    hs_build::optimize(&with.open_on("delta.hsi", "base.hsi"), Some(&from), &[start], &to, &options, &|_| {})
        .expect("optimized");
    let again = with.open_on("again.hsi", "base.hsi");
    assert!(!again.superblock().features.borrows());
    verify(&again, Some((&raw, "disk.raw")), &|_| {}).expect("every block is right");
}

#[test]
// R57
fn a_chunk_is_borrowed_by_its_digest_and_else_read_from_the_cold_region() {
    let with = related_starts();
    let raw = with.child.source();
    let mut tools = Decompressor::new();
    // Another image of the base's disk has no hot region: the chunks are not there, and the disk is.
    let image = with.open_on("delta.hsi", "base.hsi");
    let report = verify(&image, Some((&raw, "disk.raw")), &|_| {}).expect("the disk is whole");
    assert_eq!(report.hot_chunks, 3, "its own ones");
    let borrowed = (0..image.hot_chunk_count()).find(|chunk| image.is_borrowed(*chunk)).expect("one");
    let error = image.load_hot(borrowed, &mut tools).expect_err("it is not there").to_string();
    assert!(error.contains("base.hsi has not all hot chunks that it borrows"), "{error}");
    // Without a base nothing is read in its place.
    let alone = open(&with.child.path("delta.hsi"));
    let error = alone.load_hot(borrowed, &mut tools).expect_err("no base").to_string();
    assert!(error.contains("delta.hsi") && error.contains("--base"), "{error}");
    // The base's author has other bytes under the digest that its own tables claim.
    let fast = open(&with.base.path("fast.hsi"));
    let digest = image.hot_chunk(borrowed).0.digest;
    let chunks = 0..fast.hot_chunk_count();
    let lent = chunks.map(|chunk| fast.hot_chunk(chunk)).find(|(chunk, _)| chunk.digest == digest);
    let mut bytes = with.base.bytes("fast.hsi");
    bytes[lent.expect("it has it").1.offset as usize + 7] ^= 1;
    let image = open(&with.child.path("delta.hsi"));
    image.use_base(WithBase::read_base(Arc::new(MemoryStore::new(bytes)))).expect("it is its base");
    let error = verify(&image, None, &|_| {}).expect_err("a changed chunk");
    let ImageError::Chunk { chunk, .. } = &error else { panic!("{error}") };
    assert_eq!(*chunk, format!("hot chunk {borrowed}"), "{error}");
}
