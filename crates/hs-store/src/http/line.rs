//! The response that several calls share, one after the other: that of a stream which was announced.

use hs_units::ByteRange;
use parking_lot::{Condvar, Mutex};

use super::flow::Flow;

/// So much of a response is read and thrown away rather than asking anew: what 100 Mbit/s bring in 20 ms.
const SKIPPED_BYTES: u64 = 256 << 10;

/// Who reads the shared response, or where it waits.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What is to be streamed in order.
    expected: Option<ByteRange>,
    parked: Option<Flow>,
    /// From where on, and until where, somebody reads.
    taken: Option<ByteRange>,
}

/// The right to read a response, shared or one's own. Whoever drops it lets the next one have it.
pub(super) struct Seat<'a> {
    line: Option<&'a Line>,
    /// The response, while there is one.
    pub(super) flow: Option<Flow>,
    /// Until where the next request should go.
    pub(super) end: u64,
}

impl Seat<'_> {
    /// One's own, for requests that end at `end`.
    pub(super) const fn alone(end: u64) -> Self {
        Self { line: None, flow: None, end }
    }
}

impl Line {
    /// Says what is going to be streamed in order.
    pub(super) fn expect(&self, range: ByteRange) {
        self.state.lock().expected = Some(range);
    }

    /// Leaves a response for whoever goes on with it.
    pub(super) fn park(&self, flow: Flow) {
        self.state.lock().parked = Some(flow);
    }

    /// Gives whoever wants `range` the shared response where it can go on with it, after waiting for those
    /// who read what comes before. `is_stream` distinguishes the next part of a stream from a reader who
    /// happens to be there.
    pub(super) fn seat(&self, range: ByteRange, is_stream: bool) -> Seat<'_> {
        let mut state = self.state.lock();
        loop {
            let expected = state.expected.filter(|expected| {
                is_stream && expected.offset <= range.offset && range.offset < expected.end()
            });
            if let Some(mut flow) = state.parked.take() {
                if flow.rewind(range.offset) || (expected.is_some() && skips(&flow, range.offset)) {
                    let end = expected.map_or(range.end(), |expected| expected.end()).max(range.end());
                    state.taken = Some(ByteRange::new(range.offset, end - range.offset));
                    return Seat { line: Some(self), flow: Some(flow), end };
                }
                let waits = state
                    .expected
                    .is_some_and(|expected| expected.offset <= flow.at() && flow.at() < expected.end());
                if expected.is_none() && waits {
                    state.parked = Some(flow);
                    return Seat { line: None, flow: None, end: range.end() };
                }
            }
            match (expected, state.taken) {
                (Some(_), Some(taken)) if taken.offset <= range.offset && range.offset < taken.end() => {
                    self.changed.wait(&mut state);
                }
                (Some(expected), None) => {
                    let end = expected.end().max(range.end());
                    state.taken = Some(ByteRange::new(range.offset, end - range.offset));
                    return Seat { line: Some(self), flow: None, end };
                }
                _ => return Seat { line: None, flow: None, end: range.end() },
            }
        }
    }
}

/// Whether `offset` is a little ahead of where the flow is.
fn skips(flow: &Flow, offset: u64) -> bool {
    offset.checked_sub(flow.at()).is_some_and(|gap| gap <= SKIPPED_BYTES) && offset < flow.end()
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let Some(line) = self.line else { return };
        let mut state = line.state.lock();
        state.taken = None;
        state.parked = self.flow.take().filter(|flow| !flow.is_over());
        line.changed.notify_all();
    }
}
