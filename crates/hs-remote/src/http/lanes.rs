//! One stream by several responses at once, for files of which most is needed.
//!
//! ```text
//! lane 1: ├── segment 0 ──┤├── segment 4 ──┤          each is a request; a lane that is done takes the next,
//! lane 2: ├── segment 1 ──┤├── segment 5 ──┤          at most [`AHEAD`] segments before what was taken
//! taken:  0 1 2 3 …                                   in order
//! ```
//!
//! Many servers limit the rate of one connection, and over a long distance TCP's window does the same.
//! Several connections have a multiple of that rate, and more of a link that is shared with others. So this
//! is only for a stream that nearly everything depends on.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use hs_units::ByteRange;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard};

use super::reader::Reader;
use super::store::Remote;

/// Responses at once. With six connections, the number that browsers use, two are left for readers.
const LANES: usize = 4;
/// Bytes of a request. With larger ones the first waits longer for what the other lanes bring too soon.
/// Smaller ones cost more round trips, although the other lanes fill the pauses.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Segments that are under way or wait to be taken: 8 MiB of memory while their consumer is slow.
const AHEAD: u64 = 2 * LANES as u64;
/// Shorter streams are over before several connections have reached their rate.
pub(super) const LEAST_FOR_LANES: u64 = 16 << 20;

/// The lanes of one stream.
pub(super) struct Lanes {
    shared: Arc<Shared>,
    /// One request has the lanes; the next part of the stream waits for the one before.
    turn: Arc<tokio::sync::Mutex<()>>,
}

struct Shared {
    remote: Arc<Remote>,
    range: ByteRange,
    state: Mutex<Segments>,
    changed: Notify,
}

#[derive(Default)]
struct Segments {
    /// The lanes run.
    has_begun: bool,
    /// The segment that is taken next; those before it are no longer needed.
    taking: u64,
    /// The segment that is requested next.
    asking: u64,
    /// What has come of segments that were not taken, from their starts on.
    came: BTreeMap<u64, Vec<u8>>,
    /// No more is needed, or a segment cannot be fetched: a separate request for it then reports why.
    is_over: bool,
}

impl Lanes {
    /// Lanes for a range of the file; they request nothing before bytes are taken.
    pub(super) fn new(remote: Arc<Remote>, range: ByteRange) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { remote, range, state, changed }), turn: Arc::default() }
    }

    /// The right to take bytes.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// The next bytes from `at`, up to `end` at most; none when the lanes do not bring them.
    pub(super) async fn piece(&self, at: u64, end: u64) -> Option<Bytes> {
        let shared = &*self.shared;
        let whole = shared.range;
        if at < whole.offset || at >= whole.end() || at >= end {
            return None;
        }
        let number = (at - whole.offset) / SEGMENT_BYTES;
        let begins = {
            let mut state = shared.state.lock();
            if state.is_over || number < state.taking {
                return None;
            }
            state.leave_to(number);
            !std::mem::replace(&mut state.has_begun, true)
        };
        shared.changed.notify_waiters();
        if begins && !self.begin() {
            shared.state.lock().is_over = true;
        }
        let from = (at - shared.segment(number).offset) as usize;
        loop {
            let mut changed = pin!(shared.changed.notified());
            changed.as_mut().enable();
            {
                let state = shared.state.lock();
                if let Some(came) = state.came.get(&number).and_then(|came| came.get(from..))
                    && !came.is_empty()
                {
                    return Some(Bytes::copy_from_slice(&came[..came.len().min((end - at) as usize)]));
                }
                if state.is_over {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// All bytes before `at` were taken.
    pub(super) fn took(&self, at: u64) {
        let whole = self.shared.range;
        let Some(number) = at.checked_sub(whole.offset).map(|bytes| bytes / SEGMENT_BYTES) else { return };
        let mut state = self.shared.state.lock();
        if number > state.taking {
            state.leave_to(number);
            drop(state);
            self.shared.changed.notify_waiters();
        }
    }

    /// Starts the lanes. Returns whether there is at least one.
    fn begin(&self) -> bool {
        let start = |_| {
            let shared = Arc::clone(&self.shared);
            self.shared.remote.transport().spawn(Box::pin(async move { shared.run().await }))
        };
        (0..LANES).map(start).filter(|is_begun| *is_begun).count() != 0
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_waiters();
    }
}

impl Segments {
    /// Drops what comes before segment `number`.
    fn leave_to(&mut self, number: u64) {
        self.taking = number;
        self.asking = self.asking.max(number);
        self.came = self.came.split_off(&number);
    }
}

/// Ends the lanes when one of them panics.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().is_over = true;
            self.0.changed.notify_waiters();
        }
    }
}

impl Shared {
    fn segment(&self, number: u64) -> ByteRange {
        let offset = self.range.offset + number * SEGMENT_BYTES;
        ByteRange::new(offset, SEGMENT_BYTES.min(self.range.end() - offset))
    }

    /// The segment that a lane requests next; waits until it is near enough, and is none at the end.
    async fn next_segment(&self) -> Option<u64> {
        let segments = self.range.len.div_ceil(SEGMENT_BYTES);
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.is_over || state.asking >= segments {
                    return None;
                }
                if state.asking < state.taking + AHEAD {
                    state.asking += 1;
                    return Some(state.asking - 1);
                }
            }
            changed.await;
        }
    }

    /// One lane: requests one segment after the other.
    async fn run(&self) {
        // A lane that panics never brings its segment: requests that wait for it then go their own way.
        let _over = Over(self);
        while let Some(number) = self.next_segment().await {
            let mut reader = Reader::alone(Arc::clone(&self.remote), self.segment(number));
            loop {
                match reader.next_while_open().await {
                    Ok(Some(piece)) => {
                        let mut state = self.state.lock();
                        if state.is_over || number < state.taking {
                            break;
                        }
                        state.came.entry(number).or_default().extend_from_slice(&piece);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        log::debug!("{}; no more lanes", error.with_causes());
                        self.state.lock().is_over = true;
                        break;
                    }
                }
                self.changed.notify_waiters();
            }
            self.changed.notify_waiters();
        }
    }
}
