//! What stays in the cache, for readers that keep what they are given and for others.

use std::sync::Arc;

use hs_disk::{DiskOptions, ReadOptions, ServedDisk};
use hs_engine::{EndReason, LateRule, PrefetchConfig};
use hs_image::Image;
use hs_store::{Count, FileStore};
use hs_units::{BlockRange, Prng};
use proptest::prelude::*;

use crate::reading::sample_with_hot;
use crate::sample::{Bench, fast_build, open};
use crate::served::{begin, check_random_reads, check_read, disk_with, reads};

const WINDOW: u64 = 65_536;

/// Bytes of chunks that were read; neighbours that came with them may wait beside them, and the index.
fn demanded_bytes(disk: &ServedDisk) -> u64 {
    let cold = &disk.image().superblock().cold;
    let usage = disk.cache_usage();
    usage.bytes - usage.prefetched_bytes - (cold.range.len - cold.leaves_offset)
}

/// A disk without zeros, in windows of 64 KiB.
fn plain_sample() -> Bench {
    let mut content = vec![0; 8 * WINDOW as usize];
    Prng::new(20).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold.hsi", &fast_build(WINDOW, 2));
    bench
}

#[test]
fn a_window_leaves_when_its_readers_have_all_of_it_and_keep_it() {
    let bench = plain_sample();
    let image = open(&bench.path("cold.hsi"));
    for readers_keep in [false, true] {
        let options = ReadOptions { readers_keep, read_ahead_bytes: 0, ..reads(1, 40 << 20) };
        let disk = disk_with(&image, options);
        let read = |offset, len| check_read(&disk, &bench.disk, offset, len);
        read(0, WINDOW / 2);
        assert_eq!(demanded_bytes(&disk), WINDOW, "half of it may be asked for");
        assert_eq!(disk.duplicate_bytes(), if readers_keep { WINDOW / 2 } else { 0 });
        let hits = disk.cache_usage().hits;
        // Half a block is no block: it will be asked for again.
        read(WINDOW / 2, WINDOW / 2 - 2048);
        assert_eq!(demanded_bytes(&disk), WINDOW);
        read(WINDOW - 4096, 4096);
        assert_eq!(demanded_bytes(&disk), if readers_keep { 0 } else { WINDOW });
        assert_eq!((disk.cache_usage().hits - hits, disk.duplicate_bytes()), (2, 0));
        // Dropped by the reader that was to keep it, it comes again.
        read(0, 2 * WINDOW);
        assert_eq!(demanded_bytes(&disk), if readers_keep { 0 } else { 2 * WINDOW });
    }
}

#[test]
fn a_hot_chunk_that_readers_have_is_not_brought_again_and_is_missed_when_they_drop_it() {
    let bench = sample_with_hot(&mut Prng::new(21));
    let count = Count::new(FileStore::open(bench.path("hot.hsi")).expect("opened"));
    let counters = count.counters();
    let image = Arc::new(Image::open(Arc::new(count)).expect("an image"));
    // One chunk a request.
    let prefetch = PrefetchConfig {
        first_request_bytes: 1,
        max_request_bytes: 1,
        late: LateRule::Fetch,
        ..PrefetchConfig::default()
    };
    let read = ReadOptions { readers_keep: true, read_ahead_bytes: 0, ..reads(1, 40 << 20) };
    let options = DiskOptions { read, prefetch: Some(prefetch), ..DiskOptions::default() };
    let disk = ServedDisk::of_image(Arc::clone(&image), &options, None).expect("a disk");
    let requests = || counters.snapshot().requests;
    let read_chunk = |chunk: u32| {
        image.hot_extents(chunk).iter().for_each(|extent: &BlockRange| {
            check_read(&disk, &bench.disk, extent.start.byte_offset(), extent.bytes());
        });
    };
    // It does not join: it is fetched, and its readers have it.
    let before = requests();
    read_chunk(1);
    assert_eq!((requests() - before, disk.cache_usage().bytes), (1, 0));
    begin(&disk, None);
    disk.wait_prefetch();
    assert_eq!(disk.ended(), Some(EndReason::Complete));
    let chunks = image.hot_chunk_count();
    assert_eq!(requests() - before, u64::from(chunks), "it is not brought again");
    let arrivals = disk.arrivals();
    let missing: Vec<usize> = (0..arrivals.len()).filter(|chunk| arrivals[*chunk].is_none()).collect();
    assert_eq!(missing, [1]);
    let before = requests();
    read_chunk(1);
    assert_eq!(requests() - before, 1, "once, however many reads it took");
    // A held one counts as handed over when the last of it is asked for.
    let (stored, unserved) = (disk.cache_usage().bytes, disk.stats().unserved_prefetch_bytes);
    read_chunk(3);
    let bytes: u64 = image.hot_extents(3).iter().map(|extent| extent.bytes()).sum();
    assert_eq!(unserved - disk.stats().unserved_prefetch_bytes, bytes);
    let all: u64 = (0..chunks).filter(|chunk| *chunk != 1).map(|chunk| image.hot_chunk(chunk).1.len).sum();
    assert_eq!(stored, all, "as they are stored, in case that the kernel drops them");
    assert_eq!(disk.cache_usage().bytes, all, "it is dropped, and its stored bytes stay");
    assert_eq!(disk.duplicate_bytes(), 0);
    read_chunk(3);
    assert_eq!(requests() - before, 1, "the medium is not asked");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// With a budget that changes all the time, the bytes are those of the disk and the
    /// cache stays within its budget.
    #[test]
    fn reads_equal_the_disk_whatever_is_kept(seed: u64, readers_keep: bool) {
        let mut prng = Prng::new(seed);
        let bench = sample_with_hot(&mut prng);
        let image = open(&bench.path("hot.hsi"));
        let disk = disk_with(&image, ReadOptions { readers_keep, ..reads(2, 40 << 20) });
        for _ in 0..6 {
            let size_log = prng.below(22);
            disk.set_cache_budget(prng.below(1 << size_log));
            check_random_reads(&disk, &bench.disk, &mut prng, 6);
            let usage = disk.cache_usage();
            prop_assert!(usage.bytes <= usage.budget_bytes, "{:?}", usage);
            prop_assert!(disk.duplicate_bytes() <= usage.bytes);
        }
        disk.set_cache_budget(0);
        prop_assert_eq!(disk.duplicate_bytes(), 0);
    }
}
