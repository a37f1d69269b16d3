//! The response of an announced stream, which several calls share, one after the other.

use hs_units::ByteRange;
use parking_lot::{Condvar, Mutex};

use super::flow::Flow;

/// This much of a response is read and dropped rather than making a new request: what 100 Mbit/s bring in 20
/// ms.
const SKIPPED_BYTES: u64 = 256 << 10;

/// Which thread reads the shared response, or where the response waits.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<ParkedResponse>,
    changed: Condvar,
}

#[derive(Default)]
struct ParkedResponse {
    /// What is to be streamed in order.
    expected: Option<ByteRange>,
    parked: Option<Flow>,
    /// The range that is being read.
    taken: Option<ByteRange>,
}

/// The right to read a response, shared or separate. Dropping it gives the right to the next thread.
pub(super) struct Seat<'a> {
    line: Option<&'a Line>,
    /// The response, while there is one.
    pub(super) flow: Option<Flow>,
    /// Where the next request should end.
    pub(super) end: u64,
}

impl Seat<'_> {
    /// For a separate request, which ends at `end`.
    pub(super) const fn alone(end: u64) -> Self {
        Self { line: None, flow: None, end }
    }
}

impl Line {
    /// Announces what will be streamed in order.
    pub(super) fn expect(&self, range: ByteRange) {
        self.state.lock().expected = Some(range);
    }

    /// Leaves a response for the next call that can continue it.
    pub(super) fn park(&self, flow: Flow) {
        self.state.lock().parked = Some(flow);
    }

    /// Returns the shared response if it can continue with `range`, after waiting for the calls that read
    /// what comes before. `is_stream` distinguishes the next part of a stream from a read that only touches
    /// the same range.
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
