//! Reads of several readers that lie next to each other reach a medium that is busy as one request, and
//! without merging they do not.

use std::fs;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_build::BuildOptions;
use hs_build::source::{Source, SourceOptions};
use hs_conformance::Gates;
use hs_disk::ReadOptions;
use hs_engine::queue::Class;
use hs_engine::queue::Event;
use hs_format::WindowRef;
use hs_image::{Codec, Image};
use hs_serve::{Prefetching, ServeConfig};
use hs_store::{Count, FileStore, Snapshot};
use hs_units::{ByteRange, Prng};

use crate::fronts::{Front, Shown, fronts};

const WINDOW: usize = 16 << 10;
/// What occupies the medium, one for each thread of the reader. Holes lie behind each, so that nothing comes
/// with it.
const OCCUPYING: [usize; 2] = [10, 20];
/// What several readers ask for meanwhile, one window each: together less than what demand merges.
const ASKED: std::ops::Range<usize> = 40..64;
const WINDOWS: usize = 80;
/// Requests before: the index, a first window, and what occupies the medium.
const BEFORE: usize = 2 + OCCUPYING.len();
/// For what happens soon or never.
const PATIENCE: Duration = Duration::from_secs(120);

struct Scene {
    folder: tempfile::TempDir,
    disk: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let mut disk = vec![0; WINDOWS * WINDOW];
        for window in OCCUPYING.into_iter().chain(ASKED).chain([0]) {
            Prng::new(window as u64).fill(&mut disk[window * WINDOW..][..2048]);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (raw, image) = (folder.path().join("disk.raw"), folder.path().join("disk.hsi"));
        fs::write(&raw, &disk).expect("written");
        let source = Source::open(&raw, &SourceOptions::default(), &|_| {}).expect("a source");
        let options = BuildOptions {
            window_bytes: WINDOW as u64,
            codec: Codec::Zstd,
            level: 1,
            threads: NonZeroUsize::MIN,
            ..BuildOptions::default()
        };
        hs_build::build(&source, &image, &options, &|_| {}).expect("built");
        Self { folder, disk }
    }

    fn store(&self) -> FileStore {
        FileStore::open(self.folder.path().join("disk.hsi")).expect("there")
    }

    /// Where the stored bytes of windows lie, which are one behind the other.
    fn stored(&self, windows: impl Iterator<Item = usize>) -> ByteRange {
        let image = Image::open(Arc::new(self.store())).expect("an image");
        let place = |window| match image.window(window as u64).expect("the index is whole") {
            WindowRef::Chunk(chunk) => image.cold_range(&chunk),
            other => panic!("window {window} is {other:?}"),
        };
        let places: Vec<ByteRange> = windows.map(place).collect();
        assert!(places.windows(2).all(|pair| pair[0].end() == pair[1].offset), "{places:?}");
        let offset = places[0].offset;
        ByteRange::new(offset, places.last().map_or(offset, ByteRange::end) - offset)
    }

    /// The requests to the medium when readers, one for each of these windows and in this order, all wait
    /// before the medium becomes free.
    fn read_by_many(&self, front: Front, merges: bool, order: &[usize]) -> Snapshot {
        let gates = Gates::new(self.store(), &[self.stored(OCCUPYING.into_iter())]);
        let count = Count::new(Arc::clone(&gates));
        let counters = count.counters();
        let shown = &front.show(Arc::new(count), &config(merges));
        // The page of the index is read before the first window.
        self.check(shown, 0);
        std::thread::scope(|scope| {
            let _opens = gates.open_at_end();
            for window in OCCUPYING {
                scope.spawn(move || self.check(shown, window));
            }
            wait_for(shown, BEFORE, |event| matches!(event, Event::Dispatched { .. }));
            for (number, window) in order.iter().enumerate() {
                scope.spawn(move || self.check(shown, *window));
                wait_for(shown, BEFORE + number + 1, is_wanted);
            }
        });
        counters.snapshot()
    }

    /// Another reader reads a part of a window, and gets what the disk has there.
    fn check(&self, shown: &Shown, window: usize) {
        let found = shown.reader().read((window * WINDOW) as u64, 4096).expect("it can be read");
        assert!(found == self.disk[window * WINDOW..][..4096], "window {window} differs");
    }
}

/// No read-ahead and no prefetch, and two threads read the medium.
fn config(merges: bool) -> ServeConfig {
    let mut read = ReadOptions { fetchers: OCCUPYING.len(), read_ahead_bytes: 0, ..ReadOptions::default() };
    if !merges {
        read.queue.classes.iter_mut().for_each(|class| class.merge_bytes = 0);
    }
    ServeConfig { prefetching: Prefetching::Off, read, disk_read_ahead_kib: 0, ..ServeConfig::default() }
}

/// A demand read waits for a window, which may have been read ahead for an earlier reader.
fn is_wanted(event: &Event) -> bool {
    matches!(event, Event::Requested { class: Class::Demand, .. } | Event::Promoted { .. })
}

/// Waits until the queue has seen so many of these events.
fn wait_for(shown: &Shown, count: usize, counts: impl Fn(&Event) -> bool) {
    let end = Instant::now() + PATIENCE;
    let seen = || shown.disk().queue_events(1024).iter().filter(|recorded| counts(&recorded.event)).count();
    while seen() < count {
        assert!(Instant::now() < end, "{} of {count} in two minutes", seen());
        std::thread::yield_now();
    }
}

/// All of them in steps of seven, so that no reader seems sequential.
fn scattered() -> Vec<usize> {
    (0..ASKED.len()).map(|number| ASKED.start + number * 7 % ASKED.len()).collect()
}

/// Those front ends of which each read goes to the queue as it is.
fn plain_fronts() -> impl Iterator<Item = Front> {
    fronts().into_iter().filter(|front| matches!(front, Front::Fuse | Front::NbdStructured))
}

#[test]
fn adjacent_reads_of_several_readers_reach_the_medium_as_one_request() {
    let scene = Scene::new();
    let asked = ASKED.len() as u64;
    let order = scattered();
    for front in plain_fronts() {
        let [merged, single] = [true, false].map(|merges| scene.read_by_many(front, merges, &order));
        assert_eq!(merged.bytes, single.bytes, "{front:?}");
        assert_eq!(single.requests - merged.requests, asked - 1, "{front:?}: {merged:?} and {single:?}");
    }
}

/// Some of them are read ahead for a reader that seems sequential, until a demand read waits for them.
#[test]
fn what_was_read_ahead_is_merged_with_what_lies_beside_it() {
    let scene = Scene::new();
    for front in plain_fronts() {
        let [ahead, none] =
            [ASKED.collect(), scattered()].map(|order| scene.read_by_many(front, true, &order));
        assert_eq!((ahead.requests, ahead.bytes), (none.requests, none.bytes), "{front:?}");
    }
}
