//! The bytes of an image, changed, one at a time: all of what it says of itself, and a sample of its bodies,
//! of what is reserved, and of the mirror (`EVERY_BYTE=1` takes all).
//!
//! A read gets the right bytes or an error that says where; which of the two follows from what the byte is,
//! wherever the hot region lies. Bytes in front of the cold region are met by both ways of opening: with
//! single requests, and with one stream that goes on into the hot chunks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hs_build::OptimizeOptions;
use hs_disk::ServedDisk;
use hs_format::Superblock;
use hs_image::{Image, ImageError};
use hs_layout::Placement;
use hs_store::{Fault, FaultKind, MemoryStore, Rule, Store};
use hs_units::{BlockRange, ByteRange, Lba, Prng};

use crate::errors_log;
use crate::sample::{BLOCK, Bench, as_store, fast_build, hot_options, open, profile};
use crate::served::{begin, disk, open_streaming};

const NAME: &str = "every-byte.hsi";
const WINDOW_BYTES: u64 = 8192;

/// What a byte of the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FilePart {
    /// The version in the superblock: it says that the image is newer, not damaged.
    Version,
    Superblock,
    HotIndex,
    Hints,
    HotChunk,
    ColdChunk,
    /// The chunk of a window whose blocks are all hot: no reader asks for it.
    ShadowedChunk,
    ColdIndex,
    Mirror,
}

impl FilePart {
    /// Whether the opening stream brings it.
    fn is_streamed(self) -> bool {
        matches!(self, Self::Version | Self::Superblock | Self::HotIndex | Self::Hints | Self::HotChunk)
    }
}

/// What came of reading a damaged image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Right,
    /// Right, with an error logged.
    RightAndSaid,
    RefusedToOpen,
    /// Some reads failed, the others were right.
    SomeReadsFailed,
}

struct Subject {
    disk: Vec<u8>,
    store: Arc<MemoryStore>,
    superblock: Superblock,
    shadowed: ByteRange,
}

fn subject(placement: Placement) -> Subject {
    let mut prng = Prng::new(11);
    let mut disk = vec![0; 23 * BLOCK];
    for (window, bytes) in disk.chunks_mut(WINDOW_BYTES as usize).enumerate() {
        match window % 5 {
            0 => prng.fill(&mut bytes[..1700]),
            1 => prng.fill(&mut bytes[1500..3500]),
            2 => {}
            3 => bytes.chunks_mut(64).for_each(|line| Prng::new(7).fill(line)),
            _ => prng.fill(&mut bytes[..1000]),
        }
    }
    let bench = Bench::new(disk);
    bench.build("cold", &fast_build(WINDOW_BYTES, 1));
    let image = open(&bench.path("cold"));
    let runs =
        [(8, 2), (0, 1), (21, 1), (12, 1), (3, 1)].map(|(lba, count)| BlockRange::new(Lba(lba), count));
    let mut start = profile(&image, &bench.disk, &runs);
    let runs = vec![hs_trace::FileRun { page: 3, blocks: runs[0] }];
    start.files = vec![hs_trace::FileUse { path: "/bin/program".to_owned(), inode: 12, runs }];
    let options = OptimizeOptions { place: hs_build::HotPlacement::At(placement), ..hot_options(2) };
    bench.optimize_with("cold", "hot", &[start], &options).expect("optimized");
    let image = open(&bench.path("hot"));
    let Ok(hs_format::WindowRef::Chunk(chunk)) = image.window(4) else { panic!("window 4 is stored") };
    Subject {
        superblock: image.superblock().clone(),
        shadowed: image.cold_range(&chunk),
        store: Arc::new(MemoryStore::new(bench.bytes("hot")).named(NAME)),
        disk: bench.disk,
    }
}

impl Subject {
    fn place(&self, at: u64) -> FilePart {
        let within = |range: ByteRange| range.offset <= at && at < range.end();
        let cold = &self.superblock.cold;
        let hot = &self.superblock.hot[0];
        match at {
            8..12 => FilePart::Version,
            ..4096 => FilePart::Superblock,
            _ if within(hot.index) => FilePart::HotIndex,
            _ if within(hot.hints) => FilePart::Hints,
            _ if within(hot.chunks) => FilePart::HotChunk,
            _ if within(self.shadowed) => FilePart::ShadowedChunk,
            _ if within(cold.in_file(cold.chunk_space())) => FilePart::ColdChunk,
            _ if within(cold.range) => FilePart::ColdIndex,
            _ if within(self.superblock.mirror()) => FilePart::Mirror,
            _ => panic!("byte {at} belongs to no part"),
        }
    }

    /// One in how many bytes of the part around this one takes its turn.
    fn stride(&self, at: u64) -> u64 {
        const RESERVED: Range<u64> = 1880..3984;
        if std::env::var_os("EVERY_BYTE").is_some() {
            return 1;
        }
        match self.place(at) {
            FilePart::HotChunk | FilePart::ColdChunk | FilePart::ShadowedChunk => 4,
            FilePart::Superblock if RESERVED.contains(&at) => 8,
            FilePart::Mirror => 8,
            _ => 1,
        }
    }

    fn read(&self, at: u64, streaming: bool) -> Outcome {
        let rule = Rule::new(FaultKind::Flip, ByteRange::new(at, 1));
        let store = as_store(Fault::new(Arc::clone(&self.store), vec![rule], at));
        let opened = if streaming { open_and_prefetch(store) } else { open_plainly(store) };
        let (disk, said) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.check_message(&error, at);
                return Outcome::RefusedToOpen;
            }
        };
        let without_hot = disk.image().hot_fault();
        without_hot.into_iter().for_each(|fault| self.check_message(fault, at));
        let said = said || without_hot.is_some();
        let mut failed = 0;
        for (window, expected) in self.disk.chunks(WINDOW_BYTES as usize).enumerate() {
            let mut found = vec![0x55; expected.len()];
            match disk.read_at(window as u64 * WINDOW_BYTES, &mut found) {
                Ok(()) => assert!(found == expected, "byte {at}: window {window} is wrong and was served"),
                Err(error) => {
                    self.check_message(&error, at);
                    failed += 1;
                }
            }
        }
        match (failed, said || self.place(at) == FilePart::HotChunk) {
            (0, false) => Outcome::Right,
            (0, true) => Outcome::RightAndSaid,
            _ => Outcome::SomeReadsFailed,
        }
    }

    /// Path, offset, what was expected and what was found.
    fn check_message(&self, error: &ImageError, at: u64) {
        let text = error.to_string();
        let range = match error {
            ImageError::Format { range, .. } | ImageError::Chunk { range, .. } => *range,
            other => panic!("byte {at}: {other:?}"),
        };
        assert!(range.offset <= at && at < range.end(), "byte {at} is not in {range}: {text}");
        for word in [NAME, "expected", "found", &range.to_string()] {
            assert!(text.contains(word), "byte {at}: no {word} in: {text}");
        }
        if matches!(self.place(at), FilePart::HotChunk | FilePart::ColdChunk) {
            assert!(text.contains("chunk ") || text.contains("cold window "), "{text}");
        }
    }
}

fn open_plainly(store: Arc<dyn Store>) -> Result<(Arc<ServedDisk>, bool), ImageError> {
    let image = Arc::new(Image::open(store)?);
    Ok((disk(&image, 1, 1 << 20), image.from_mirror()))
}

fn open_and_prefetch(store: Arc<dyn Store>) -> Result<(Arc<ServedDisk>, bool), ImageError> {
    let disk = open_streaming(store)?;
    begin(&disk, None);
    disk.wait_prefetch();
    let from_mirror = disk.image().from_mirror();
    Ok((disk, from_mirror))
}

#[test]
// R6, R25
fn no_byte_can_be_wrong_unnoticed() {
    errors_log::collect();
    for placement in [Placement::Front, Placement::End] {
        flip_each(&subject(placement));
    }
}

fn flip_each(subject: &Subject) {
    let next = AtomicUsize::new(0);
    let bytes = subject.store.len() as usize;
    let work = || {
        let mut outcomes: BTreeMap<(FilePart, Outcome), usize> = BTreeMap::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= bytes {
                return outcomes;
            }
            let place = subject.place(at as u64);
            if !(at as u64).is_multiple_of(subject.stride(at as u64)) {
                continue;
            }
            let ways: &[bool] = if place.is_streamed() { &[false, true] } else { &[false] };
            for streaming in ways {
                let outcome = subject.read(at as u64, *streaming);
                *outcomes.entry((place, outcome)).or_default() += 1;
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let mut outcomes: BTreeMap<(FilePart, Outcome), usize> = BTreeMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            for (key, count) in thread.join().expect("no panic") {
                *outcomes.entry(key).or_default() += count;
            }
        }
    });
    eprintln!("{bytes} bytes: {outcomes:?}");
    check_outcomes(subject, &outcomes);
}

fn check_outcomes(subject: &Subject, outcomes: &BTreeMap<(FilePart, Outcome), usize>) {
    let mut expected: BTreeMap<(FilePart, Outcome), usize> = BTreeMap::new();
    for at in 0..subject.store.len() {
        let place = subject.place(at);
        let outcome = match place {
            FilePart::Version => Outcome::RefusedToOpen,
            FilePart::Superblock | FilePart::HotIndex | FilePart::Hints | FilePart::HotChunk => {
                Outcome::RightAndSaid
            }
            FilePart::ColdChunk | FilePart::ColdIndex => Outcome::SomeReadsFailed,
            FilePart::ShadowedChunk | FilePart::Mirror => Outcome::Right,
        };
        if at.is_multiple_of(subject.stride(at)) {
            *expected.entry((place, outcome)).or_default() += if place.is_streamed() { 2 } else { 1 };
        }
    }
    assert_eq!(*outcomes, expected);
    let of = |part| expected.iter().filter(|((place, _), _)| *place == part).map(|(_, count)| *count).sum();
    let (hot, hints, superblock): (usize, usize, usize) =
        (of(FilePart::HotChunk), of(FilePart::Hints), of(FilePart::Superblock));
    let bodies = hot / 2 + of(FilePart::ColdChunk) + of(FilePart::ShadowedChunk);
    assert!(bodies >= 2_500 && hot >= 1_000 && hints > 0 && superblock > 4_000, "{bodies} bytes of bodies");
    // Hot chunks were served by their cold copies, and each time it was logged.
    let lines = errors_log::take(NAME);
    let of_hot =
        lines.iter().filter(|line| line.contains("hot chunk") && line.contains("expected digest")).count();
    assert!(of_hot >= hot, "{of_hot} lines");
    assert!(lines.iter().filter(|line| line.contains("mirror")).count() >= superblock);
}

/// A verifier finds what readers may overlook.
#[test]
fn verify_finds_damage_anywhere() {
    let subject = subject(Placement::Front);
    let mut prng = Prng::new(12);
    let places = (0..600).map(|_| prng.below(subject.store.len()));
    let of_the_mirror = (0..100).map(|number| subject.superblock.mirror().offset + number * 41);
    let shadowed = subject.shadowed.offset..subject.shadowed.offset + 100;
    for at in places.chain(of_the_mirror).chain(shadowed) {
        let rule = Rule::new(FaultKind::Flip, ByteRange::new(at, 1));
        let store = as_store(Fault::new(Arc::clone(&subject.store), vec![rule], at));
        let verified = Image::open(store).and_then(|image| hs_image::verify(&image, None, &|_| {}));
        let error = verified.expect_err("damage");
        subject.check_message(&error, at);
    }
}
