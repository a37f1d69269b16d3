//! Media that fail for a while.

use std::sync::Arc;

use hs_image::{Image, ImageError};
use hs_store::{Fault, FaultKind, FileStore, Rule, StoreError};
use hs_units::{BlockRange, ByteRange, Lba, Prng};

use crate::errors_log;
use crate::sample::{BLOCK, Bench, fast_build, open, profile};
use crate::served::{EVERYTHING, answered, ask, begin, check_random_reads, disk, open_streaming};

const WINDOW_BYTES: usize = 16_384;

fn bench() -> Bench {
    let mut content = vec![0; 60 * WINDOW_BYTES];
    Prng::new(31).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold", &fast_build(WINDOW_BYTES as u64, 1));
    let runs = [(0, 9), (100, 4), (40, 2)].map(|(lba, count)| BlockRange::new(Lba(lba), count));
    let start = profile(&open(&bench.path("cold")), &bench.disk, &runs);
    bench.optimize("cold", "hot", &[start]);
    bench
}

/// The image `name` behind a fault that is off until it is asked for.
fn faulty(
    bench: &Bench,
    name: &str,
    kind: FaultKind,
    range: ByteRange,
) -> (Arc<Fault<FileStore>>, Arc<Image>) {
    let file = FileStore::open(bench.path(name)).expect("opened");
    let fault = Arc::new(Fault::new(file, vec![Rule::new(kind, range)], 5));
    fault.bypass(true);
    let image = Arc::new(Image::open(fault.clone()).expect("an image"));
    (fault, image)
}

#[test]
fn an_outage_is_an_error_to_its_readers_and_is_over_when_it_is_over() {
    errors_log::collect();
    let bench = bench();
    for kind in [FaultKind::Io, FaultKind::Short, FaultKind::Flip] {
        for name in ["cold", "hot"] {
            let (fault, image) = faulty(&bench, name, kind, EVERYTHING);
            let disk = disk(&image, 2, 1 << 20);
            let mut found = vec![0; bench.disk.len()];
            fault.bypass(false);
            // One window: a read of many leaves loads under way that may fail later than it.
            let error = disk.read_at(0, &mut found[..100]).expect_err("nothing can be read");
            match (kind, &error) {
                (FaultKind::Io, ImageError::Store(store)) => {
                    assert!(matches!(**store, StoreError::Read { .. }), "{error}");
                    assert!(error.to_string().contains("Input/output error"), "{error}");
                }
                (FaultKind::Short, ImageError::Store(store)) => {
                    assert!(matches!(**store, StoreError::Short { .. }), "{error}");
                }
                (FaultKind::Flip, ImageError::Format { .. } | ImageError::Chunk { .. }) => {}
                _ => panic!("{kind:?}: {error}"),
            }
            assert!(error.to_string().contains(&bench.path(name).display().to_string()), "{error}");
            fault.bypass(true);
            disk.read_at(0, &mut found).expect("the outage is over");
            assert!(found == bench.disk, "{kind:?} of {name}");
            check_random_reads(&disk, &bench.disk, &mut Prng::new(32), 20);
            assert!(fault.fired() > 0);
        }
    }
}

#[test]
fn one_bad_chunk_is_an_error_to_its_window_only() {
    let bench = bench();
    let image = open(&bench.path("cold"));
    let Ok(hs_format::WindowRef::Chunk(chunk)) = image.window(7) else { panic!("window 7 is stored") };
    let (fault, image) = faulty(&bench, "cold", FaultKind::Io, image.cold_range(&chunk));
    fault.bypass(false);
    let served = disk(&image, 2, 0);
    for (window, expected) in bench.disk.chunks(WINDOW_BYTES).enumerate() {
        let mut found = vec![0; expected.len()];
        let read = served.read_at((window * WINDOW_BYTES) as u64, &mut found);
        assert_eq!(read.is_err(), window == 7, "window {window}");
        assert!(window == 7 || found == expected);
    }
    // The same when each window is met first by a reader that has read nothing else: what it would have
    // brought along does not count.
    for window in [0, 3, 6, 8] {
        let mut found = vec![0; WINDOW_BYTES];
        let at = window * WINDOW_BYTES;
        disk(&image, 1, 1 << 20).read_at(at as u64, &mut found).expect("its own bytes are whole");
        assert!(found == bench.disk[at..][..WINDOW_BYTES]);
    }
    // A read that needs it among others fails as a whole.
    assert!(served.read_at(6 * WINDOW_BYTES as u64, &mut vec![0; 3 * WINDOW_BYTES]).is_err());
}

/// What came along with another window is not verified until it is asked for; damage on the way costs a
/// second request then, not an error.
#[test]
fn a_neighbour_that_came_damaged_is_read_again() {
    let bench = bench();
    let image = open(&bench.path("cold"));
    let Ok(hs_format::WindowRef::Chunk(first)) = image.window(0) else { panic!("window 0 is stored") };
    let Ok(hs_format::WindowRef::Chunk(chunk)) = image.window(1) else { panic!("window 1 is stored") };
    let file = FileStore::open(bench.path("cold")).expect("opened");
    let rule = Rule::new(FaultKind::Flip, image.cold_range(&chunk)).times(1);
    let fault = Arc::new(Fault::new(file, vec![rule], 6));
    let disk = disk(&Arc::new(Image::open(fault.clone()).expect("an image")), 1, 1 << 20);
    let mut found = vec![0; WINDOW_BYTES];
    for window in 0..3 {
        disk.read_at((window * WINDOW_BYTES) as u64, &mut found).expect("read");
        assert!(found == bench.disk[window * WINDOW_BYTES..][..WINDOW_BYTES], "window {window}");
        if window == 0 {
            assert_eq!(disk.stats().outside_bytes, first.range.len, "no read waited for the neighbour");
        }
    }
    assert_eq!(fault.fired(), 1, "the neighbour came with the first window");
}

#[test]
fn all_who_wait_for_a_chunk_that_cannot_be_had_get_the_error() {
    let bench = bench();
    let (fault, image) = faulty(&bench, "cold", FaultKind::Io, EVERYTHING);
    let disk = disk(&image, 1, 0);
    let (answers, errors) = crossbeam_channel::unbounded();
    let submit = |count: u64| {
        for number in 0..count {
            let answers = answers.clone();
            disk.submit(number % 8 * 512, 4096, move |result| {
                let _ = answers.send(result.map(|_| ()).map_err(Clone::clone));
            });
        }
    };
    fault.bypass(false);
    submit(200);
    for _ in 0..200 {
        assert!(errors.recv().expect("answered").is_err());
    }
    fault.bypass(true);
    submit(200);
    for _ in 0..200 {
        errors.recv().expect("answered").expect("the outage is over");
    }
}

/// The stream breaks off: reads that waited for it are fetched on demand, from what still answers.
#[test]
fn a_stream_that_breaks_off_leaves_no_reader_waiting() {
    let bench = bench();
    let hot = open(&bench.path("hot")).superblock().hot[0].chunks;
    let file = FileStore::open(bench.path("hot")).expect("opened");
    let fault = Arc::new(Fault::new(file, vec![Rule::new(FaultKind::Io, hot)], 5));
    let disk = open_streaming(fault.clone()).expect("an image");
    (0..disk.image().hot_chunk_count()).for_each(|chunk| disk.expect(chunk));
    let answers = [0, 3, 8, 100, 41].map(|lba| (lba, ask(&disk, lba * BLOCK as u64, BLOCK as u64)));
    assert!(answers.iter().all(|(_, answer)| answer.is_empty()), "they wait for the stream");
    begin(&disk, None);
    for (lba, answer) in answers {
        let found = answered(&answer).expect("fetched");
        assert!(found == bench.disk[lba as usize * BLOCK..][..BLOCK], "block {lba}");
    }
    assert!(fault.fired() > 0);
    assert!(disk.arrivals().iter().all(Option::is_none), "nothing came by the stream");
}

/// The opening request fails at any of its bytes: the image is opened piece by piece then, and no thread
/// hangs.
#[test]
fn the_opening_request_may_fail_anywhere() {
    let bench = bench();
    let hot = open(&bench.path("hot")).superblock().hot[0].range();
    for block in 0..hot.end().div_ceil(4096) {
        for (kind, begins) in [(FaultKind::Io, true), (FaultKind::Short, true), (FaultKind::Io, false)] {
            let file = FileStore::open(bench.path("hot")).expect("opened");
            let rule = Rule::new(kind, ByteRange::new(block * 4096, 4096)).times(1);
            let fault = Arc::new(Fault::new(file, vec![rule], 1));
            let disk = open_streaming(fault.clone()).expect("an image");
            if begins {
                begin(&disk, None);
            } else {
                disk.stop_prefetch();
            }
            check_random_reads(&disk, &bench.disk, &mut Prng::new(block), 5);
            drop(disk);
            assert_eq!(fault.fired(), 1);
        }
    }
}
