//! A prefetch, and readers in its way, on media whose sectors fail wherever they like.

#[path = "../../hs-build/tests/image/sample.rs"]
mod sample;
mod served;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hs_build::{HotPlacement, OptimizeOptions};
use hs_disk::{Deliver, DiskOptions, ServedDisk, UseVisibility};
use hs_engine::{EndReason, PrefetchConfig};
use hs_format::WindowRef;
use hs_image::{Image, ImageError};
use hs_layout::Placement;
use hs_store::{Fault, FaultKind, MemoryStore, Retry, Rule, Sink, Store, StoreError};
use hs_units::{BlockRange, ByteRange, Lba, Prng};
use proptest::prelude::*;

use sample::{BLOCK, Bench, fast_build, hot_options, open, profile};
use served::{PATIENCE, ask, begin, reads};

const WINDOW_BYTES: u64 = 16_384;
const BLOCKS: u64 = 900;

/// A disk whose blocks repeat a little, and two thirds of which are hot, in an order of their own.
fn bench(placement: Placement) -> &'static Bench {
    static BENCHES: [OnceLock<Bench>; 2] = [OnceLock::new(), OnceLock::new()];
    BENCHES[usize::from(placement == Placement::End)].get_or_init(|| {
        let mut prng = Prng::new(77);
        let bench = Bench::new(sample::disk(&mut prng, BLOCKS, WINDOW_BYTES));
        bench.build("cold", &fast_build(WINDOW_BYTES, 2));
        let reads: Vec<BlockRange> =
            (0..BLOCKS / 3).map(|number| BlockRange::new(Lba(number * 7 % (BLOCKS / 3) * 3), 2)).collect();
        let start = profile(&open(&bench.path("cold")), &bench.disk, &reads);
        let options = OptimizeOptions { place: HotPlacement::At(placement), ..hot_options(2) };
        bench.optimize_with("cold", "hot", &[start], &options).expect("optimized");
        bench
    })
}

/// Served as `mount` does, but for the kernel.
struct Serving {
    disk: Arc<ServedDisk>,
}

impl Serving {
    fn start(store: Arc<dyn Store>, budget_bytes: u64) -> Self {
        Self::deliver(store, budget_bytes, None)
    }

    fn deliver(store: Arc<dyn Store>, budget_bytes: u64, deliver: Option<Arc<dyn Deliver>>) -> Self {
        let prefetch =
            PrefetchConfig { budget_bytes, first_request_bytes: 60_000, ..PrefetchConfig::default() };
        let options =
            DiskOptions { read: reads(2, 300_000), prefetch: Some(prefetch), ..DiskOptions::default() };
        let disk = ServedDisk::open(store, &options, None).expect("an image");
        begin(&disk, deliver);
        Self { disk }
    }

    /// The bytes, or nothing when there was an error. An answer must come.
    fn read(&self, range: ByteRange) -> Option<Vec<u8>> {
        let answer = ask(&self.disk, range.offset, range.len).recv_timeout(PATIENCE);
        answer.unwrap_or_else(|error| panic!("no answer for {range}: {error}")).ok()
    }

    /// The bytes of a block that can be read, though perhaps not at the first time; nothing of one that never
    /// can.
    fn read_in_the_end(&self, block: ByteRange) -> Option<Vec<u8>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.read(block);
            if found.is_some() || Instant::now() > end {
                return found;
            }
            std::thread::yield_now();
        }
    }
}

/// Whether none of these places has a byte of `range`.
fn is_free(range: ByteRange, places: &[ByteRange]) -> bool {
    places.iter().all(|place| place.end() <= range.offset || range.end() <= place.offset)
}

/// Which bytes of the file can be read, and so which blocks of the disk.
struct Readable<'a> {
    image: &'a Image,
    /// What can never be read.
    bad: Vec<ByteRange>,
    /// What was served goes without a hot region.
    without_hot: bool,
}

impl Readable<'_> {
    fn is_whole(&self, range: ByteRange) -> bool {
        is_free(range, &self.bad)
    }

    fn block(&self, lba: Lba) -> bool {
        let superblock = self.image.superblock();
        let tables = &superblock.hot[0];
        let hot = self.image.hot_place(lba).is_some_and(|place| {
            !self.without_hot
                && self.is_whole(tables.index)
                && self.is_whole(tables.hints)
                && self.is_whole(self.image.hot_chunk(place.chunk).1)
        });
        let cold = &superblock.cold;
        hot || (self.is_whole(cold.in_file(cold.leaf_space()))
            && self.is_whole(cold.in_file(cold.root))
            && match self.image.window(lba.byte_offset() / WINDOW_BYTES) {
                Ok(WindowRef::Chunk(chunk)) => self.is_whole(self.image.cold_range(&chunk)),
                Ok(WindowRef::Zero) => true,
                Err(error) => panic!("the image itself is whole: {error}"),
            })
    }
}

/// Places of the file: where, how much, and how often a request fails there; 4 means always.
fn places() -> impl Strategy<Value = Vec<(f64, u64, u64)>> {
    let len = prop_oneof![1..5_000_u64, 1..200_000_u64];
    proptest::collection::vec((0.0..1.0, len, 1..=4_u64), 0..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Wherever sectors fail: each read gives the right bytes or an error, and is answered; and a block can
    /// be read when one of its chunks can, and else not.
    #[test]
    fn a_block_is_readable_when_one_of_its_chunks_is(
        places in places(), flips in proptest::collection::vec(0.0..1.0, 0..3), seed: u64, tight: bool, at_end: bool,
    ) {
        let bench = bench(if at_end { Placement::End } else { Placement::Front });
        let whole = open(&bench.path("hot"));
        let bytes = bench.bytes("hot");
        let at = |share: &f64| (bytes.len() as f64 * share) as u64;
        let places: Vec<_> = places.iter()
            .map(|(share, len, times)| (ByteRange::new(at(share), (*len).min(bytes.len() as u64 - at(share))), *times))
            .collect();
        let flips: Vec<ByteRange> = flips.iter().map(|share| ByteRange::new(at(share), 1)).collect();
        let mut rules: Vec<Rule> = places.iter().map(|(range, times)| match times {
            4 => Rule::new(FaultKind::Io, *range),
            times => Rule::new(FaultKind::Io, *range).times(*times),
        }).collect();
        rules.extend(flips.iter().map(|range| Rule::new(FaultKind::Flip, *range)));
        // Answers out of order.
        let slow = FaultKind::Delay(Duration::from_micros(400));
        rules.push(Rule::new(slow, ByteRange::new(0, u64::MAX)).one_in(150));
        let all: Vec<ByteRange> = places.iter().map(|(range, _)| *range).chain(flips.iter().copied()).collect();
        let bad = places.iter().filter(|(_, times)| *times == 4).map(|(range, _)| *range).chain(flips).collect();
        let superblock = whole.superblock();
        prop_assume!(is_free(ByteRange::new(0, 4096), &all) || is_free(superblock.mirror(), &all));

        let store = Arc::new(Retry::new(Fault::new(MemoryStore::new(bytes), rules, seed)));
        let serving = Serving::start(store, if tight { 100_000 } else { 64 << 20 });
        // Several faults in one place may outlast all tries for the tables.
        let without_hot = serving.disk.image().hot_fault().is_some();
        let tables = ByteRange::new(superblock.hot[0].index.offset, superblock.hot[0].range().len);
        prop_assert!(!without_hot || !is_free(tables, &all));
        let readable = Readable { image: &whole, bad, without_hot };
        std::thread::scope(|scope| for number in 0..3 {
            let (serving, mut prng) = (&serving, Prng::new(seed ^ number));
            scope.spawn(move || for _ in 0..40 {
                let offset = prng.below(BLOCKS * BLOCK as u64);
                let len = 1 + prng.below((BLOCKS * BLOCK as u64 - offset).min(50_000));
                if let Some(found) = serving.read(ByteRange::new(offset, len)) {
                    assert!(found == bench.disk[offset as usize..][..len as usize], "{offset}+{len} is wrong");
                }
            });
        });
        for lba in (0..BLOCKS).map(Lba) {
            let block = ByteRange::new(lba.byte_offset(), BLOCK as u64);
            if readable.block(lba) {
                // Of a medium that seems to be gone each place gets one try a read.
                let found = serving.read_in_the_end(block);
                prop_assert!(found.is_some(), "block {} can be read", lba);
                let expected = &bench.disk[block.offset as usize..][..BLOCK];
                prop_assert!(found.as_deref() == Some(expected), "block {} is wrong", lba);
            } else {
                prop_assert!(serving.read(block).is_none(), "block {} was not to be had", lba);
            }
        }
        // Nothing holds chunks any longer, so a tight budget is free and the prefetch comes to an end.
        (0..serving.disk.image().hot_chunk_count()).for_each(|chunk| serving.disk.release(chunk));
        if !tight {
            serving.disk.wait_prefetch();
            prop_assert!(serving.disk.ended().is_some());
        }
    }
}

/// Every third hot chunk is unreadable: the others come by the stream, which goes on to its end.
#[test]
fn the_stream_goes_on_behind_what_it_cannot_read() {
    let bench = bench(Placement::Front);
    let whole = open(&bench.path("hot"));
    let bad: Vec<u32> = (0..whole.hot_chunk_count()).filter(|chunk| chunk % 3 == 1).collect();
    assert!(bad.len() > 5);
    let rules = bad.iter().map(|chunk| Rule::new(FaultKind::Io, whole.hot_chunk(*chunk).1)).collect();
    let store = Arc::new(Retry::new(Fault::new(MemoryStore::new(bench.bytes("hot")), rules, 0)));
    let serving = Serving::start(store, 64 << 20);
    serving.disk.wait_prefetch();
    assert_eq!(serving.disk.ended(), Some(EndReason::Complete));
    let missing: Vec<u32> =
        (0..).zip(serving.disk.arrivals()).filter_map(|(chunk, at)| at.is_none().then_some(chunk)).collect();
    assert_eq!(missing, bad);
    for (lba, expected) in bench.disk.chunks(BLOCK).enumerate() {
        let found = serving.read(ByteRange::new((lba * BLOCK) as u64, BLOCK as u64)).expect("read");
        assert!(found == expected, "block {lba}");
    }
}

/// The medium is gone after the image was opened: the prefetch ends soon, and reads that wait for it fail.
#[test]
fn a_medium_that_is_gone_ends_the_prefetch_and_leaves_no_reader_waiting() {
    let bench = bench(Placement::Front);
    let whole = open(&bench.path("hot"));
    let first = whole.hot_chunk(2).1.offset;
    let gone = Rule::new(FaultKind::Io, ByteRange::new(first, u64::MAX));
    // Slow enough that readers join the stream before it fails.
    let slow = Rule::new(FaultKind::Delay(Duration::from_millis(2)), ByteRange::new(first, u64::MAX));
    for _ in 0..10 {
        let fault = Arc::new(Fault::new(MemoryStore::new(bench.bytes("hot")), vec![slow, gone], 0));
        let serving = Serving::start(Arc::new(Retry::new(Arc::clone(&fault))), 64 << 20);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let serving = &serving;
                scope.spawn(move || {
                    for lba in (number..BLOCKS).step_by(8) {
                        let block = ByteRange::new(lba * BLOCK as u64, BLOCK as u64);
                        if let Some(found) = serving.read(block) {
                            assert!(found == bench.disk[block.offset as usize..][..BLOCK]);
                        }
                    }
                });
            }
        });
        serving.disk.wait_prefetch();
        assert_eq!(serving.disk.ended(), Some(EndReason::Failed));
        // The medium is back, and so is every block; only a read that joins an earlier request, perhaps one
        // of read-ahead, may still fail.
        fault.bypass(true);
        for (lba, expected) in bench.disk.chunks(BLOCK).enumerate() {
            let block = ByteRange::new((lba * BLOCK) as u64, BLOCK as u64);
            let found = serving.read_in_the_end(block).expect("there again");
            assert!(found == expected, "block {lba}");
        }
    }
}

/// A medium whose first streams panic after some bytes.
struct Panicking {
    inner: Arc<MemoryStore>,
    left: AtomicU64,
}

impl Store for Panicking {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        self.inner.read_at(offset, buf)
    }
    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let panics =
            range.offset > 0 && self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        self.inner.stream(range, sink)?;
        assert!(!panics, "a mistake, on purpose");
        Ok(())
    }
}

/// Takes blocks into a kernel that is none, and panics each other time.
#[derive(Default)]
struct Clumsy(AtomicU64);

impl Deliver for Clumsy {
    fn visibility(&self) -> UseVisibility {
        UseVisibility::Asked
    }
    fn comes_before_answers(&self) -> bool {
        true
    }
    fn deliver(&self, _extents: &[BlockRange], _raw: &[u8], _left_out: &[std::ops::Range<u32>]) -> bool {
        assert!(self.0.fetch_add(1, Relaxed) % 2 == 1, "a mistake, on purpose");
        false
    }
}

/// Reads that wait for what the failed thread was to bring get it from elsewhere, or an error; none waits
/// without a limit.
#[test]
fn a_panic_in_a_thread_of_the_prefetch_costs_no_reader_an_answer() {
    let bench = bench(Placement::Front);
    for (panics, deliver) in [(2, None), (0, Some(Arc::new(Clumsy::default()) as Arc<dyn Deliver>))] {
        let inner = Arc::new(MemoryStore::new(bench.bytes("hot")));
        let store = Arc::new(Panicking { inner, left: AtomicU64::new(panics) });
        let serving = Serving::deliver(store, 10 << 20, deliver);
        let answers: Vec<_> =
            (0..BLOCKS).map(|block| ask(&serving.disk, block * BLOCK as u64, BLOCK as u64)).collect();
        for (block, answer) in answers.into_iter().enumerate() {
            match answer.recv_timeout(PATIENCE).expect("an answer of any kind") {
                Ok(bytes) => assert!(bytes == bench.disk[block * BLOCK..][..BLOCK], "block {block}"),
                Err(error) => assert!(matches!(error, ImageError::Panicked { .. }), "{error}"),
            }
        }
    }
}
