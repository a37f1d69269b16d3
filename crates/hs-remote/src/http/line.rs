//! The response of an announced stream, which several calls share, one after the other.

use std::pin::pin;
use std::sync::Arc;

use hs_units::ByteRange;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::flow::Flow;

/// This much of a response is read and dropped rather than making a new request: what 100 Mbit/s bring in 20
/// ms.
pub(super) const SKIPPED_BYTES: u64 = 256 << 10;
/// Before a stream is announced, as many reads elsewhere leave the response of the opening open: a reader of
/// an image looks at its end before it goes on behind the beginning.
const MOST_ELSEWHERE: u32 = 8;

/// Which request reads the shared response, or where the response waits.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<ParkedResponse>,
    changed: Notify,
}

#[derive(Default)]
struct ParkedResponse {
    /// What is to be streamed in order.
    expected: Option<ByteRange>,
    parked: Option<Flow>,
    /// The range that is being read.
    taken: Option<ByteRange>,
    /// Reads elsewhere before anything was announced.
    elsewhere: u32,
}

/// The right to read a response, shared or separate. Dropping it gives the right to the next request.
pub(super) struct Seat {
    line: Option<Arc<Line>>,
    /// The response, while there is one.
    pub(super) flow: Option<Flow>,
    /// Where the next request should end.
    pub(super) end: u64,
}

impl Seat {
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

    /// Takes the response that nothing was read of yet, if there is one; see [`Line::park`].
    pub(super) fn take_unread(&self) -> Option<Flow> {
        self.state.lock().parked.take_if(|flow| flow.at() == 0)
    }

    /// Returns the shared response if it can continue with `range`, after waiting for the calls that read
    /// what comes before. `is_stream` distinguishes the next part of a stream from a read that only touches
    /// the same range.
    pub(super) async fn seat(self: &Arc<Self>, range: ByteRange, is_stream: bool) -> Seat {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(seat) = self.free_seat(range, is_stream) {
                return seat;
            }
            changed.await;
        }
    }

    /// The same without waiting.
    fn free_seat(self: &Arc<Self>, range: ByteRange, is_stream: bool) -> Option<Seat> {
        let mut state = self.state.lock();
        let expected = state
            .expected
            .filter(|expected| is_stream && expected.offset <= range.offset && range.offset < expected.end());
        if let Some(mut flow) = state.parked.take() {
            if flow.rewind(range.offset) || (expected.is_some() && skips(&flow, range.offset)) {
                let end = expected.map_or(range.end(), |expected| expected.end()).max(range.end());
                state.taken = Some(ByteRange::new(range.offset, end - range.offset));
                return Some(Seat { line: Some(Arc::clone(self)), flow: Some(flow), end });
            }
            let waits = match state.expected {
                Some(expected) => expected.offset <= flow.at() && flow.at() < expected.end(),
                None => {
                    state.elsewhere += 1;
                    state.elsewhere <= MOST_ELSEWHERE
                }
            };
            if expected.is_none() && waits {
                state.parked = Some(flow);
                return Some(Seat::alone(range.end()));
            }
        }
        match (expected, state.taken) {
            (Some(_), Some(taken)) if taken.offset <= range.offset && range.offset < taken.end() => None,
            (Some(expected), None) => {
                let end = expected.end().max(range.end());
                state.taken = Some(ByteRange::new(range.offset, end - range.offset));
                Some(Seat { line: Some(Arc::clone(self)), flow: None, end })
            }
            _ => Some(Seat::alone(range.end())),
        }
    }
}

/// Whether `offset` is a little ahead of where the flow is.
fn skips(flow: &Flow, offset: u64) -> bool {
    offset.checked_sub(flow.at()).is_some_and(|gap| gap <= SKIPPED_BYTES) && offset < flow.end()
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        let mut state = line.state.lock();
        state.taken = None;
        state.parked = self.flow.take().filter(|flow| !flow.is_over());
        drop(state);
        line.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one call reads ends where the next begins, and the announcement has changed meanwhile.
    #[test]
    fn a_call_behind_what_is_being_read_does_not_wait() {
        let line = Arc::new(Line::default());
        let free = |at, bytes| line.free_seat(ByteRange::new(at, bytes), true).map(|seat| seat.end);
        line.expect(ByteRange::new(0, 100));
        let first = line.free_seat(ByteRange::new(0, 50), true).expect("nothing is read");
        assert_eq!(first.end, 100, "all that was announced");
        line.expect(ByteRange::new(50, 250));
        assert_eq!((free(99, 10), free(100, 10)), (None, Some(110)));
        drop(first);
        assert_eq!(free(99, 10), Some(300));
    }
}
