//! Reads that wait for the prefetch.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

use crossbeam_channel::Receiver;
use hs_disk::{Deliver, DiskOptions, ServedDisk, UseVisibility};
use hs_engine::queue::Class;
use hs_engine::{LateRule, PrefetchConfig};
use hs_image::{Image, ImageError};
use hs_store::{Count, Fault, FaultKind, FileStore, Rule};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Prng};
use parking_lot::Mutex;

use crate::errors_log;
use crate::reading::sample_with_hot;
use crate::sample::{Bench, open};
use crate::served::{
    Answer, EVERYTHING, Held, answered, ask, begin, check_random_reads, check_read, disk_with,
    open_streaming, reads, streaming,
};

fn file(bench: &Bench) -> FileStore {
    FileStore::open(bench.path("hot.hsi")).expect("opened")
}

fn ask_extent(disk: &ServedDisk, extent: BlockRange) -> Receiver<Answer> {
    ask(disk, extent.start.byte_offset(), extent.bytes())
}

fn check(bench: &Bench, extent: BlockRange, answer: &Receiver<Answer>) {
    let found = answered(answer).expect("the bytes");
    assert!(found == bench.disk[extent.start.byte_offset() as usize..][..extent.bytes() as usize]);
}

/// Hot chunks, from one to another.
fn chunks_of(image: &Image, chunks: Range<u32>) -> ByteRange {
    let (first, last) = (image.hot_chunk(chunks.start).1, image.hot_chunk(chunks.end - 1).1);
    ByteRange::new(first.offset, last.end() - first.offset)
}

/// Takes every chunk.
struct Kernel;

impl Deliver for Kernel {
    fn visibility(&self) -> UseVisibility {
        UseVisibility::Asked
    }
    fn comes_before_answers(&self) -> bool {
        false
    }
    fn deliver(&self, _extents: &[BlockRange], _raw: &[u8], _left_out: &[Range<u32>]) -> bool {
        true
    }
}

#[test]
fn a_reader_that_joined_is_served_by_the_stream_and_by_nothing_else() {
    let bench = sample_with_hot(&mut Prng::new(3));
    let whole = open(&bench.path("hot.hsi"));
    let held = Held::new(file(&bench));
    let count = Count::new(held.clone());
    let counters = count.counters();
    held.hold(chunks_of(&whole, 0..whole.hot_chunk_count()));
    let mut options = streaming(reads(2, 1 << 20), 1 << 20);
    options.read.readers_keep = true;
    let disk = ServedDisk::open(Arc::new(count), &options, None).expect("an image");
    begin(&disk, Some(Arc::new(Kernel)));
    let extent = whole.hot_extents(0)[0];
    let before = counters.snapshot().requests;
    let answer = ask_extent(&disk, extent);
    assert!(answer.try_recv().is_err() && disk.waiting().reads == 1, "it waits for the stream");
    held.go_on();
    check(&bench, extent, &answer);
    disk.wait_prefetch();
    assert_eq!(disk.stats().late_bytes, extent.bytes());
    assert_eq!(counters.snapshot().requests, before, "nothing was read for it");
    // The kernel has taken it, and dropped it: it is asked for again, and the medium is not.
    check_read(&disk, &bench.disk, extent.start.byte_offset(), extent.bytes());
    assert_eq!(counters.snapshot().requests, before, "kept as it is stored");
}

/// A kernel that looks at what it is given of the first chunk.
struct Attentive {
    disk: OnceLock<Weak<ServedDisk>>,
    content: Vec<u8>,
    blocks: Vec<Lba>,
    answer: Mutex<Option<Receiver<Answer>>>,
    given: AtomicU64,
}

impl Deliver for Attentive {
    fn visibility(&self) -> UseVisibility {
        UseVisibility::Asked
    }
    fn comes_before_answers(&self) -> bool {
        true
    }
    fn deliver(&self, extents: &[BlockRange], raw: &[u8], left_out: &[Range<u32>]) -> bool {
        let (first, number) = (self.blocks[0], self.blocks.len() as u32 - 1);
        if extents[0].start != first {
            return false;
        }
        assert_eq!(left_out, std::slice::from_ref(&(number..number + 1)));
        let is_answered = self.answer.lock().as_ref().is_none_or(|answer| !answer.is_empty());
        assert!(!is_answered, "it is not answered yet");
        let disk = self.disk.get().and_then(Weak::upgrade).expect("it is there");
        let other = answered(&ask(&disk, first.byte_offset(), BLOCK_BYTES)).expect("what comes now is");
        assert!(other == raw[..other.len()]);
        assert!(other == self.content[first.byte_offset() as usize..][..other.len()]);
        self.given.fetch_add(1, SeqCst);
        true
    }
}

/// A reader of a block would, answered first, ask for its neighbours, which are about to be pushed into the
/// kernel.
#[test]
fn a_waiting_reader_is_answered_after_what_no_reader_waits_for_was_given_away() {
    let bench = sample_with_hot(&mut Prng::new(3));
    let whole = open(&bench.path("hot.hsi"));
    let blocks: Vec<Lba> = whole.hot_extents(0).iter().flat_map(|extent| extent.blocks()).collect();
    let [.., last] = blocks[..] else { panic!("a chunk of several blocks") };
    let held = Held::new(file(&bench));
    held.hold(chunks_of(&whole, 0..whole.hot_chunk_count()));
    let disk = open_streaming(held.clone()).expect("an image");
    let answer = ask(&disk, last.byte_offset() + 512, 1024);
    let kernel = Arc::new(Attentive {
        disk: OnceLock::from(Arc::downgrade(&disk)),
        content: bench.disk.clone(),
        blocks,
        answer: Mutex::new(Some(answer.clone())),
        given: AtomicU64::new(0),
    });
    begin(&disk, Some(kernel.clone()));
    // The first chunk alone, so that no other one is delivered at the same time.
    held.hold(chunks_of(&whole, 1..whole.hot_chunk_count()));
    let found = answered(&answer).expect("the bytes");
    assert!(found == bench.disk[last.byte_offset() as usize + 512..][..1024]);
    assert_eq!(kernel.given.load(SeqCst), 1);
    held.go_on();
    disk.wait_prefetch();
}

/// Doubted prefetch waits until no miss is under way: one that in turn waits for the prefetch must be over
/// as soon as the medium has given what only the medium has.
#[test]
fn a_miss_is_over_when_the_rest_of_its_read_waits_for_the_stream() {
    let bench = sample_with_hot(&mut Prng::new(6));
    let image = open(&bench.path("hot.hsi"));
    // A hot extent, and the cold block behind it.
    let is_cold = |lba: Lba| image.hot_place(lba).is_none() && lba.byte_offset() < image.disk_bytes();
    let chunks = 0..image.hot_chunk_count();
    let extent = chunks
        .flat_map(|chunk| image.hot_extents(chunk).to_vec())
        .find(|extent| is_cold(extent.end()))
        .expect("a hot extent with a cold neighbour");
    let options = DiskOptions {
        read: reads(2, 1 << 20),
        prefetch: Some(PrefetchConfig { late: LateRule::Join, ..PrefetchConfig::default() }),
        ..DiskOptions::default()
    };
    let held = Held::new(file(&bench));
    let slow = Arc::new(Image::open(held.clone()).expect("an image"));
    let disk = ServedDisk::of_image(slow, &options, None).expect("a disk");
    held.hold(EVERYTHING);
    let answer = ask(&disk, extent.start.byte_offset(), extent.bytes() + BLOCK_BYTES);
    assert!(disk.is(|prefetch| prefetch.has_misses()), "one is under way");
    held.go_on();
    disk.wait_until(|prefetch| !prefetch.has_misses());
    assert!(answer.is_empty(), "it still waits for the stream");
    assert_eq!(disk.waiting().reads, 1);
    disk.stop_prefetch();
    assert!(answered(&answer).is_ok());
}

#[test]
fn readers_that_joined_a_stream_that_ends_fetch_for_themselves() {
    let mut prng = Prng::new(4);
    let bench = sample_with_hot(&mut prng);
    let image = open(&bench.path("hot.hsi"));
    let half = image.hot_chunk_count() / 2;
    assert!(half >= 3, "{half} chunks");
    let held = Held::new(file(&bench));
    // The stream gets no further than its beginning.
    held.hold(chunks_of(&image, 0..half));
    let prefetch =
        PrefetchConfig { first_request_bytes: 1, late: LateRule::Join, ..PrefetchConfig::default() };
    let options = DiskOptions { read: reads(6, 1 << 20), prefetch: Some(prefetch), ..DiskOptions::default() };
    let disk = ServedDisk::open(held.clone(), &options, None).expect("an image");
    begin(&disk, None);
    let extents: Vec<BlockRange> =
        (half..image.hot_chunk_count()).flat_map(|chunk| image.hot_extents(chunk).to_vec()).collect();
    let answers: Vec<_> = extents.iter().map(|extent| ask_extent(&disk, *extent)).collect();
    assert!(answers.iter().all(Receiver::is_empty), "they wait for the stream");
    assert_eq!(disk.waiting().reads, extents.len() as u64);
    let hot_requests = |disk: &ServedDisk| disk.queue_metrics().classes[Class::Demand as usize].requests;
    let before = hot_requests(&disk);
    disk.stop_prefetch();
    for (extent, answer) in extents.iter().zip(&answers) {
        check(&bench, *extent, answer);
    }
    assert!(hot_requests(&disk) > before);
    held.go_on();
    disk.wait_prefetch();
    // A later read does not wait for a stream that is over.
    check_random_reads(&disk, &bench.disk, &mut prng, 10);
}

#[test]
fn a_damaged_chunk_from_the_stream_is_refused_and_its_readers_get_the_cold_copies() {
    errors_log::collect();
    let bench = sample_with_hot(&mut Prng::new(5));
    let image = open(&bench.path("hot.hsi"));
    let hot = image.hot_chunk(0).1;
    let flip = Rule::new(FaultKind::Flip, ByteRange::new(hot.offset, 1));
    let held = Held::new(Fault::new(file(&bench), vec![flip], 1));
    held.hold(hot);
    let disk = open_streaming(held.clone()).expect("an image");
    begin(&disk, None);
    let extent = image.hot_extents(0)[0];
    let answer = ask(&disk, extent.start.byte_offset(), 4096);
    assert!(answer.is_empty());
    held.go_on();
    let found = answered(&answer).expect("the cold copy");
    assert!(found == bench.disk[extent.start.byte_offset() as usize..][..4096]);
    disk.wait_prefetch();
    assert_eq!(disk.stats().chunk_errors, 1);
    assert_eq!(disk.arrivals()[0], None, "it is refused");
    assert!(disk.arrivals()[1..].iter().all(Option::is_some));
    let lines = errors_log::take(&bench.path("hot.hsi").display().to_string());
    let told = |line: &&String| line.contains("the blocks of hot chunk 0 are read elsewhere");
    assert_eq!(lines.iter().filter(told).count(), 1, "{lines:?}");
}

#[test]
fn reads_that_wait_when_the_disk_is_dropped_are_answered() {
    let bench = sample_with_hot(&mut Prng::new(7));
    let image = open(&bench.path("hot.hsi"));
    let at = image.hot_extents(0)[0].start.byte_offset();
    // For a prefetch that never begins.
    let options = DiskOptions {
        prefetch: Some(PrefetchConfig { late: LateRule::Join, ..PrefetchConfig::default() }),
        ..DiskOptions::default()
    };
    let disk = ServedDisk::of_image(Arc::clone(&image), &options, None).expect("a disk");
    let answer = ask(&disk, at, 1);
    assert!(answer.is_empty());
    drop(disk);
    assert!(matches!(answered(&answer), Err(ImageError::Closed)));
    // For one whose opening request is not over, and for a medium that does not answer.
    for streams in [true, false] {
        let held = Held::new(file(&bench));
        let disk = if streams {
            held.hold(chunks_of(&image, 0..image.hot_chunk_count()));
            open_streaming(held.clone()).expect("an image")
        } else {
            let image = Arc::new(Image::open(held.clone()).expect("an image"));
            held.hold(EVERYTHING);
            disk_with(&image, reads(1, 1 << 20))
        };
        if streams {
            begin(&disk, None);
        }
        let answer = ask(&disk, at, 1);
        let ending = std::thread::spawn(move || drop(disk));
        assert!(matches!(answered(&answer), Err(ImageError::Closed)));
        held.go_on();
        ending.join().expect("it ends");
    }
}
