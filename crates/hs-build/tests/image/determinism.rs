//! The same input gives the same bytes, and a profile changes nothing but the hot region.

use std::collections::BTreeSet;

use hs_build::{BuildError, OptimizeOptions};
use hs_image::{Image, verify};
use hs_trace::{FileRun, FileUse, TraceError};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos, Prng};

use crate::sample::{Bench, disk, fast_build, hot_options, open, profile, random_profile, source};

fn cold_bytes(bench: &Bench, name: &str) -> Vec<u8> {
    let range = open(&bench.path(name)).superblock().cold.range;
    bench.bytes(name)[range.offset as usize..range.end() as usize].to_vec()
}

#[test]
fn building_and_optimizing_depend_on_nothing_but_their_input() {
    for (seed, window_bytes) in [(1, 4096), (2, 65_536), (3, 131_072), (4, 1 << 20)] {
        let mut prng = Prng::new(seed);
        let blocks = 300 + prng.below(900);
        let bench = Bench::new(disk(&mut prng, blocks, window_bytes));
        let report = bench.build("one", &fast_build(window_bytes, 1));
        bench.build("again", &fast_build(window_bytes, 1));
        bench.build("four", &fast_build(window_bytes, 4));
        assert!(bench.bytes("one") == bench.bytes("again"), "built twice");
        assert!(bench.bytes("one") == bench.bytes("four"), "1 thread and 4");
        assert_eq!(report.image_bytes, bench.bytes("one").len() as u64);

        let image = open(&bench.path("one"));
        let profiles = [0, 1].map(|_| random_profile(&mut prng, &image, &bench.disk));
        let hot = bench.optimize("one", "hot", &profiles);
        bench.optimize_with("one", "hot-four", &profiles, &hot_options(4)).expect("optimized");
        assert!(bench.bytes("hot") == bench.bytes("hot-four"), "1 thread and 4");
        assert_eq!(hot.disk_digest, report.disk_digest);
        assert_ne!(hot.image_digest, report.image_digest);
        assert!(cold_bytes(&bench, "one") == cold_bytes(&bench, "hot"), "cold bytes");
        assert_eq!(hot.image_bytes, report.image_bytes + hot.hot_compressed_bytes, "and nothing else");

        // A hot region is replaced where that is asked for, whatever it was.
        let replacing = OptimizeOptions { replaces: true, ..hot_options(2) };
        bench.optimize("one", "other", &profiles[..1]);
        bench.optimize_with("other", "replaced", &profiles, &replacing).expect("optimized");
        assert!(bench.bytes("replaced") == bench.bytes("hot"), "optimized twice");
        // But not in place: what is read is not replaced.
        bench.optimize_with("replaced", "replaced", &profiles, &replacing).expect_err("refused");
        assert!(bench.bytes("replaced") == bench.bytes("hot"), "as it was");
        // And no profile takes it away again.
        bench.optimize_with("hot", "none", &[], &replacing).expect("optimized");
        assert!(bench.bytes("none") == bench.bytes("one"), "without a hot region");
    }
}

#[test]
fn equal_windows_are_stored_once_and_zeros_cost_nothing() {
    let mut content = vec![0; 400 * 8192];
    for window in 100..300 {
        let seed = window as u64 % 3;
        Prng::new(seed).fill(&mut content[window * 8192..][..8192]);
    }
    let bench = Bench::new(content);
    let report = bench.build("cold", &fast_build(8192, 2));
    assert_eq!((report.chunks, report.shared_windows, report.zero_windows), (3, 197, 200));
    let stored = open(&bench.path("cold")).superblock().cold.leaves_offset;
    assert_eq!(stored, 3 * 8192);

    let empty = Bench::new(vec![0; 64 << 20]);
    let report = empty.build("cold", &fast_build(131_072, 2));
    assert_eq!(report.chunks, 0);
    // Superblock, mirror, and one entry of the root.
    assert_eq!(report.image_bytes, 8192 + 48);
    verify(&open(&empty.path("cold")), Some((&empty.source(), "disk.raw")), &|_| {}).expect("zeros");
}

#[test]
fn a_raw_file_of_odd_size_is_filled_up_with_zeros() {
    for bytes in [1, 4095, 4097, 131_071, 131_073, 300_001] {
        let mut content = vec![0; bytes];
        Prng::new(bytes as u64).fill(&mut content);
        let bench = Bench::new(content);
        let report = bench.build("cold", &fast_build(131_072, 2));
        assert_eq!(report.disk_bytes, (bytes as u64).next_multiple_of(BLOCK_BYTES));
        let image = open(&bench.path("cold"));
        verify(&image, Some((&bench.source(), "disk.raw")), &|_| {}).expect("verified");
    }
}

#[test]
fn the_disk_digest_names_the_content_whatever_stores_it() {
    let mut prng = Prng::new(5);
    let bench = Bench::new(disk(&mut prng, 777, 16_384));
    let digests: Vec<_> =
        (12..22).map(|log| bench.build("cold", &fast_build(1 << log, 2)).disk_digest).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]));
}

#[test]
fn profiles_of_other_disks_are_refused() {
    let mut prng = Prng::new(6);
    let (ours, other) = (Bench::new(disk(&mut prng, 50, 8192)), Bench::new(disk(&mut prng, 50, 8192)));
    ours.build("cold", &fast_build(8192, 1));
    other.build("cold", &fast_build(8192, 1));
    let run = [BlockRange::new(Lba(3), 4)];
    let foreign = open(&other.path("cold"));
    let refused = ours.optimize_with("cold", "hot", &[profile(&foreign, &other.disk, &run)], &hot_options(1));
    let error = refused.expect_err("another disk");
    assert!(matches!(&error, BuildError::Profile(error) if matches!(error, TraceError::WrongDisk { .. })));
    for digest in [foreign.disk_digest(), open(&ours.path("cold")).disk_digest()] {
        assert!(error.to_string().contains(&digest.to_string()), "{error}");
    }
    // The right digest on the wrong content: the block's own digest tells.
    let mut forged = profile(&foreign, &other.disk, &run);
    forged.disk_digest = open(&ours.path("cold")).disk_digest();
    let refused = ours.optimize_with("cold", "hot", &[forged], &hot_options(1));
    assert!(matches!(refused, Err(BuildError::BlockDiffers { lba: 3..7, .. })), "{refused:?}");
    assert_eq!(ours.names(), ["cold"]);
}

#[test]
fn chunk_sizes_beyond_the_format_are_refused() {
    let mut prng = Prng::new(7);
    let bench = Bench::new(disk(&mut prng, 2000, 131_072));
    bench.build("cold", &fast_build(131_072, 2));
    let all = [BlockRange::new(Lba(0), 2000)];
    let profile = profile(&open(&bench.path("cold")), &bench.disk, &all);
    let mut options = hot_options(2);
    options.layout.max_chunk_bytes = 8 << 20;
    options.layout.first_chunk_bytes = 8 << 20;
    assert!(bench.optimize_with("cold", "hot", &[profile], &options).is_err());
    for window_bytes in [0, 2048, 4097, 12_288, 8 << 20] {
        let built =
            hs_build::build(&bench.source(), &bench.path("bad"), &fast_build(window_bytes, 1), &|_| {});
        assert!(matches!(built, Err(BuildError::Option { option: "window", .. })), "{built:?}");
    }
    assert_eq!(bench.names(), ["cold"]);
}

/// A page number that the format cannot hold costs the hint, not the image.
#[test]
fn hints_that_do_not_fit_are_left_out() {
    let mut prng = Prng::new(8);
    let bench = Bench::new(disk(&mut prng, 100, 8192));
    bench.build("cold", &fast_build(8192, 1));
    let blocks = BlockRange::new(Lba(10), 4);
    let mut start = profile(&open(&bench.path("cold")), &bench.disk, &[blocks]);
    // The first chunk takes two of the four blocks, so that its hint may just fit.
    let last_page = u64::from(u32::MAX);
    for (page, fitting) in
        [(7, 2), (last_page - 1, 1), (last_page, 0), (last_page + 1, 0), ((1 << 52) - 4, 0)]
    {
        let runs = vec![hs_trace::FileRun { page, blocks }];
        start.files = vec![hs_trace::FileUse { path: "/file".to_owned(), inode: 12, runs }];
        bench.optimize("cold", "hot", &[start.clone()]);
        let image: &Image = &open(&bench.path("hot"));
        let hints: Vec<_> = image.hints().collect();
        assert_eq!(hints.len(), fitting, "page {page}: {hints:?}");
        verify(image, Some((&source(&bench.path("disk.raw")), "disk.raw")), &|_| {}).expect("verified");
    }
}

/// The image says by when the recorded start needed each hot chunk, without what it waited for storage.
#[test]
fn an_image_knows_by_when_its_hot_chunks_are_needed() {
    let mut prng = Prng::new(9);
    let bench = Bench::new(disk(&mut prng, 200, 8192));
    bench.build("cold", &fast_build(8192, 1));
    let reads: Vec<BlockRange> = (0..60).map(|read| BlockRange::new(Lba(3 * read), 1)).collect();
    let mut start = profile(&open(&bench.path("cold")), &bench.disk, &reads);
    // A read every 100 ms, each of which takes 60.
    for (number, read) in start.reads.iter_mut().enumerate() {
        read.at = Nanos::from_millis(100 * number as u64);
        read.cost = Nanos::from_millis(60);
    }
    start.ended = Nanos::from_millis(6_000);
    bench.optimize("cold", "hot", &[start]);
    let image = open(&bench.path("hot"));
    let needed: Vec<Nanos> = (0..image.hot_chunk_count()).map(|chunk| image.hot_needed(chunk)).collect();
    assert!(needed.len() > 2 && needed[0] == Nanos::ZERO && needed.is_sorted(), "{needed:?}");
    let last = *needed.last().expect("a chunk");
    assert!(last > needed[0] && last <= Nanos::from_millis(40 * 59), "{needed:?}");
}

/// The first program stays fast: its blocks stay hot, before what is added, with their files.
#[test]
fn an_earlier_hot_region_stays() {
    let mut prng = Prng::new(19);
    let bench = Bench::new(disk(&mut prng, 400, 16_384));
    bench.build("cold", &fast_build(16_384, 1));
    let image = open(&bench.path("cold"));
    let runs =
        |starts: &[u64]| starts.iter().map(|start| BlockRange::new(Lba(*start), 4)).collect::<Vec<_>>();
    let mut first = profile(&image, &bench.disk, &runs(&[300, 100, 200]));
    first.files = vec![FileUse {
        path: "/bin/first".to_owned(),
        inode: 12,
        runs: vec![FileRun { page: 7, blocks: BlockRange::new(Lba(100), 4) }],
    }];
    let second = profile(&image, &bench.disk, &runs(&[40, 100, 20]));
    bench.optimize("cold", "one", std::slice::from_ref(&first));
    let both = bench.optimize("one", "both", std::slice::from_ref(&second));
    assert_eq!((both.hot_bytes, both.kept_bytes), (5 * 4 * BLOCK_BYTES, 3 * 4 * BLOCK_BYTES));
    let image = open(&bench.path("both"));
    let extents = (0..image.hot_chunk_count()).flat_map(|chunk| image.hot_extents(chunk));
    let blocks: Vec<u64> = extents.flat_map(|extent| extent.blocks()).map(|lba| lba.0).collect();
    // What both need, the rest of the first, what the second adds; inside a chunk by address.
    for (part, starts) in
        [(&blocks[..4], &[100][..]), (&blocks[4..12], &[200, 300]), (&blocks[12..], &[20, 40])]
    {
        let of_part = part.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(of_part, starts.iter().flat_map(|start| *start..start + 4).collect(), "{blocks:?}");
    }
    let hints = image.hints().filter(|hint| hint.inode == 12);
    let pages: Vec<_> = hints
        .flat_map(|hint| (0..hint.blocks).map(move |page| (hint.lba.0 + u64::from(page), hint.page + page)))
        .collect();
    assert_eq!(pages, [(100, 7), (101, 8), (102, 9), (103, 10)]);
    verify(&image, Some((&bench.source(), "disk.raw")), &|_| {}).expect("verified");
    // The same profile once more adds nothing, and several recordings make one order.
    let again = bench.optimize("both", "again", &[second, first]);
    assert_eq!((again.hot_bytes, again.kept_bytes), (both.hot_bytes, both.hot_bytes));
}
