//! Reads get the bytes of the disk, whatever it holds and whatever else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use hs_disk::{Deliver, DemandEvent, DiskOptions, ServedDisk, UseVisibility, Watch};
use hs_engine::PrefetchConfig;
use hs_image::ImageError;
use hs_store::{Fault, FaultKind, FileStore, Rule};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Prng};
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::sample::{self, Bench, fast_build, open, profile, random_profile};
use crate::served::{EVERYTHING, answered, ask, begin, check_random_reads, disk, reads};

/// A disk of 2.4 MB in windows of 64 KiB, with a hot region made from two random profiles.
pub(crate) fn sample_with_hot(prng: &mut Prng) -> Bench {
    let bench = Bench::new(sample::disk(prng, 600, 65_536));
    bench.build("cold.hsi", &fast_build(65_536, 2));
    let image = open(&bench.path("cold.hsi"));
    let profiles = [0, 1].map(|_| random_profile(prng, &image, &bench.disk));
    bench.optimize("cold.hsi", "hot.hsi", &profiles);
    bench
}

/// Takes some chunks and refuses others, and looks at the bytes of both.
struct Fickle {
    comes_before_answers: bool,
    disk: Vec<u8>,
    wrong: AtomicU64,
}

impl Deliver for Fickle {
    fn visibility(&self) -> UseVisibility {
        UseVisibility::Asked
    }
    fn comes_before_answers(&self) -> bool {
        self.comes_before_answers
    }
    fn deliver(&self, extents: &[BlockRange], raw: &[u8], left_out: &[std::ops::Range<u32>]) -> bool {
        for (part, first) in hs_disk::parts(extents, left_out) {
            let (from, at) = (part.start.byte_offset() as usize, (u64::from(first) * BLOCK_BYTES) as usize);
            let bytes = &raw[at..at + part.bytes() as usize];
            let is_wrong = self.disk.get(from..from + bytes.len()) != Some(bytes);
            self.wrong.fetch_add(is_wrong.into(), SeqCst);
        }
        extents[0].start.0.is_multiple_of(2)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the disk, the windows, the profile and the reads: the bytes are those of the disk.
    #[test]
    fn reads_equal_the_disk(seed: u64, blocks in 1_u64..700, window_log in 12_u32..21, cache_log in 0_u32..24) {
        let mut prng = Prng::new(seed);
        let window_bytes = 1 << window_log;
        let bench = Bench::new(sample::disk(&mut prng, blocks, window_bytes));
        bench.build("cold.hsi", &fast_build(window_bytes, 2));
        let image = open(&bench.path("cold.hsi"));
        check_random_reads(&disk(&image, 2, 1 << cache_log), &bench.disk, &mut prng, 40);

        let profiles: Vec<_> =
            (0..1 + prng.below(3)).map(|_| random_profile(&mut prng, &image, &bench.disk)).collect();
        bench.optimize("cold.hsi", "hot.hsi", &profiles);
        let image = open(&bench.path("hot.hsi"));
        prop_assert!(image.hot_chunk_count() > 0);
        check_random_reads(&disk(&image, 2, 1 << cache_log), &bench.disk, &mut prng, 40);
        let verified = hs_image::verify(&image, Some((&bench.source(), "disk.raw")), &|_| {});
        prop_assert_eq!(
            verified.map_err(|error| error.to_string()).map(|report| report.hot_chunks),
            Ok(image.hot_chunk_count())
        );
    }

    /// Many readers at once, a medium that answers out of order, a prefetch that half of them wait for, and
    /// that ends early half of the time.
    #[test]
    fn concurrent_reads_during_a_stream_equal_the_disk(
        seed: u64, cache_log in 10_u32..22, delivers: bool, before_answers: bool, tight: bool,
    ) {
        let mut prng = Prng::new(seed);
        let bench = sample_with_hot(&mut prng);
        let rules = [(300, 3), (3000, 11)].map(|(micros, one_in)| {
            Rule::new(FaultKind::Delay(Duration::from_micros(micros)), EVERYTHING).one_in(one_in)
        });
        let store = Fault::new(FileStore::open(bench.path("hot.hsi")).expect("opened"), rules.to_vec(), seed);
        let prefetch = PrefetchConfig {
            first_request_bytes: 1 + prng.below(150_000),
            budget_bytes: if tight { 100_000 } else { 64 << 20 },
            ..PrefetchConfig::default()
        };
        let options =
            DiskOptions { read: reads(4, 1 << cache_log), prefetch: Some(prefetch), ..DiskOptions::default() };
        let served = ServedDisk::open(Arc::new(store), &options, None).expect("an image");
        let chunks = served.image().hot_chunk_count();
        (0..chunks).step_by(2).for_each(|chunk| served.expect(chunk));
        let fickle = Arc::new(Fickle {
            comes_before_answers: before_answers,
            disk: bench.disk.clone(),
            wrong: AtomicU64::new(0),
        });
        let stops = prng.below(2) == 0;
        let is_stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (served, bench, is_stopped) = (&served, &bench, &is_stopped);
                let mut prng = Prng::new(seed ^ number);
                scope.spawn(move || {
                    check_random_reads(served, &bench.disk, &mut prng, 12);
                    if stops && !is_stopped.swap(true, SeqCst) {
                        served.stop_prefetch();
                    }
                    check_random_reads(served, &bench.disk, &mut prng, 13);
                });
            }
            begin(&served, delivers.then(|| fickle.clone() as Arc<dyn Deliver>));
        });
        // Nothing holds chunks any longer, so a tight budget is free.
        (0..chunks).for_each(|chunk| served.release(chunk));
        if stops || !tight {
            served.wait_prefetch();
            (0..chunks).for_each(|chunk| served.release(chunk));
            prop_assert_eq!(served.stats().unserved_prefetch_bytes, 0);
            prop_assert!(served.ended().is_some());
        }
        prop_assert_eq!(fickle.wrong.load(SeqCst), 0);
        prop_assert_eq!(served.waiting().reads, 0);
        check_random_reads(&served, &bench.disk, &mut prng, 10);
    }
}

#[test]
fn what_is_asked_outside_the_disk_is_refused_and_nothing_is_nothing() {
    let bench = Bench::new(sample::disk(&mut Prng::new(6), 9, 4096));
    bench.build("cold.hsi", &fast_build(8192, 1));
    let image = open(&bench.path("cold.hsi"));
    let disk = disk(&image, 1, 1 << 20);
    let end = bench.disk.len() as u64;
    assert!(disk.read_at(end, &mut []).is_ok());
    for (offset, len) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX - 4095, 4096), (end + 4096, 0)] {
        let refused = disk.read_at(offset, &mut vec![0; len]);
        assert!(
            matches!(refused, Err(ImageError::OutsideDisk { disk_bytes, .. }) if disk_bytes == end),
            "{offset}+{len}"
        );
    }
}

#[test]
fn a_disk_that_is_closed_answers_every_read_with_that() {
    let bench = sample_with_hot(&mut Prng::new(7));
    let disk = disk(&open(&bench.path("hot.hsi")), 1, 1 << 20);
    disk.read_at(0, &mut [0; 4096]).expect("read");
    disk.close();
    for offset in [0, 4096 * 300] {
        let error = answered(&ask(&disk, offset, 4096)).expect_err("it is closed");
        assert!(matches!(error, ImageError::Closed), "{error}");
    }
    assert_eq!(disk.stats().failed_requests, 0, "nothing went wrong");
    disk.close();
}

struct Watched(Mutex<Vec<DemandEvent>>);

impl Watch for Watched {
    fn demand(&self, event: &DemandEvent) {
        self.0.lock().push(*event);
    }
}

#[test]
fn the_watch_sees_every_read_once_and_whether_it_waited() {
    let mut content = vec![0; 4 * 8192];
    Prng::new(8).fill(&mut content[8192..16_384]);
    let bench = Bench::new(content);
    bench.build("cold.hsi", &fast_build(8192, 1));
    let image = open(&bench.path("cold.hsi"));
    let seen = Arc::new(Watched(Mutex::default()));
    let options = DiskOptions { read: reads(1, 1 << 20), ..DiskOptions::default() };
    let disk = ServedDisk::of_image(image, &options, Some(seen.clone())).expect("a disk");
    for (number, offset) in [8192, 8192, 12_288].into_iter().enumerate() {
        disk.read_at(offset, &mut [0; 4096]).expect("read");
        // A read is answered a moment before it is seen.
        while seen.0.lock().len() <= number {
            std::thread::yield_now();
        }
    }
    drop(disk);
    let events: Vec<_> = seen.0.lock().iter().map(|event| (event.range.offset, event.waited)).collect();
    assert_eq!(events, [(8192, true), (8192, false), (12_288, false)]);
}

/// Pages of the index share the chunks' cache: an index of 96 leaves that is read in any order takes no more
/// than that.
#[test]
fn the_index_in_memory_stays_bounded() {
    // One block of data in each window of 8 KiB, so that every window has a chunk of its own: with
    // 512 windows a leaf, 96 leaves.
    let windows = 96 * 512;
    let mut content = vec![0; windows * 8192];
    for (number, window) in content.chunks_mut(8192).enumerate() {
        window[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    }
    let bench = Bench::new(content);
    bench.build("cold.hsi", &fast_build(8192, 2));
    let image = open(&bench.path("cold.hsi"));
    assert_eq!(image.superblock().leaf_count(), 96);
    let superblock = image.superblock();
    let index_bytes = superblock.cold.range.len - superblock.cold.leaves_offset;
    let run: Vec<BlockRange> =
        (0..2000).map(|i| BlockRange::new(Lba(i * 37 % (windows as u64 * 2)), 1)).collect();
    bench.optimize("cold.hsi", "hot.hsi", &[profile(&image, &bench.disk, &run)]);
    let cache_bytes = 300_000;
    assert!(index_bytes > 4 * cache_bytes, "{index_bytes} bytes of index");
    let disk = disk(&open(&bench.path("hot.hsi")), 2, cache_bytes);
    let mut prng = Prng::new(9);
    for _ in 0..3000 {
        let offset = prng.below(windows as u64) * 8192;
        let mut found = [0; 8];
        disk.read_at(offset, &mut found).expect("read");
        assert_eq!(u64::from_le_bytes(found), offset / 8192 + 1);
        let usage = disk.cache_usage();
        assert!(usage.bytes <= cache_bytes, "{usage:?}");
    }
    assert!(disk.cache_usage().evicted > 0);
}
