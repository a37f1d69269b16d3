use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hs_format::Decompressor;
use hs_store::{Fault, FaultKind, FileStore, Rule};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Nanos, Prng};
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::{
    DemandEvent, HeadMessage, HotPolicy, Image, ImageError, Reader, ReaderOptions, StreamEvent, Watch,
};

mod keeping;
mod marking;
mod patience;
mod sharing;
mod waiting;

// One file of samples serves these tests and those of the folder `tests`.
#[path = "../../tests/image/sample.rs"]
mod sample;

use sample::{
    Bench, JoinAll, check_random_reads, disk, fast_build, open, profile, random_profile, reader, reader_with,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the disk, the windows, the profile and the reads: the bytes are those of the disk.
    #[test]
    fn reads_equal_the_disk(seed: u64, blocks in 1_u64..700, window_log in 12_u32..21, cache_log in 0_u32..24) {
        let mut prng = Prng::new(seed);
        let window_bytes = 1 << window_log;
        let bench = Bench::new(disk(&mut prng, blocks, window_bytes));
        bench.build("cold.hsi", &fast_build(window_bytes, 2));
        let image = open(&bench.path("cold.hsi"));
        check_random_reads(&reader(&image, 2, 1 << cache_log), &bench.disk, &mut prng, 40);

        let profiles: Vec<_> =
            (0..1 + prng.below(3)).map(|_| random_profile(&mut prng, &image, &bench.disk)).collect();
        bench.optimize("cold.hsi", "hot.hsi", &profiles);
        let image = open(&bench.path("hot.hsi"));
        prop_assert!(image.hot_chunk_count() > 0);
        check_random_reads(&reader(&image, 2, 1 << cache_log), &bench.disk, &mut prng, 40);
        let verified = crate::verify(&image, Some((&bench.source(), "disk.raw")), &|_| {});
        prop_assert_eq!(verified.map_err(|error| error.to_string()).map(|report| report.hot_chunks), Ok(image.hot_chunk_count()));
    }

    /// Many readers at once, a medium that answers out of order, and a stream that half of them join.
    #[test]
    fn concurrent_reads_during_a_stream_equal_the_disk(seed: u64, cache_log in 10_u32..22) {
        let mut prng = Prng::new(seed);
        let bench = sample_with_hot(&mut prng);
        let rules = [(300, 3), (3000, 11)]
            .map(|(micros, one_in)| Rule::new(FaultKind::Delay(Duration::from_micros(micros)), EVERYTHING).one_in(one_in));
        let store = Fault::new(FileStore::open(bench.path("hot.hsi")).expect("opened"), rules.to_vec(), seed);
        let (image, head) = Image::open_streaming(Arc::new(store), 1 + prng.below(300_000), &hs_image::OpenOptions::default()).expect("an image");
        let image = Arc::new(image);
        let policy = Arc::new(Books::default());
        let reader = Arc::new(reader_with(&image, 4, 1 << cache_log, policy.clone()));
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (reader, bench) = (&reader, &bench);
                let mut prng = Prng::new(seed ^ number);
                scope.spawn(move || check_random_reads(reader, &bench.disk, &mut prng, 25));
            }
            let mut tools = Decompressor::new();
            let next = head.chunks;
            for message in &head.messages {
                match message {
                    HeadMessage::Chunk(chunk, stored) => {
                        reader.supply_hot(chunk, stored, &mut tools, || {}).expect("the chunk is whole");
                    }
                    HeadMessage::Finished(outcome) => {
                        outcome.expect("the stream succeeds");
                        break;
                    }
                }
            }
            if prng.below(2) == 0 {
                let sink = &mut |event: StreamEvent<'_>| {
                    if let StreamEvent::Chunk(chunk, stored) = event {
                        reader.supply_hot(chunk, stored.into_owned().into(), &mut tools, || {}).expect("the chunk is whole");
                    }
                    std::ops::ControlFlow::Continue(())
                };
                image.stream_hot(next..image.hot_chunk_count(), sink).expect("the stream succeeds");
            }
            reader.stream_ended();
        });
        // Every held chunk was arrived once before it was released, and is released in the end.
        (0..image.hot_chunk_count()).for_each(|chunk| reader.release_hot(chunk));
        prop_assert_eq!(reader.stats().unserved_prefetch_bytes, 0);
        prop_assert!(policy.held.lock().is_empty());
        prop_assert_eq!(policy.misses.load(Ordering::SeqCst), policy.answered.load(Ordering::SeqCst));
        check_random_reads(&reader, &bench.disk, &mut prng, 10);
    }
}

const EVERYTHING: ByteRange = ByteRange::new(0, u64::MAX);

/// A disk of 2.4 MB in windows of 64 KiB, with a hot region made from two random profiles.
fn sample_with_hot(prng: &mut Prng) -> Bench {
    let bench = Bench::new(disk(prng, 600, 65_536));
    bench.build("cold.hsi", &fast_build(65_536, 2));
    let image = open(&bench.path("cold.hsi"));
    let profiles = [0, 1].map(|_| random_profile(prng, &image, &bench.disk));
    bench.optimize("cold.hsi", "hot.hsi", &profiles);
    bench
}

/// Joins every other chunk, and counts its calls.
#[derive(Default)]
struct Books {
    held: Mutex<HashSet<u32>>,
    misses: AtomicU64,
    answered: AtomicU64,
    dropped: Mutex<Vec<u32>>,
    resident: Mutex<Vec<u32>>,
}

impl HotPolicy for Books {
    fn join(&self, chunk: u32) -> bool {
        chunk.is_multiple_of(2)
    }
    fn miss(&self) {
        self.misses.fetch_add(1, Ordering::SeqCst);
    }
    fn miss_answered(&self) {
        self.answered.fetch_add(1, Ordering::SeqCst);
    }
    fn arrived(&self, chunk: u32) {
        assert!(self.held.lock().insert(chunk), "chunk {chunk} came twice");
    }
    fn released(&self, chunk: u32) {
        assert!(self.held.lock().remove(&chunk), "chunk {chunk} left before it came");
    }
    fn resident(&self, chunk: u32) {
        self.resident.lock().push(chunk);
    }
    fn dropped(&self, chunk: u32) {
        self.dropped.lock().push(chunk);
    }
}

#[test]
fn a_reader_that_joined_is_served_by_the_stream_and_by_nothing_else() {
    let mut prng = Prng::new(3);
    let bench = sample_with_hot(&mut prng);
    let count = hs_store::Count::new(FileStore::open(bench.path("hot.hsi")).expect("opened"));
    let counters = count.counters();
    let image = Arc::new(Image::open(Arc::new(count)).expect("an image"));
    let reader = reader_with(&image, 2, 1 << 20, Arc::new(JoinAll));
    let extent = image.hot_extents(0)[0];
    let (sender, receiver) = crossbeam_channel::bounded(1);
    let before = counters.snapshot().requests;
    reader.submit(extent.start.byte_offset(), extent.bytes() as u32, move |result| {
        let _ = sender.send(result.map(<[&[u8]]>::concat).map_err(Clone::clone));
    });
    assert!(receiver.try_recv().is_err(), "it waits for the stream");
    let (_, at) = image.hot_chunk(0);
    let stored = bench.bytes("hot.hsi")[at.offset as usize..at.end() as usize].to_vec();
    let gated = AtomicU64::new(0);
    let gate = || {
        gated.fetch_add(1, Ordering::SeqCst);
    };
    let supplied = reader.supply_hot(0, stored.into(), &mut Decompressor::new(), gate);
    assert!(supplied.is_ok_and(|bytes| bytes.is_some()));
    assert_eq!(gated.load(Ordering::SeqCst), 1);
    let found = receiver.recv().expect("answered").expect("the bytes");
    assert!(found == bench.disk[extent.start.byte_offset() as usize..][..found.len()]);
    assert_eq!(counters.snapshot().requests, before, "nothing was read for it");
    let late = reader.stats().late_bytes;
    assert_eq!(late, extent.bytes());
    // Pushed into the kernel, which dropped it: it is asked for again, and the medium is not.
    reader.forget_hot(0);
    let mut again = vec![0; found.len()];
    reader.read_at(extent.start.byte_offset(), &mut again).expect("read");
    assert!(again == found);
    assert_eq!(counters.snapshot().requests, before, "kept as it is stored");
}

/// A reader of a block would, answered first, ask for its neighbours, which are about to be pushed into the
/// kernel.
#[test]
fn who_waits_is_answered_after_what_nobody_waits_for_was_given_away() {
    let mut prng = Prng::new(3);
    let bench = sample_with_hot(&mut prng);
    let image = Arc::new(open(&bench.path("hot.hsi")));
    let reader = reader_with(&image, 2, 1 << 20, Arc::new(JoinAll));
    let blocks: Vec<Lba> =
        image.hot_extents(0).iter().flat_map(|extent| extent.start.0..extent.end().0).map(Lba).collect();
    let [first, .., last] = blocks[..] else { panic!("a chunk of several blocks") };
    let (sender, receiver) = crossbeam_channel::bounded(1);
    reader.submit(last.byte_offset() + 512, 1024, move |result| {
        let _ = sender.send(result.map(<[&[u8]]>::concat).map_err(Clone::clone));
    });
    let (_, at) = image.hot_chunk(0);
    let stored = bench.bytes("hot.hsi")[at.offset as usize..at.end() as usize].to_vec();
    let given_away = AtomicU64::new(0);
    let give_away = |raw: &Arc<Vec<u8>>, waited_for: Vec<std::ops::Range<u32>>| {
        let number = blocks.len() as u32 - 1;
        assert_eq!(waited_for, vec![number..number + 1]);
        assert!(receiver.try_recv().is_err(), "it is not answered yet");
        let mut other = vec![0; BLOCK_BYTES as usize];
        reader.read_at(first.byte_offset(), &mut other).expect("who asks now is");
        assert!(other == raw[..other.len()]);
        reader.forget_hot(0);
        given_away.fetch_add(1, Ordering::SeqCst);
    };
    let supplied = reader.supply_hot_after(0, stored.into(), &mut Decompressor::new(), || {}, give_away);
    assert!(supplied.is_ok_and(|bytes| bytes.is_some()));
    assert_eq!(given_away.load(Ordering::SeqCst), 1);
    let found = receiver.recv().expect("answered").expect("the bytes");
    assert!(found == bench.disk[last.byte_offset() as usize + 512..][..1024]);
}

/// Doubted prefetch waits until no miss is under way: one that in turn waits for the prefetch must be over
/// as soon as the medium has given what only the medium has.
#[test]
fn a_miss_is_over_when_the_rest_of_its_read_waits_for_the_stream() {
    let mut prng = Prng::new(6);
    let bench = sample_with_hot(&mut prng);
    let image = open(&bench.path("hot.hsi"));
    let policy = Arc::new(Books::default());
    let reader = reader_with(&image, 2, 1 << 20, policy.clone());
    // A hot extent of a chunk that is joined, and the cold block behind it.
    let is_cold = |lba: Lba| image.hot_place(lba).is_none() && lba.byte_offset() < image.disk_bytes();
    let end = |extent: &BlockRange| Lba(extent.start.0 + extent.count);
    let extent = (0..image.hot_chunk_count())
        .step_by(2)
        .flat_map(|chunk| image.hot_extents(chunk).to_vec())
        .find(|extent| is_cold(end(extent)))
        .expect("a hot extent with a cold neighbour");
    let (sender, receiver) = crossbeam_channel::bounded(1);
    reader.submit(extent.start.byte_offset(), (extent.bytes() + BLOCK_BYTES) as u32, move |result| {
        let _ = sender.send(result.is_ok());
    });
    while policy.answered.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(policy.misses.load(Ordering::SeqCst), 1);
    assert!(receiver.try_recv().is_err(), "it still waits for the stream");
    reader.stream_ended();
    assert!(receiver.recv().expect("answered"));
    assert_eq!(policy.answered.load(Ordering::SeqCst), 1);
}

#[test]
fn readers_that_joined_a_stream_that_ends_fetch_for_themselves() {
    let mut prng = Prng::new(4);
    let bench = sample_with_hot(&mut prng);
    let image = open(&bench.path("hot.hsi"));
    let reader = Arc::new(reader_with(&image, 2, 1 << 20, Arc::new(JoinAll)));
    let (sender, receiver) = crossbeam_channel::unbounded();
    let extents: Vec<BlockRange> =
        (0..image.hot_chunk_count()).flat_map(|chunk| image.hot_extents(chunk).to_vec()).collect();
    for extent in &extents {
        let (sender, extent) = (sender.clone(), *extent);
        reader.submit(extent.start.byte_offset(), extent.bytes() as u32, move |result| {
            let _ = sender.send((extent, result.map(<[&[u8]]>::concat).map_err(Clone::clone)));
        });
    }
    assert!(receiver.is_empty());
    reader.stream_ended();
    for _ in &extents {
        let (extent, found) = receiver.recv().expect("answered");
        assert!(
            found.expect("the bytes")
                == bench.disk[extent.start.byte_offset() as usize..][..extent.bytes() as usize]
        );
    }
    // A later read does not wait for a stream that is over.
    check_random_reads(&reader, &bench.disk, &mut prng, 10);
}

#[test]
fn a_damaged_chunk_from_the_stream_is_refused_and_its_readers_get_the_cold_copies() {
    let mut prng = Prng::new(5);
    let bench = sample_with_hot(&mut prng);
    let image = open(&bench.path("hot.hsi"));
    let reader = reader_with(&image, 2, 1 << 20, Arc::new(JoinAll));
    let extent = image.hot_extents(0)[0];
    let (sender, receiver) = crossbeam_channel::bounded(1);
    reader.submit(extent.start.byte_offset(), 4096, move |result| {
        let _ = sender.send(result.map(<[&[u8]]>::concat).map_err(Clone::clone));
    });
    let (_, at) = image.hot_chunk(0);
    let mut stored = bench.bytes("hot.hsi")[at.offset as usize..at.end() as usize].to_vec();
    stored[0] ^= 1;
    let supplied =
        reader.supply_hot(0, stored.into(), &mut Decompressor::new(), || unreachable!("not verified"));
    assert!(
        matches!(&supplied, Err(ImageError::Chunk { chunk, .. }) if chunk == "hot chunk 0"),
        "{supplied:?}"
    );
    let found = receiver.recv().expect("answered").expect("the cold copy");
    assert!(found == bench.disk[extent.start.byte_offset() as usize..][..4096]);
}

#[test]
fn what_is_asked_outside_the_disk_is_refused_and_nothing_is_nothing() {
    let bench = Bench::new(disk(&mut Prng::new(6), 9, 4096));
    bench.build("cold.hsi", &fast_build(8192, 1));
    let image = open(&bench.path("cold.hsi"));
    let reader = reader(&image, 1, 1 << 20);
    let end = bench.disk.len() as u64;
    assert!(reader.read_at(end, &mut []).is_ok());
    for (offset, len) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX - 4095, 4096), (end + 4096, 0)] {
        let refused = reader.read_at(offset, &mut vec![0; len]);
        assert!(
            matches!(refused, Err(ImageError::OutsideDisk { disk_bytes, .. }) if disk_bytes == end),
            "{offset}+{len}"
        );
    }
}

#[test]
fn reads_that_wait_when_the_reader_is_dropped_are_answered() {
    let bench = sample_with_hot(&mut Prng::new(7));
    let image = open(&bench.path("hot.hsi"));
    let reader = reader_with(&image, 1, 1 << 20, Arc::new(JoinAll));
    let (sender, receiver) = crossbeam_channel::bounded(1);
    reader.submit(image.hot_extents(0)[0].start.byte_offset(), 1, move |result| {
        let _ = sender.send(result.map(|_| ()).map_err(Clone::clone));
    });
    drop(reader);
    assert!(matches!(receiver.recv(), Ok(Err(ImageError::Closed))));
}

struct Seen(Mutex<Vec<DemandEvent>>);

impl Watch for Seen {
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
    let seen = Arc::new(Seen(Mutex::default()));
    let options = ReaderOptions { demand_threads: 1, ..ReaderOptions::default() };
    let reader =
        Reader::new(image, options, Arc::new(crate::NoStream), Some(seen.clone())).expect("a reader");
    for (number, offset) in [8192, 8192, 12_288].into_iter().enumerate() {
        reader.read_at(offset, &mut [0; 4096]).expect("read");
        // A read is answered a moment before it is seen.
        while seen.0.lock().len() <= number {
            std::thread::yield_now();
        }
    }
    drop(reader);
    let events: Vec<_> = seen.0.lock().iter().map(|event| (event.range.offset, event.waited)).collect();
    assert_eq!(events, [(8192, true), (8192, false), (12_288, false)]);
}

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
    assert_eq!(image.kept_index_bytes(), 0, "nothing of the cold index is read before it is needed");
    let reads: Vec<BlockRange> =
        (0..2000).map(|i| BlockRange::new(Lba(i * 37 % (windows as u64 * 2)), 1)).collect();
    bench.optimize("cold.hsi", "hot.hsi", &[profile(&image, &bench.disk, &reads)]);
    let image = open(&bench.path("hot.hsi"));
    let reader = reader(&image, 2, 1 << 20);
    let mut prng = Prng::new(9);
    let mut most = 0;
    for _ in 0..3000 {
        let offset = prng.below(windows as u64) * 8192;
        let mut found = [0; 8];
        reader.read_at(offset, &mut found).expect("read");
        assert_eq!(u64::from_le_bytes(found), offset / 8192 + 1);
        most = most.max(image.kept_index_bytes());
    }
    assert!(most > 0 && most <= crate::cold::KEPT_INDEX_BYTES, "{most} bytes of leaves");
}
