//! Served disks for tests, and media that a test holds back.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use hs_disk::{CacheSizing, Deliver, DiskOptions, ReadOptions, ServedDisk};
use hs_engine::PrefetchConfig;
use hs_image::{Image, ImageError};
use hs_store::{Sink, Store, StoreError};
use hs_units::{ByteRange, Prng};
use parking_lot::{Condvar, Mutex};

/// For what must happen, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const EVERYTHING: ByteRange = ByteRange::new(0, u64::MAX);

/// What a read gets.
pub(crate) type Answer = Result<Vec<u8>, ImageError>;

/// So many fetchers, and a cache that keeps its size.
pub(crate) fn reads(fetchers: usize, cache_bytes: u64) -> ReadOptions {
    ReadOptions { fetchers, cache_bytes, cache_sizing: CacheSizing::Fixed, ..ReadOptions::default() }
}

/// The disk in an image, without a prefetch.
pub(crate) fn disk(image: &Arc<Image>, fetchers: usize, cache_bytes: u64) -> Arc<ServedDisk> {
    disk_with(image, reads(fetchers, cache_bytes))
}

pub(crate) fn disk_with(image: &Arc<Image>, read: ReadOptions) -> Arc<ServedDisk> {
    let options = DiskOptions { read, ..DiskOptions::default() };
    ServedDisk::of_image(Arc::clone(image), &options, None).expect("threads can be started")
}

/// With a prefetch whose first request is as large as this.
pub(crate) fn streaming(read: ReadOptions, first_request_bytes: u64) -> DiskOptions {
    let prefetch = PrefetchConfig { first_request_bytes, ..PrefetchConfig::default() };
    DiskOptions { read, prefetch: Some(prefetch), ..DiskOptions::default() }
}

/// The disk in the image of a store. All hot chunks of a small image come with the request that opens it,
/// when the prefetch begins.
pub(crate) fn open_streaming(store: Arc<dyn Store>) -> Result<Arc<ServedDisk>, ImageError> {
    ServedDisk::open(store, &streaming(reads(2, 1 << 20), 1 << 20), None)
}

pub(crate) fn begin(disk: &ServedDisk, deliver: Option<Arc<dyn Deliver>>) {
    disk.begin_prefetch(deliver).expect("threads can be started");
}

/// Asks for bytes of a disk; the answer comes later.
pub(crate) fn ask(disk: &ServedDisk, offset: u64, len: u64) -> Receiver<Answer> {
    let (sender, answer) = bounded(1);
    disk.submit(offset, len as u32, move |result| {
        let _ = sender.send(result.map(<[&[u8]]>::concat).map_err(Clone::clone));
    });
    answer
}

/// The answer, which must come.
pub(crate) fn answered(answer: &Receiver<Answer>) -> Answer {
    answer.recv_timeout(PATIENCE).expect("an answer of any kind")
}

/// Reads a range and compares it with the disk.
pub(crate) fn check_read(disk: &ServedDisk, content: &[u8], offset: u64, len: u64) {
    let mut found = vec![0xaa; len as usize];
    disk.read_at(offset, &mut found).expect("the read succeeds");
    assert!(found == content[offset as usize..][..len as usize], "bytes {offset}+{len} differ");
}

/// Reads `count` random ranges and compares each with the disk.
pub(crate) fn check_random_reads(disk: &ServedDisk, content: &[u8], prng: &mut Prng, count: u64) {
    for _ in 0..count {
        let offset = prng.below(content.len() as u64);
        let most = (content.len() as u64 - offset).min(if prng.below(4) == 0 { 3 << 20 } else { 40_000 });
        let len = prng.below(most + 1);
        check_read(disk, content, offset, len);
    }
}

/// A medium whose requests stop before the bytes that a test holds back.
pub(crate) struct Held<S> {
    inner: S,
    held: Mutex<Option<ByteRange>>,
    changed: Condvar,
    stopped: AtomicU64,
}

impl<S: Store> Held<S> {
    /// Nothing is held back.
    pub(crate) fn new(inner: S) -> Arc<Self> {
        Arc::new(Self { inner, held: Mutex::default(), changed: Condvar::new(), stopped: AtomicU64::new(0) })
    }

    /// Holds these bytes back from now on, and no others.
    pub(crate) fn hold(&self, range: ByteRange) {
        *self.held.lock() = Some(range);
        self.changed.notify_all();
    }

    /// Holds nothing back.
    pub(crate) fn go_on(&self) {
        *self.held.lock() = None;
        self.changed.notify_all();
    }

    /// How many requests had to wait so far.
    pub(crate) fn stopped(&self) -> u64 {
        self.stopped.load(SeqCst)
    }

    /// How many bytes of a range lie before those that are held back.
    fn free(held: Option<ByteRange>, range: ByteRange) -> u64 {
        match held {
            Some(held) if held.offset < range.end() && range.offset < held.end() => {
                held.offset.saturating_sub(range.offset)
            }
            _ => range.len,
        }
    }

    /// Waits until bytes of the range can be had; gives how many.
    fn wait(&self, range: ByteRange) -> u64 {
        let mut held = self.held.lock();
        if range.len > 0 && Self::free(*held, range) == 0 {
            self.stopped.fetch_add(1, SeqCst);
            self.changed.wait_while(&mut held, |held| Self::free(*held, range) == 0);
        }
        Self::free(*held, range)
    }
}

impl<S: Store> Store for Held<S> {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let mut at = ByteRange::new(offset, buf.len() as u64);
        while at.len > 0 {
            let free = self.wait(at);
            at = ByteRange::new(at.offset + free, at.len - free);
        }
        self.inner.read_at(offset, buf)
    }
    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let mut at = range.offset;
        self.inner.stream(range, &mut |mut piece| {
            while !piece.is_empty() {
                let free = self.wait(ByteRange::new(at, piece.len() as u64));
                let (now, later) = piece.split_at(free as usize);
                sink(now)?;
                at += free;
                piece = later;
            }
            ControlFlow::Continue(())
        })
    }
}
