//! The cache on disk is filled while no reader waits.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use hs_conformance::{Gates, Sample};
use hs_disk::{DiskOptions, ServedDisk};
use hs_image::{Image, MissingRuns, OpenOptions};
use hs_serve::BackgroundFill;
use hs_store::{DiskCache, Fault, FaultKind, FileStore, Rule, Sink, Store, StoreError};
use hs_units::ByteRange;
use parking_lot::{Condvar, Mutex};

/// The longest that a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a fill waits for its first request.
const FILL_BEGINS: Duration = Duration::from_millis(2500);

/// A store whose large streams wait until one has met another.
struct Pairs {
    inner: FileStore,
    /// Streams that are under way, and the most that there were at once.
    state: Mutex<(u32, u32)>,
    changed: Condvar,
}

/// Larger than a stream that may be alone.
const LARGE_BYTES: u64 = 64 << 10;

impl Store for Pairs {
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
        {
            let mut state = self.state.lock();
            state.0 += 1;
            state.1 = state.1.max(state.0);
            self.changed.notify_all();
            if range.len > LARGE_BYTES {
                let _ = self.changed.wait_while_for(&mut state, |state| state.1 < 2, PATIENCE);
            }
        }
        let streamed = self.inner.stream(range, sink);
        self.state.lock().0 -= 1;
        streamed
    }
}

/// A served image with a cache on disk.
struct ServedSample {
    sample: Sample,
    disk: Arc<ServedDisk>,
    options: DiskOptions,
}

impl ServedSample {
    fn new(store: impl FnOnce(&Sample) -> Arc<dyn Store>) -> Self {
        let sample = Sample::new(7);
        let cache = DiskCache::open(&sample.path("cache"), 1 << 30).expect("a cache");
        let name = Some(sample.open("hot.hsi").image_digest());
        let image = OpenOptions { cache: Some(cache), name, ..OpenOptions::default() };
        let options = DiskOptions { image, ..DiskOptions::default() };
        let disk = ServedDisk::open(store(&sample), &options, None).expect("a disk");
        Self { sample, disk, options }
    }

    fn fill(&self) -> BackgroundFill {
        BackgroundFill::start(&self.disk).expect("threads")
    }

    /// The whole disk.
    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.sample.disk.len()];
        self.disk.read_at(0, &mut bytes).expect("read");
        bytes
    }
}

fn file(sample: &Sample) -> FileStore {
    FileStore::open(sample.path("hot.hsi")).expect("opened")
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where the image has its last cold chunk.
fn last_chunk(image: &Image) -> ByteRange {
    let mut missing = MissingRuns::new(image);
    let mut last = None;
    while let Some(run) = missing.next(1).expect("the index is there") {
        last = Some(run.range());
    }
    last.expect("a chunk")
}

#[test]
fn two_requests_are_under_way_at_once_and_all_comes_into_the_cache() {
    let mut pairs = None;
    let served = ServedSample::new(|sample| {
        let store = Arc::new(Pairs { inner: file(sample), state: Mutex::default(), changed: Condvar::new() });
        pairs = Some(Arc::clone(&store));
        store
    });
    let pairs = pairs.expect("opened");
    let fill = served.fill();
    wait_until("all is there", || fill.progress().is_complete);
    assert_eq!(pairs.state.lock().1, 2);
    drop(fill);
    let nothing = |sample: &Sample| -> Arc<dyn Store> {
        let all = ByteRange::new(0, u64::MAX);
        Arc::new(Fault::new(file(sample), vec![Rule::new(FaultKind::Io, all)], 0))
    };
    let disk = ServedDisk::open(nothing(&served.sample), &served.options, None).expect("from the cache");
    let offline = ServedSample { disk, ..served };
    assert!(offline.read() == offline.sample.disk);
}

#[test]
fn nothing_is_fetched_while_a_reader_waits() {
    let mut gates = None;
    let served = ServedSample::new(|sample| {
        let store = Gates::new(file(sample), &[last_chunk(&sample.open("hot.hsi"))]);
        gates = Some(Arc::clone(&store));
        store
    });
    let gates = gates.expect("opened");
    let _open = gates.open_at_end();
    // The index is read before the fill begins.
    served.disk.read_at(0, &mut [0; 4096]).expect("read");
    let (sender, answer) = channel();
    let last = served.sample.disk.len() as u64 - 4096;
    served.disk.submit(last, 4096, move |result| sender.send(result.is_ok()).expect("waited for"));
    wait_until("the reader waits", || gates.waiting(0) == 1);
    let fill = served.fill();
    std::thread::sleep(FILL_BEGINS);
    assert_eq!(fill.progress().done_bytes, 0);
    gates.open(0);
    assert!(answer.recv().expect("an answer"));
    wait_until("all is there", || fill.progress().is_complete);
    drop(fill);
    assert!(served.read() == served.sample.disk);
}

#[test]
fn a_wrong_chunk_is_not_kept_and_ends_the_fill_for_a_while() {
    let served = ServedSample::new(|sample| {
        let wrong = last_chunk(&sample.open("hot.hsi"));
        Arc::new(Fault::new(file(sample), vec![Rule::new(FaultKind::Flip, wrong)], 3))
    });
    let fill = served.fill();
    let image = Arc::clone(served.disk.image());
    let missing = || MissingRuns::new(&image).next(1).expect("the index is there").map(|run| run.range());
    let wrong = last_chunk(&served.sample.open("hot.hsi"));
    wait_until("all but the wrong one is there", || missing() == Some(wrong));
    // Which waits neither for the pause after a failure nor for a request.
    drop(fill);
    assert_eq!(missing(), Some(wrong));
}
