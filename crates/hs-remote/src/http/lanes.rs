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
use std::ops::ControlFlow;
use std::sync::Arc;

use hs_units::ByteRange;
use parking_lot::{Condvar, Mutex};

use super::store::Remote;
use hs_store::Sink;

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
}

struct Shared {
    remote: Arc<Remote>,
    range: ByteRange,
    state: Mutex<Segments>,
    changed: Condvar,
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
        Self { shared: Arc::new(Shared { remote, range, state: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Passes `wanted` to the sink in order. Returns the rest, which may be all of it.
    pub(super) fn take(&self, wanted: ByteRange, sink: &mut Sink<'_>) -> ControlFlow<(), ByteRange> {
        let shared = &*self.shared;
        let whole = shared.range;
        let mut at = wanted.offset;
        while at < wanted.end() {
            let rest = ByteRange::new(at, wanted.end() - at);
            if at < whole.offset || at >= whole.end() {
                return ControlFlow::Continue(rest);
            }
            let number = (at - whole.offset) / SEGMENT_BYTES;
            let mut state = shared.state.lock();
            if state.is_over || number < state.taking {
                return ControlFlow::Continue(rest);
            }
            if number > state.taking {
                state.leave_to(number);
                shared.changed.notify_all();
            }
            if !std::mem::replace(&mut state.has_begun, true) && !self.begin() {
                state.is_over = true;
            }
            let segment = shared.segment(number);
            let from = (at - segment.offset) as usize;
            let has = |state: &Segments| state.came.get(&number).is_some_and(|came| came.len() > from);
            while !state.is_over && !has(&state) {
                shared.changed.wait(&mut state);
            }
            if !has(&state) {
                return ControlFlow::Continue(rest);
            }
            let came = &state.came[&number][from..];
            let piece = came[..came.len().min(rest.len as usize)].to_vec();
            // The lock is not held while the sink works with the bytes.
            drop(state);
            if sink(&piece).is_break() {
                // The next reader may need some of them again.
                return ControlFlow::Break(());
            }
            at += piece.len() as u64;
            if at == segment.end() {
                shared.state.lock().leave_to(number + 1);
                shared.changed.notify_all();
            }
        }
        ControlFlow::Break(())
    }

    /// Starts the lanes. Returns whether there is at least one.
    fn begin(&self) -> bool {
        let start = |number| {
            let shared = Arc::clone(&self.shared);
            std::thread::Builder::new().name(format!("hs-lane-{number}")).spawn(move || shared.run())
        };
        (0..LANES).map(start).filter(Result::is_ok).count() != 0
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
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
            self.0.changed.notify_all();
        }
    }
}

impl Shared {
    fn segment(&self, number: u64) -> ByteRange {
        let offset = self.range.offset + number * SEGMENT_BYTES;
        ByteRange::new(offset, SEGMENT_BYTES.min(self.range.end() - offset))
    }

    /// One lane: requests one segment after the other.
    fn run(&self) {
        // A lane that panics never brings its segment: those that wait for it then make their own request.
        let _over = Over(self);
        let segments = self.range.len.div_ceil(SEGMENT_BYTES);
        loop {
            let number = {
                let mut state = self.state.lock();
                while !state.is_over && state.asking < segments && state.asking >= state.taking + AHEAD {
                    self.changed.wait(&mut state);
                }
                if state.is_over || state.asking >= segments {
                    return;
                }
                state.asking += 1;
                state.asking - 1
            };
            let fetched = self.remote.fetch_alone(self.segment(number), &mut |piece| {
                let mut state = self.state.lock();
                if state.is_over || number < state.taking {
                    return ControlFlow::Break(());
                }
                state.came.entry(number).or_default().extend_from_slice(piece);
                self.changed.notify_all();
                ControlFlow::Continue(())
            });
            if let Err(error) = fetched {
                log::debug!("{}; no more lanes", error.with_causes());
                self.state.lock().is_over = true;
            }
            self.changed.notify_all();
        }
    }
}
