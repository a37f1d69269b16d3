//! Readers do not hang: neither by a store that does not answer, nor by a thread that panics.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use hs_store::{Sink, Store, StoreError};
use parking_lot::Condvar;

use super::*;
use crate::ReadLimit;

const WINDOW_BYTES: u64 = 65_536;
/// For what must happen, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a medium answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Fine,
    Panics,
    Silent,
}

struct Moody {
    inner: FileStore,
    mood: Mutex<Mood>,
    changed: Condvar,
}

impl Moody {
    fn set(&self, mood: Mood) {
        *self.mood.lock() = mood;
        self.changed.notify_all();
    }

    fn look(&self) {
        let mut mood = self.mood.lock();
        self.changed.wait_while(&mut mood, |mood| *mood == Mood::Silent);
        let panics = *mood == Mood::Panics;
        drop(mood);
        assert!(!panics, "a mistake, on purpose");
    }
}

impl Store for Moody {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        self.look();
        self.inner.read_at(offset, buf)
    }
    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        self.look();
        self.inner.stream(range, sink)
    }
}

/// A disk of noise with all of its index known, and a reader of it.
fn moody(options: ReaderOptions, policy: Arc<dyn HotPolicy>) -> (Bench, Arc<Reader>, FineInTheEnd) {
    let mut content = vec![0; (40 * WINDOW_BYTES) as usize];
    Prng::new(9).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold.hsi", &fast_build(WINDOW_BYTES, 1));
    let inner = FileStore::open(bench.path("cold.hsi")).expect("opened");
    let store = Arc::new(Moody { inner, mood: Mutex::new(Mood::Fine), changed: Condvar::new() });
    let image = Arc::new(Image::open(Arc::clone(&store) as Arc<dyn Store>).expect("an image"));
    image.window(0).expect("the index is read");
    let options = ReaderOptions { read_ahead_bytes: 0, ..options };
    let reader = Arc::new(Reader::new(image, options, policy, None).expect("threads can be started"));
    // Dropped first.
    (bench, reader, FineInTheEnd(store))
}

/// Also when a test fails no read is to hang.
struct FineInTheEnd(Arc<Moody>);

impl Drop for FineInTheEnd {
    fn drop(&mut self) {
        self.0.set(Mood::Fine);
    }
}

impl std::ops::Deref for FineInTheEnd {
    type Target = Moody;
    fn deref(&self) -> &Moody {
        &self.0
    }
}

fn ask(reader: &Reader, window: u64) -> Receiver<Result<Vec<u8>, ImageError>> {
    let (sender, answer) = bounded(1);
    reader.submit(window * WINDOW_BYTES, 4096, move |result| {
        let _ = sender.send(result.map(<[&[u8]]>::concat).map_err(Clone::clone));
    });
    answer
}

fn answered(answer: &Receiver<Result<Vec<u8>, ImageError>>) -> Result<Vec<u8>, ImageError> {
    answer.recv_timeout(PATIENCE).expect("an answer of any kind")
}

fn check_fine(bench: &Bench, reader: &Reader, window: u64) {
    let at = (window * WINDOW_BYTES) as usize;
    assert!(answered(&ask(reader, window)).expect("it comes") == bench.disk[at..at + 4096]);
}

#[test]
fn a_panic_while_fetching_fails_those_who_wait_and_nothing_else() {
    let options = ReaderOptions { demand_threads: 1, ..ReaderOptions::default() };
    let (bench, reader, store) = moody(options, Arc::new(crate::NoStream));
    store.set(Mood::Panics);
    // More often than there are threads.
    let windows = [3, 17, 29, 38];
    for window in windows {
        let error = answered(&ask(&reader, window)).expect_err("it panicked");
        assert!(matches!(error, ImageError::Panicked { .. }), "{error}");
    }
    assert_eq!(reader.waiting().reads, 0);
    store.set(Mood::Fine);
    windows.into_iter().for_each(|window| check_fine(&bench, &reader, window));
}

/// Several readers of windows that come with one request, one of which is asked for while that is under way.
#[test]
fn a_panic_fails_everybody_whose_window_was_to_come_with_the_same_request() {
    let options = ReaderOptions { demand_threads: 1, ..ReaderOptions::default() };
    let (bench, reader, store) = moody(options, Arc::new(crate::NoStream));
    store.set(Mood::Silent);
    let first = ask(&reader, 9);
    let answers: Vec<_> = [20, 21, 22, 23].map(|window| ask(&reader, window)).into();
    store.set(Mood::Panics);
    for answer in answers.iter().chain([&first]) {
        assert!(matches!(answered(answer), Err(ImageError::Panicked { .. })));
    }
    store.set(Mood::Fine);
    [9, 20, 21, 22, 23].into_iter().for_each(|window| check_fine(&bench, &reader, window));
}

/// Panics when it learns what came: in a thread that has the bytes and is about to decode them.
#[derive(Default)]
struct Clumsy {
    is_armed: AtomicBool,
}

impl HotPolicy for Clumsy {
    fn join(&self, _chunk: u32) -> bool {
        false
    }
    fn miss(&self) {}
    fn miss_answered(&self) {}
    fn arrived(&self, _chunk: u32) {}
    fn released(&self, _chunk: u32) {}
    fn fetched(&self, _asked: Instant, _came: Instant, _bytes: u64) {
        assert!(!self.is_armed.load(Ordering::SeqCst), "a mistake, on purpose");
    }
}

#[test]
fn a_panic_while_decoding_fails_those_who_wait_and_nothing_else() {
    let policy = Arc::new(Clumsy::default());
    let options = ReaderOptions { demand_threads: 2, ..ReaderOptions::default() };
    let (bench, reader, _store) = moody(options, Arc::clone(&policy) as Arc<dyn HotPolicy>);
    policy.is_armed.store(true, Ordering::SeqCst);
    let windows = [3, 17, 29, 38];
    for window in windows {
        let answer = answered(&ask(&reader, window)).map(|bytes| bytes.len());
        assert!(matches!(answer, Err(ImageError::Panicked { .. })), "{answer:?}");
    }
    policy.is_armed.store(false, Ordering::SeqCst);
    windows.into_iter().for_each(|window| check_fine(&bench, &reader, window));
}

#[test]
fn a_read_that_nobody_answers_is_given_up() {
    let timeout = Duration::from_millis(400);
    let options =
        ReaderOptions { demand_threads: 1, read_timeout: Some(timeout), ..ReaderOptions::default() };
    let (bench, reader, store) = moody(options, Arc::new(crate::NoStream));
    store.set(Mood::Silent);
    let began = Instant::now();
    let answers = [5, 6, 30].map(|window| ask(&reader, window));
    for answer in &answers {
        assert!(matches!(answered(answer), Err(ImageError::NoAnswer { .. })));
    }
    assert!(began.elapsed() >= timeout);
    let stats = reader.stats();
    assert_eq!((stats.failed_requests, stats.given_up_requests, reader.waiting().reads), (3, 3, 0));
    // A later read waits anew, and gets what comes at last.
    let late = ask(&reader, 5);
    store.set(Mood::Fine);
    assert!(answered(&late).expect("it came") == bench.disk[5 * 65_536..][..4096]);
    check_fine(&bench, &reader, 30);
}

#[test]
fn without_a_limit_a_read_waits_and_a_limit_may_come_later() {
    let options = ReaderOptions { demand_threads: 1, ..ReaderOptions::default() };
    let (bench, reader, store) = moody(options, Arc::new(crate::NoStream));
    store.set(Mood::Silent);
    let answer = ask(&reader, 7);
    assert_eq!(reader.waiting().reads, 1);
    assert_eq!(answer.recv_timeout(Duration::from_millis(300)).err(), Some(RecvTimeoutError::Timeout));
    // As while a file system is being mounted, whose time is over.
    reader.limit_reads(Some(ReadLimit { each: PATIENCE, until: Instant::now() }));
    assert!(matches!(answered(&answer), Err(ImageError::NoAnswer { .. })));
    assert!(matches!(answered(&ask(&reader, 8)), Err(ImageError::NoAnswer { .. })));
    reader.limit_reads(None);
    let late = ask(&reader, 8);
    store.set(Mood::Fine);
    assert!(answered(&late).expect("it came") == bench.disk[8 * 65_536..][..4096]);
}
