//! Media with sectors that cannot be read, whatever they hold.

use std::ops::Range;
use std::sync::Arc;

use hs_build::{HotPlacement, OptimizeOptions};
use hs_disk::ServedDisk;
use hs_format::WindowRef;
use hs_image::{Image, ImageError};
use hs_layout::Placement;
use hs_store::{Fault, FaultKind, MemoryStore, Retry, Rule, Store};
use hs_units::{BlockRange, ByteRange, Lba, Prng};

use crate::errors_log;
use crate::sample::{BLOCK, Bench, fast_build, hot_options, open, profile};
use crate::served::{begin, disk, open_streaming};

const WINDOW_BYTES: usize = 16_384;
const WINDOW_BLOCKS: u64 = 4;

/// Sixty windows, each with a chunk of its own; blocks 0 to 8, 40, 41 and 100 to 103 are hot.
fn bench() -> Bench {
    bench_with(Placement::Front)
}

/// The same, with the hot region at this place.
fn bench_with(placement: Placement) -> Bench {
    let mut content = vec![0; 60 * WINDOW_BYTES];
    Prng::new(31).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold", &fast_build(WINDOW_BYTES as u64, 1));
    let runs = [(0, 9), (100, 4), (40, 2)].map(|(lba, count)| BlockRange::new(Lba(lba), count));
    let start = profile(&open(&bench.path("cold")), &bench.disk, &runs);
    let options = OptimizeOptions { place: HotPlacement::At(placement), ..hot_options(2) };
    bench.optimize_with("cold", "hot", &[start], &options).expect("optimized");
    bench
}

/// The image `hot` under `name`, with these bytes of the file unreadable, and whose other requests are made
/// as patiently as a program does.
fn damaged(bench: &Bench, name: &str, bad: &[ByteRange]) -> Arc<dyn Store> {
    let rules = bad.iter().map(|range| Rule::new(FaultKind::Io, *range)).collect();
    let store = MemoryStore::new(bench.bytes("hot")).named(name);
    Arc::new(Retry::new(Fault::new(store, rules, 0)))
}

/// Opens the image in both ways: piece by piece, and with one request that goes on into the hot chunks.
fn opened(store: &Arc<dyn Store>) -> [Result<Arc<ServedDisk>, ImageError>; 2] {
    let plain = Image::open(Arc::clone(store)).map(|image| disk(&Arc::new(image), 2, 1 << 20));
    let streamed = open_streaming(Arc::clone(store)).inspect(|disk| {
        begin(disk, None);
        disk.wait_prefetch();
    });
    [plain, streamed]
}

/// Reads block by block: these fail, all others are right.
fn check_blocks(bench: &Bench, disk: &ServedDisk, unreadable: impl Fn(u64) -> bool) {
    for (lba, expected) in bench.disk.chunks(BLOCK).enumerate() {
        let mut found = vec![0; BLOCK];
        let read = disk.read_at((lba * BLOCK) as u64, &mut found);
        assert_eq!(read.is_err(), unreadable(lba as u64), "block {lba}: {read:?}");
        assert!(read.is_err() || found == expected, "block {lba} is wrong");
    }
}

fn cold_chunk(image: &Image, window: u64) -> ByteRange {
    let Ok(WindowRef::Chunk(chunk)) = image.window(window) else { panic!("window {window} is stored") };
    image.cold_range(&chunk)
}

#[test]
fn an_unreadable_superblock_is_replaced_by_its_mirror() {
    errors_log::collect();
    for placement in [Placement::Front, Placement::End] {
        check_mirror(&bench_with(placement));
    }
}

fn check_mirror(bench: &Bench) {
    let name = "no-superblock.hsi";
    let store = damaged(bench, name, &[ByteRange::new(2_048, 2_048)]);
    for disk in opened(&store) {
        let disk = disk.expect("an image");
        let image = disk.image();
        assert!(image.from_mirror() && image.hot_fault().is_none() && image.hot_chunk_count() > 0);
        check_blocks(bench, &disk, |_| false);
    }
    let lines = errors_log::take(name);
    assert!(
        lines.iter().any(|line| line.contains("mirror") && line.contains("Input/output error")),
        "{lines:?}"
    );

    let end = store.len();
    let both = damaged(bench, name, &[ByteRange::new(0, 1), ByteRange::new(end - 1, 1)]);
    for disk in opened(&both) {
        let refused = disk.map(drop);
        assert!(matches!(refused, Err(ImageError::Store(_))), "{refused:?}");
    }
}

#[test]
fn an_unreadable_hot_index_costs_the_hot_region_and_nothing_else() {
    errors_log::collect();
    for placement in [Placement::Front, Placement::End] {
        check_without_hot_region(&bench_with(placement));
    }
}

fn check_without_hot_region(bench: &Bench) {
    let name = "no-hot-index.hsi";
    let segment = open(&bench.path("hot")).superblock().hot[0];
    for at in [segment.index.offset, segment.index.end() - 1, segment.hints.end() - 1] {
        for disk in opened(&damaged(bench, name, &[ByteRange::new(at, 1)])) {
            let disk = disk.expect("an image");
            let image = disk.image();
            assert!(
                image.hot_fault().is_some() && image.hot_chunk_count() == 0 && image.hints().count() == 0
            );
            check_blocks(bench, &disk, |_| false);
            let verified = hs_image::verify(image, None, &|_| {});
            assert!(matches!(verified, Err(ImageError::Store(_))), "{verified:?}");
        }
        let lines = errors_log::take(name);
        assert!(lines.iter().any(|line| line.contains("without its hot region")), "{lines:?}");
    }
}

#[test]
fn an_unreadable_chunk_is_lost_but_for_the_blocks_that_lie_elsewhere_too() {
    errors_log::collect();
    let bench = bench();
    let whole = open(&bench.path("hot"));
    let (_, hot) = whole.hot_chunk(whole.hot_place(Lba(40)).expect("hot").chunk);
    let in_window = |window: u64| move |lba: u64| lba / WINDOW_BLOCKS == window;

    // A cold chunk: window 10 holds blocks 40 to 43, of which 40 and 41 are hot, and window 30 none.
    let name = "no-cold-chunk.hsi";
    let bad = [10, 30].map(|window| cold_chunk(&whole, window));
    for disk in opened(&damaged(&bench, name, &bad)) {
        let disk = disk.expect("an image");
        let lost = |lba| lba == 42 || lba == 43 || in_window(30)(lba);
        check_blocks(&bench, &disk, lost);
        check_blocks(&bench, &disk, lost);
        assert_eq!(disk.stats().failed_requests, 12);
        let lines = errors_log::take(name);
        let lost = ["blocks 40+4 of the disk", "blocks 120+4 of the disk"];
        assert!(
            lost.iter().all(|blocks| lines.iter().filter(|line| line.contains(blocks)).count() == 1),
            "{lines:?}"
        );
    }

    // A hot chunk: its blocks have cold copies.
    let name = "no-hot-chunk.hsi";
    for disk in opened(&damaged(&bench, name, &[ByteRange::new(hot.offset, 1)])) {
        check_blocks(&bench, &disk.expect("an image"), |_| false);
    }
    let lines = errors_log::take(name);
    let elsewhere = lines.iter().filter(|line| line.contains("are read elsewhere")).count();
    assert_eq!(elsewhere, 2, "each of the two disks says it once: {lines:?}");

    // Both: block 41 may lie in another hot chunk than 40.
    let name = "neither.hsi";
    let (_, other) = whole.hot_chunk(whole.hot_place(Lba(41)).expect("hot").chunk);
    for disk in opened(&damaged(&bench, name, &[hot, other, cold_chunk(&whole, 10)])) {
        check_blocks(&bench, &disk.expect("an image"), in_window(10));
    }
}

/// The index of a small image is read with one request; where that fails, its pieces are read alone.
#[test]
fn an_unreadable_leaf_of_the_index_costs_its_own_windows() {
    // 1200 windows, 512 of which share a leaf.
    const WINDOWS: u64 = 1_200;
    let mut content = vec![0; WINDOWS as usize * BLOCK];
    content
        .chunks_mut(BLOCK)
        .enumerate()
        .for_each(|(lba, block)| block[..8].copy_from_slice(&(lba as u64 + 1).to_le_bytes()));
    let bench = Bench::new(content);
    bench.build("hot", &fast_build(BLOCK as u64, 2));
    let superblock = open(&bench.path("hot")).superblock().clone();
    assert_eq!(superblock.leaf_count(), 3);
    // The first leaf is the first of the tables, the root the last.
    let leaf = ByteRange::new(superblock.cold.in_file(superblock.cold.leaf_space()).offset, 1);
    let root = superblock.cold.in_file(superblock.cold.root);
    let lost: [(ByteRange, Range<u64>); 2] = [(leaf, 0..512), (root, 0..WINDOWS)];
    for (bad, lost) in lost {
        for disk in opened(&damaged(&bench, "no-leaf.hsi", &[bad])) {
            check_blocks(&bench, &disk.expect("an image"), |lba| lost.contains(&lba));
        }
    }
}

/// What could be read at neither place may be read again: no verdict is final.
#[test]
fn a_block_comes_back_from_wherever_it_comes_back() {
    let bench = bench();
    let whole = open(&bench.path("hot"));
    let (_, hot) = whole.hot_chunk(whole.hot_place(Lba(40)).expect("hot").chunk);
    let tries = 1 + u64::from(Retry::<()>::RETRIES);
    let rules =
        vec![Rule::new(FaultKind::Io, hot).times(tries), Rule::new(FaultKind::Io, cold_chunk(&whole, 10))];
    let fault = Fault::new(MemoryStore::new(bench.bytes("hot")), rules, 0);
    let disk = disk(&Arc::new(Image::open(Arc::new(Retry::new(fault))).expect("an image")), 2, 0);
    let mut found = vec![0; BLOCK];
    disk.read_at(40 * BLOCK as u64, &mut found).expect_err("neither can be read");
    disk.read_at(40 * BLOCK as u64, &mut found).expect("the hot chunk can be read again");
    assert!(found == bench.disk[40 * BLOCK..][..BLOCK]);
}
