//! Counts requests to a medium.
//!
//! [`Count`] counts the requests that reach what it wraps: how many, how many bytes they brought,
//! how many did not begin where the one before ended, and how long at least one was in service.
//! The medium counts itself, whatever serves the disk above it, so put `Count` directly around the
//! medium and everything that saves or spoils requests (caches, faults) around `Count`:
//! `Count(Emulate(File))` for an emulated medium, `Count(File)` for the real one. *Inside* `Emulate` it
//! would see the right requests, but the time of the real medium instead of the emulated one.
//!
//! [`Counters`] outlive the store and are read at any time; [`Snapshot::since`] gives one phase.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hs_units::{ByteRange, Nanos};
use parking_lot::Mutex;

use crate::{Clock, Filter, Layer, Monotonic, Sink, Store, StoreError};

/// What was asked of a medium up to some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Requests that reached the medium, failed ones included; a stream is one.
    pub requests: u64,
    /// Bytes delivered: of an abandoned stream, those that its sink was given; of a failed read,
    /// none.
    pub bytes: u64,
    /// Requests that did not begin where the one before them ended. The first one counts as
    /// contiguous.
    pub seeks: u64,
    /// Time with at least one request in service.
    pub busy: Nanos,
}

impl Snapshot {
    /// Both together, of two media; they may have been busy at the same time.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            seeks: self.seeks + other.seeks,
            busy: self.busy + other.busy,
        }
    }

    /// What was asked between `earlier`, a snapshot of the same counters, and this one.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            seeks: self.seeks.saturating_sub(earlier.seeks),
            busy: self.busy.saturating_sub(earlier.busy),
        }
    }
}

/// Counts that a [`Count`] layer keeps.
pub struct Counters {
    clock: Arc<dyn Clock>,
    /// Apart from the rest, because it grows with every piece of a stream.
    bytes: AtomicU64,
    requests: Mutex<Requests>,
}

/// What must change together. A lock and not atomics, since busy time and position depend on the
/// order of events; it is taken twice a request and held for a few additions.
#[derive(Default)]
struct Requests {
    submitted: u64,
    seeks: u64,
    /// Where the latest request ends; nothing before the first one.
    position: Option<u64>,
    in_service: u64,
    /// Since when there is a request in service, while there is one.
    busy_since: Nanos,
    busy: Nanos,
}

impl Requests {
    fn begin(&mut self, now: Nanos, range: ByteRange) {
        self.submitted += 1;
        if self.position.is_some_and(|position| position != range.offset) {
            self.seeks += 1;
        }
        self.position = Some(range.end());
        if self.in_service == 0 {
            self.busy_since = now;
        }
        self.in_service += 1;
    }

    /// Ends a request that brought the first `delivered` bytes of `range`.
    fn end(&mut self, now: Nanos, range: ByteRange, delivered: u64) {
        self.in_service -= 1;
        if self.in_service == 0 {
            self.busy += now.saturating_sub(self.busy_since);
        }
        // A reader that stopped early goes on from there, unless another reader has moved on since.
        if self.position == Some(range.end()) {
            self.position = Some(range.offset + delivered);
        }
    }

    fn busy_at(&self, now: Nanos) -> Nanos {
        if self.in_service == 0 { self.busy } else { self.busy + now.saturating_sub(self.busy_since) }
    }
}

impl Counters {
    /// Counts from zero, with busy time on this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, bytes: AtomicU64::new(0), requests: Mutex::default() }
    }

    /// The counts so far. A request in service is in `requests` and, up to now, in `busy`; a
    /// stream's bytes are counted as they are delivered, a read's when it is done.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let requests = self.requests.lock();
        Snapshot {
            requests: requests.submitted,
            bytes: self.bytes.load(Ordering::Relaxed),
            seeks: requests.seeks,
            busy: requests.busy_at(self.clock.now()),
        }
    }
}

/// One request in service; ends it when dropped, also when a sink panics.
pub struct InService {
    counters: Arc<Counters>,
    range: ByteRange,
    delivered: u64,
}

impl InService {
    /// A request for `range` goes to the medium now.
    #[must_use]
    pub fn begin(counters: &Arc<Counters>, range: ByteRange) -> Self {
        let mut requests = counters.requests.lock();
        requests.begin(counters.clock.now(), range);
        drop(requests);
        Self { counters: Arc::clone(counters), range, delivered: 0 }
    }

    /// So many more bytes of it were delivered.
    pub fn deliver(&mut self, bytes: u64) {
        self.delivered += bytes;
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for InService {
    fn drop(&mut self) {
        let mut requests = self.counters.requests.lock();
        requests.end(self.counters.clock.now(), self.range, self.delivered);
    }
}

/// A store whose requests are counted.
pub type Count<S> = Layer<Counting, S>;

/// What [`Count`] does with requests.
pub struct Counting {
    counters: Arc<Counters>,
}

impl<S: Store> Count<S> {
    /// Counts from zero what `inner` is asked for.
    #[must_use]
    pub fn new(inner: S) -> Self {
        Self::with_clock(inner, Arc::new(Monotonic::new()))
    }

    /// The same, with busy time on a clock of the caller's.
    #[must_use]
    pub fn with_clock(inner: S, clock: Arc<dyn Clock>) -> Self {
        Self::around(inner, Counting { counters: Arc::new(Counters::new(clock)) })
    }

    /// The counters, to keep and to read while the store is in use.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.filter.counters)
    }
}

impl Filter for Counting {
    fn read_at(&self, next: &dyn Store, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let range = ByteRange::new(offset, buf.len() as u64);
        let mut request = InService::begin(&self.counters, range);
        next.read_at(offset, buf)?;
        request.deliver(range.len);
        Ok(())
    }

    fn stream(&self, next: &dyn Store, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let mut request = InService::begin(&self.counters, range);
        next.stream(range, &mut |piece| -> ControlFlow<()> {
            request.deliver(piece.len() as u64);
            sink(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use hs_device::Medium;

    use super::*;
    use crate::virtual_clock::Virtual;
    use crate::{Emulate, Fault, FaultKind, MemoryStore, Rule, contract};

    fn memory(len: usize) -> MemoryStore {
        MemoryStore::new(contract::noise(len, 4))
    }

    #[test]
    fn a_counted_store_keeps_the_contract() {
        contract::check(|bytes| Count::new(MemoryStore::new(bytes)), 600_000);
    }

    #[test]
    fn requests_bytes_and_seeks() {
        let store = Count::new(memory(1 << 20));
        let counters = store.counters();
        store.read_at(4096, &mut [0; 4096]).expect("read");
        store.read_at(8192, &mut [0; 100]).expect("contiguous");
        let before = counters.snapshot();
        assert_eq!((before.requests, before.bytes, before.seeks), (2, 4196, 0));

        store.read_at(0, &mut [0; 10]).expect("back");
        contract::collect(&store, ByteRange::new(10, 1 << 19)).expect("contiguous");
        store.read_at(0, &mut []).expect("no request");
        store.read_at(1 << 20, &mut [0]).expect_err("no request either");
        let phase = counters.snapshot().since(&before);
        assert_eq!((phase.requests, phase.bytes, phase.seeks), (2, 10 + (1 << 19), 1));
    }

    #[test]
    fn an_abandoned_stream_counts_what_it_delivered_and_goes_on_from_there() {
        let store = Count::new(memory(1 << 20));
        let counters = store.counters();
        let mut got = 0;
        store
            .stream(ByteRange::new(0, 1 << 20), &mut |piece| {
                got += piece.len() as u64;
                ControlFlow::Break(())
            })
            .expect("a break is no error");
        assert_eq!(counters.snapshot().bytes, got);
        store.read_at(got, &mut [0; 4096]).expect("contiguous");
        let end = counters.snapshot();
        assert_eq!((end.requests, end.bytes, end.seeks), (2, got + 4096, 0));
    }

    #[test]
    fn a_failed_read_is_a_request_without_bytes() {
        let store =
            Count::new(Fault::new(memory(1 << 16), vec![Rule::new(FaultKind::Io, ByteRange::new(0, 10))], 0));
        store.read_at(0, &mut [0; 4096]).expect_err("a bad place");
        let snapshot = store.counters().snapshot();
        assert_eq!((snapshot.requests, snapshot.bytes), (1, 0));
    }

    #[test]
    fn busy_is_the_emulated_mediums_time() {
        let clock = Arc::new(Virtual::default());
        let device = Medium::parse("flat-10ms-25mbs")
            .expect("known")
            .device(1 << 20)
            .expect("fits")
            .expect("modelled");
        let emulate = Emulate::with_device(memory(1 << 20), device, clock.clone());
        let store = Count::with_clock(emulate, clock.clone());
        store.read_at(0, &mut [0; 25_000]).expect("read");
        clock.advance(Nanos::from_millis(500));
        store.read_at(0, &mut [0; 25_000]).expect("read");
        assert_eq!(store.counters().snapshot().busy, Nanos::from_millis(22));
    }

    #[test]
    fn requests_that_overlap_are_busy_once() {
        let mut requests = Requests::default();
        let range = ByteRange::new(0, 10);
        requests.begin(Nanos(100), range);
        requests.begin(Nanos(150), range);
        requests.end(Nanos(180), range, 10);
        assert_eq!(requests.busy_at(Nanos(190)), Nanos(90));
        requests.end(Nanos(200), range, 10);
        assert_eq!(requests.busy_at(Nanos(1_000)), Nanos(100));
        requests.begin(Nanos(1_000), range);
        requests.end(Nanos(1_010), range, 10);
        assert_eq!(requests.busy_at(Nanos(2_000)), Nanos(110));
    }

    #[test]
    fn no_thread_is_lost() {
        let store = Count::new(memory(1 << 16));
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    for _ in 0..1_000 {
                        store.read_at(0, &mut [0; 16]).expect("read");
                    }
                });
            }
        });
        let snapshot = store.counters().snapshot();
        assert_eq!((snapshot.requests, snapshot.bytes, snapshot.seeks), (4_000, 64_000, 3_999));
    }
}
