//! Reads do not hang: neither by a store that does not answer, nor by a thread that panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use hs_disk::{ReadLimit, ReadOptions, ServedDisk};
use hs_image::{Image, ImageError};
use hs_store::{Fault, FaultKind, FileStore, Rule, Sink, Store, StoreError};
use hs_units::{ByteRange, Prng};
use parking_lot::{Condvar, Mutex};

use crate::sample::{Bench, fast_build};
use crate::served::{self, Answer, EVERYTHING, PATIENCE, answered, disk_with, reads};

const WINDOW_BYTES: u64 = 65_536;

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

/// A disk of noise with all of its index known.
fn moody(options: ReadOptions) -> (Bench, Arc<ServedDisk>, FineInTheEnd) {
    let bench = noise();
    let inner = FileStore::open(bench.path("cold.hsi")).expect("opened");
    let store = Arc::new(Moody { inner, mood: Mutex::new(Mood::Fine), changed: Condvar::new() });
    let image = Arc::new(Image::open(Arc::clone(&store) as Arc<dyn Store>).expect("an image"));
    let disk = disk_with(&image, ReadOptions { read_ahead_bytes: 0, ..options });
    disk.read_at(39 * WINDOW_BYTES, &mut [0; 8]).expect("the index is read");
    // Dropped first.
    (bench, disk, FineInTheEnd(store))
}

fn noise() -> Bench {
    let mut content = vec![0; (40 * WINDOW_BYTES) as usize];
    Prng::new(9).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold.hsi", &fast_build(WINDOW_BYTES, 1));
    bench
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

fn ask(disk: &ServedDisk, window: u64) -> Receiver<Answer> {
    served::ask(disk, window * WINDOW_BYTES, 4096)
}

fn check_fine(bench: &Bench, disk: &ServedDisk, window: u64) {
    let at = (window * WINDOW_BYTES) as usize;
    assert!(answered(&ask(disk, window)).expect("it comes") == bench.disk[at..at + 4096]);
}

#[test]
fn a_panic_while_fetching_fails_those_who_wait_and_nothing_else() {
    let (bench, disk, store) = moody(reads(1, 1 << 20));
    store.set(Mood::Panics);
    // More often than there are threads.
    let windows = [3, 17, 29, 38];
    for window in windows {
        let error = answered(&ask(&disk, window)).expect_err("it panicked");
        assert!(matches!(error, ImageError::Panicked { .. }), "{error}");
    }
    assert_eq!(disk.waiting().reads, 0);
    store.set(Mood::Fine);
    windows.into_iter().for_each(|window| check_fine(&bench, &disk, window));
}

/// Several readers of windows that come with one request, one of which is asked for while that is under way.
#[test]
fn a_panic_fails_everybody_whose_window_was_to_come_with_the_same_request() {
    let (bench, disk, store) = moody(reads(1, 1 << 20));
    store.set(Mood::Silent);
    let first = ask(&disk, 9);
    let answers: Vec<_> = [20, 21, 22, 23].map(|window| ask(&disk, window)).into();
    store.set(Mood::Panics);
    for answer in answers.iter().chain([&first]) {
        assert!(matches!(answered(answer), Err(ImageError::Panicked { .. })));
    }
    store.set(Mood::Fine);
    [9, 20, 21, 22, 23].into_iter().for_each(|window| check_fine(&bench, &disk, window));
}

/// A medium whose name panics once when it is armed: a decoder that reports damage asks for it.
struct Clumsy {
    inner: Fault<FileStore>,
    is_armed: AtomicBool,
}

impl Store for Clumsy {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn name(&self) -> &str {
        assert!(!self.is_armed.swap(false, SeqCst), "a mistake, on purpose");
        self.inner.name()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        self.inner.read_at(offset, buf)
    }
    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        self.inner.stream(range, sink)
    }
}

#[test]
fn a_panic_while_decoding_fails_those_who_wait_and_nothing_else() {
    let bench = noise();
    let file = FileStore::open(bench.path("cold.hsi")).expect("opened");
    let inner = Fault::new(file, vec![Rule::new(FaultKind::Flip, EVERYTHING)], 1);
    inner.bypass(true);
    let store = Arc::new(Clumsy { inner, is_armed: AtomicBool::new(false) });
    let image = Arc::new(Image::open(Arc::clone(&store) as Arc<dyn Store>).expect("an image"));
    let disk = disk_with(&image, ReadOptions { read_ahead_bytes: 0, ..reads(2, 0) });
    disk.read_at(39 * WINDOW_BYTES, &mut [0; 8]).expect("the index is read");
    // More often than there are decoders.
    let windows: Vec<u64> = (0..39).step_by(2).collect();
    for window in &windows {
        store.inner.bypass(false);
        store.is_armed.store(true, SeqCst);
        let answer = answered(&ask(&disk, *window)).map(|bytes| bytes.len());
        assert!(matches!(answer, Err(ImageError::Panicked { .. })), "{answer:?}");
        store.inner.bypass(true);
        check_fine(&bench, &disk, *window);
    }
    assert_eq!(disk.waiting().reads, 0);
}

/// The front end's part of an answer makes a mistake, more often than there are threads.
#[test]
fn a_panic_while_answering_costs_no_thread_and_no_other_answer() {
    let (bench, disk, store) = moody(reads(1, 0));
    for window in 0..20 {
        // Both are answered together.
        store.set(Mood::Silent);
        disk.submit(window * WINDOW_BYTES, 4096, |_| panic!("a mistake, on purpose"));
        let answer = ask(&disk, window);
        store.set(Mood::Fine);
        let at = (window * WINDOW_BYTES) as usize;
        assert!(answered(&answer).expect("it comes") == bench.disk[at..at + 4096]);
    }
}

#[test]
fn a_read_without_an_answer_is_given_up() {
    let timeout = Duration::from_millis(400);
    let options = ReadOptions { read_timeout: Some(timeout), ..reads(1, 1 << 20) };
    let (bench, disk, store) = moody(options);
    store.set(Mood::Silent);
    let began = Instant::now();
    let answers = [5, 6, 30].map(|window| ask(&disk, window));
    for answer in &answers {
        assert!(matches!(answered(answer), Err(ImageError::NoAnswer { .. })));
    }
    assert!(began.elapsed() >= timeout);
    let stats = disk.stats();
    assert_eq!((stats.failed_requests, stats.given_up_requests, disk.waiting().reads), (3, 3, 0));
    // A later read waits anew, and gets what comes at last.
    let late = ask(&disk, 5);
    store.set(Mood::Fine);
    assert!(answered(&late).expect("it came") == bench.disk[5 * 65_536..][..4096]);
    check_fine(&bench, &disk, 30);
}

#[test]
fn without_a_limit_a_read_waits_and_a_limit_may_come_later() {
    let (bench, disk, store) = moody(reads(1, 1 << 20));
    store.set(Mood::Silent);
    let answer = ask(&disk, 7);
    assert_eq!(disk.waiting().reads, 1);
    assert_eq!(answer.recv_timeout(Duration::from_millis(300)).err(), Some(RecvTimeoutError::Timeout));
    // As while a file system is being mounted, whose time is over.
    disk.limit_reads(Some(ReadLimit { each: PATIENCE, until: Instant::now() }));
    assert!(matches!(answered(&answer), Err(ImageError::NoAnswer { .. })));
    assert!(matches!(answered(&ask(&disk, 8)), Err(ImageError::NoAnswer { .. })));
    disk.limit_reads(None);
    let late = ask(&disk, 8);
    store.set(Mood::Fine);
    assert!(answered(&late).expect("it came") == bench.disk[8 * 65_536..][..4096]);
}
