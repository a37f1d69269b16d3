//! Replays requests on the model of a medium, in memory that does not grow with them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hs_device::{Device, WritableDevice};
use hs_trace::BlockRequest;
use hs_units::Nanos;

use crate::histogram::Histogram;

/// When requests are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// At the times of the log.
    Recorded,
    /// As soon as fewer than this many are under way; at least one.
    Depth(u32),
    /// When the program would make them: its own time takes the place of an arrival, and stops while anything
    /// is under way.
    Thinking,
}

/// A medium on which requests are replayed.
pub enum Replayed {
    /// It can be read.
    Readable(Box<dyn Device>),
    /// It can be read and written.
    Writable(Box<dyn WritableDevice>),
}

/// A log being replayed.
pub struct Replay {
    medium: Replayed,
    pace: Pace,
    /// When each of those under way will be done.
    under_way: BinaryHeap<Reverse<Nanos>>,
    now: Nanos,
    /// The program's own time until the last request.
    own: Nanos,
    outcome: ReplayOutcome,
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOutcome {
    /// Time from making a request to its last byte.
    pub latencies: Histogram,
    /// Bytes read and written.
    pub bytes: u64,
    /// Writes that were left out, as the medium can only be read.
    pub skipped: u64,
    /// When the last was done.
    pub ended: Nanos,
}

impl Replay {
    /// A replay before its first request.
    #[must_use]
    pub fn new(medium: Replayed, pace: Pace) -> Self {
        Self {
            medium,
            pace,
            under_way: BinaryHeap::new(),
            now: Nanos::ZERO,
            own: Nanos::ZERO,
            outcome: ReplayOutcome::default(),
        }
    }

    /// The next request.
    pub fn handle(&mut self, request: &BlockRequest) {
        let BlockRequest { at, writes, range } = *request;
        self.now = match self.pace {
            Pace::Recorded => self.now.max(at),
            Pace::Depth(depth) => self.wait_for_room(depth.max(1)),
            // What it requested at the same point of its own time, it requested at once.
            Pace::Thinking if at <= self.own => self.now,
            Pace::Thinking => {
                let thinks = at.saturating_sub(std::mem::replace(&mut self.own, at));
                self.now.max(self.outcome.ended) + thinks
            }
        };
        let service = match &mut self.medium {
            Replayed::Readable(_) if writes => {
                self.outcome.skipped += 1;
                return;
            }
            Replayed::Readable(device) => device.submit(self.now, range),
            Replayed::Writable(device) if writes => device.write(self.now, range),
            Replayed::Writable(device) => device.submit(self.now, range),
        };
        if let Pace::Depth(_) = self.pace {
            self.under_way.push(Reverse(service.done));
        }
        self.outcome.latencies.note(service.done.saturating_sub(self.now));
        self.outcome.bytes += range.len;
        self.outcome.ended = self.outcome.ended.max(service.done);
    }

    fn wait_for_room(&mut self, depth: u32) -> Nanos {
        let mut now = self.now;
        while self.under_way.len() >= depth as usize {
            let Some(Reverse(done)) = self.under_way.pop() else { break };
            now = now.max(done);
        }
        now
    }

    /// Ends the replay.
    #[must_use]
    pub fn finish(self) -> ReplayOutcome {
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use hs_device::Medium;
    use hs_units::ByteRange;

    use super::*;

    fn request(at_ms: u64, number: u64, writes: bool) -> BlockRequest {
        BlockRequest { at: Nanos::from_millis(at_ms), writes, range: ByteRange::new(number << 20, 250_000) }
    }

    fn replay(pace: Pace, requests: &[BlockRequest]) -> ReplayOutcome {
        let medium = Medium::parse("flat-10ms-25mbs").unwrap();
        let mut replay = Replay::new(Replayed::Readable(medium.device(1 << 40).unwrap().unwrap()), pace);
        requests.iter().for_each(|request| replay.handle(request));
        replay.finish()
    }

    #[test]
    fn recorded_times_are_kept_and_depth_ignores_them() {
        let requests: Vec<BlockRequest> =
            (0..10).map(|number| request(number * 100, number, false)).collect();
        let recorded = replay(Pace::Recorded, &requests);
        assert_eq!(
            (recorded.ended, recorded.latencies.most()),
            (Nanos::from_millis(920), Nanos::from_millis(20))
        );
        // One after the other 20 ms each; all at once a latency and ten transfers.
        assert_eq!(replay(Pace::Depth(1), &requests).ended, Nanos::from_millis(200));
        assert_eq!(replay(Pace::Depth(10), &requests).ended, Nanos::from_millis(110));
    }

    #[test]
    fn a_program_thinks_when_it_has_what_it_asked_for() {
        // Two at once after 5 ms, which take 30 ms, and one after 7 ms more, which takes 20 ms.
        let requests = [request(5, 0, false), request(5, 1, false), request(12, 2, false)];
        let outcome = replay(Pace::Thinking, &requests);
        assert_eq!(outcome.latencies.most(), Nanos::from_millis(30));
        assert_eq!(outcome.ended, Nanos::from_millis(5 + 30 + 7 + 20));
    }

    #[test]
    fn writes_are_left_out_where_nothing_can_be_written() {
        let outcome = replay(Pace::Recorded, &[request(0, 0, true), request(0, 1, false)]);
        assert_eq!((outcome.skipped, outcome.latencies.count()), (1, 1));
        let hdd = Medium::Hdd7200.writable_device(1 << 30).unwrap().unwrap();
        let mut replay = Replay::new(Replayed::Writable(hdd), Pace::Recorded);
        replay.handle(&request(0, 0, true));
        assert_eq!(replay.finish().skipped, 0);
    }
}
