//! What stays in the cache, for readers that keep what they are given and for others.

use hs_engine::cache::PolicyKind;

use super::*;

const WINDOW: u64 = 65_536;

fn reader_for(image: &Arc<Image>, readers_keep: bool, policy: Arc<dyn HotPolicy>) -> Reader {
    let options =
        ReaderOptions { demand_threads: 1, readers_keep, read_ahead_bytes: 0, ..ReaderOptions::default() };
    Reader::new(Arc::clone(image), options, policy, None).expect("threads can be started")
}

fn read(reader: &Reader, disk: &[u8], offset: u64, len: u64) {
    let mut found = vec![0; len as usize];
    reader.read_at(offset, &mut found).expect("read");
    assert!(found == disk[offset as usize..][..len as usize]);
}

/// Bytes of chunks that were read; neighbours that came with them may wait beside them.
fn demanded_bytes(reader: &Reader) -> u64 {
    let usage = reader.cache_usage();
    usage.bytes - usage.prefetched_bytes
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
        let reader = reader_for(&image, readers_keep, Arc::new(crate::NoStream));
        read(&reader, &bench.disk, 0, WINDOW / 2);
        assert_eq!(demanded_bytes(&reader), WINDOW, "half of it may be asked for");
        assert_eq!(reader.handed_over_bytes(), if readers_keep { WINDOW / 2 } else { 0 });
        // Half a block is no block: it will be asked for again.
        read(&reader, &bench.disk, WINDOW / 2, WINDOW / 2 - 2048);
        assert_eq!(demanded_bytes(&reader), WINDOW);
        read(&reader, &bench.disk, WINDOW - 4096, 4096);
        assert_eq!(demanded_bytes(&reader), if readers_keep { 0 } else { WINDOW });
        assert_eq!((reader.cache_usage().hits, reader.handed_over_bytes()), (2, 0));
        // Dropped by the reader that was to keep it, it comes again.
        read(&reader, &bench.disk, 0, 2 * WINDOW);
        assert_eq!(demanded_bytes(&reader), if readers_keep { 0 } else { 2 * WINDOW });
    }
}

#[test]
fn a_hot_chunk_that_readers_have_is_not_brought_again_and_is_missed_when_they_drop_it() {
    let bench = sample_with_hot(&mut Prng::new(21));
    let image = open(&bench.path("hot.hsi"));
    let policy = Arc::new(Books::default());
    let reader = reader_for(&image, true, policy.clone());
    let read_chunk = || {
        for extent in image.hot_extents(1) {
            read(&reader, &bench.disk, extent.start.byte_offset(), extent.bytes());
        }
    };
    // Odd chunks do not join: it is fetched, and its readers have it.
    read_chunk();
    assert_eq!(*policy.resident.lock(), [1]);
    assert_eq!(reader.cache_usage().bytes, 0);
    let (_, at) = image.hot_chunk(1);
    let stored = bench.bytes("hot.hsi")[at.offset as usize..at.end() as usize].to_vec();
    let supplied =
        reader.supply_hot(1, stored.clone().into(), &mut Decompressor::new(), || unreachable!("not needed"));
    assert!(matches!(supplied, Ok(None)));
    assert!(policy.dropped.lock().is_empty());
    read_chunk();
    assert_eq!(*policy.dropped.lock(), [1], "once, however many reads it took");
    // A held one counts as handed over when the last of it is asked for.
    let (_, at) = image.hot_chunk(3);
    let stored = bench.bytes("hot.hsi")[at.offset as usize..at.end() as usize].to_vec();
    let supplied = reader.supply_hot(3, stored.clone().into(), &mut Decompressor::new(), || {});
    assert!(matches!(supplied, Ok(Some(_))));
    for extent in image.hot_extents(3) {
        read(&reader, &bench.disk, extent.start.byte_offset(), extent.bytes());
    }
    assert!(policy.held.lock().is_empty());
    assert_eq!(reader.cache_usage().bytes, at.len, "as it is stored, in case that the kernel drops it");
    assert_eq!(policy.dropped.lock().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever the policy, with a budget that changes all the time, the bytes are those of the disk and the
    /// cache stays within its budget.
    #[test]
    fn reads_equal_the_disk_whatever_is_kept(seed: u64, readers_keep: bool) {
        let mut prng = Prng::new(seed);
        let bench = sample_with_hot(&mut prng);
        let image = open(&bench.path("hot.hsi"));
        for cache_policy in PolicyKind::ALL {
            let options = ReaderOptions { demand_threads: 2, cache_policy, readers_keep, ..ReaderOptions::default() };
            let reader = Reader::new(Arc::clone(&image), options, Arc::new(crate::NoStream), None).expect("a reader");
            prop_assert_eq!(reader.cache_policy(), cache_policy);
            for _ in 0..6 {
                let size_log = prng.below(22);
                reader.set_cache_budget(prng.below(1 << size_log));
                check_random_reads(&reader, &bench.disk, &mut prng, 6);
                let usage = reader.cache_usage();
                prop_assert!(usage.bytes <= usage.budget_bytes, "{:?}", usage);
                prop_assert!(reader.handed_over_bytes() <= usage.bytes);
            }
            reader.set_cache_budget(0);
            prop_assert_eq!(reader.handed_over_bytes(), 0);
        }
    }
}
