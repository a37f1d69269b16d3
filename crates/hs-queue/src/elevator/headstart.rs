//! Class, deadline, direction and contiguity aware.
//!
//! Each class has an elevator of its own, and this one knows which. For demand, requests are served one way
//! across a medium that seeks; where nothing turns, in that order or in order of arrival, as
//! [`trial`](super::trial) finds quicker. In the other classes order of arrival is the order of need, so it
//! is kept, but a request that continues at the head goes first: it costs no seek. Reads go before writes
//! until a write has expired. Expired requests go first, one in every `batch`, so that many expired requests
//! are still served in good order. Nothing expires before the medium, at its measured pace, could have served
//! twice what waits: a deadline that every request misses only spoils the order.
//!
//! A client that reads one block after another has no request waiting when the next one is chosen, so the
//! head would seek away at each block. So, on a medium that seeks, the queue waits a moment for a stream that
//! has proved itself, as in anticipatory scheduling (Iyer and Druschel, SOSP 2001, section 3). A stream is
//! known by its position, not by its client, and is left after a slice of time, as by CFQ.

use hs_units::Nanos;

use super::trial::Trial;
use super::{Choice, Elevator, View};
use crate::config::{ByPosition, QueueConfig};
use crate::request::{Class, Direction};
use crate::waiting::{Candidate, Grouping};

/// Streams that are told apart.
const STREAMS: usize = 16;

/// This many requests that continue at the end of the one before prove a stream.
const PROOF: u32 = 2;

/// How long a stream is served before others are. bench/results/experiments.md compares slices
/// with CFQ.
const SLICE: Nanos = Nanos::from_millis(150);

/// But for at least this many requests, where each takes long.
const SLICE_REQUESTS: u64 = 8;

/// A reader of one block after another.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Where its last request ended.
    end: u64,
    /// Requests that continued where the one before ended, since the queue last waited for one in vain.
    proof: u32,
    /// When it was served last, by number of requests.
    used: u64,
}

/// The stream that was served last.
#[derive(Clone, Copy, Debug)]
struct Slice {
    stream: usize,
    /// When others are served although the stream goes on.
    ends: Nanos,
    /// Until when its next request is waited for; set when it had none.
    patience: Option<Nanos>,
}

/// Streams of one class on a medium where something moves.
#[derive(Debug)]
struct Anticipation {
    idle: Nanos,
    streams: [Stream; STREAMS],
    turn: Option<Slice>,
    served: u64,
}

impl Anticipation {
    /// A request that begins at `offset` is served; `went_on` says that it begins where the one before ended.
    fn handle_served(&mut self, view: &View<'_>, offset: u64, went_on: bool) {
        self.served += 1;
        if let Some(turn) = self.turn.as_mut().filter(|_| went_on) {
            turn.patience = None;
            self.streams[turn.stream].proof += 1;
            self.streams[turn.stream].used = self.served;
            return;
        }
        let known = self.streams.iter().position(|stream| stream.used > 0 && stream.end == offset);
        let stream = known.unwrap_or_else(|| {
            let quiet = (0..STREAMS).min_by_key(|stream| self.streams[*stream].used).unwrap_or(0);
            self.streams[quiet] = Stream::default();
            quiet
        });
        self.streams[stream].proof += u32::from(known.is_some());
        self.streams[stream].used = self.served;
        let slice = SLICE.max(Nanos(view.pace.0.saturating_mul(SLICE_REQUESTS)));
        self.turn = Some(Slice { stream, ends: view.now + slice, patience: None });
    }

    /// The medium has come to `head`. Returns until when nothing else should be served, if the stream there
    /// is worth waiting for.
    fn wait(&mut self, now: Nanos) -> Option<Nanos> {
        let turn = self.turn.as_mut()?;
        let stream = &mut self.streams[turn.stream];
        if stream.proof < PROOF || turn.ends <= now {
            return None;
        }
        let patience = *turn.patience.get_or_insert((now + self.idle).min(turn.ends));
        if now < patience {
            return Some(patience);
        }
        stream.proof = 0;
        None
    }
}

#[derive(Debug)]
pub(super) struct Headstart {
    expiry: [Nanos; Direction::COUNT],
    /// Whether the next request is served in order of position.
    sweeps: bool,
    /// Where it is not known which order is quicker.
    trial: Option<Trial>,
    batch: u32,
    /// How many may still be served before deadlines are checked.
    left: u32,
    /// Where waiting for a stream can save a seek.
    anticipation: Option<Anticipation>,
}

impl Headstart {
    pub(super) fn new(config: &QueueConfig, class: Class) -> Self {
        let may_sweep = class <= Class::ReadAhead;
        let sweeps = config.by_position == ByPosition::Always && may_sweep;
        let trial = (config.by_position == ByPosition::Tried && may_sweep).then(Trial::default);
        let expiry = [config.read_deadline, config.write_deadline];
        let anticipation = (sweeps && config.slice_idle > Nanos::ZERO).then(|| Anticipation {
            idle: config.slice_idle,
            streams: [Stream::default(); STREAMS],
            turn: None,
            served: 0,
        });
        Self { expiry, sweeps, trial, batch: config.batch.max(1), left: 0, anticipation }
    }

    /// The oldest request of a direction that has waited beyond its deadline; reads first.
    fn expired(&self, view: &View<'_>) -> Option<Candidate> {
        let two_sweeps = Nanos(view.pace.0.saturating_mul(2 * u64::from(view.waiting.len())));
        [Direction::Read, Direction::Write].into_iter().find_map(|direction| {
            let oldest = view.waiting.oldest_of(direction)?;
            let deadline = view.arena.get(oldest.index).came + self.expiry[direction.index()].max(two_sweeps);
            (deadline <= view.now).then_some(oldest)
        })
    }

    /// The end of the requests that lie one behind the other from this one on.
    fn behind(view: &View<'_>, first: Candidate) -> u64 {
        let mut end = view.arena.get(first.index).range.end();
        while let Some(next) = view.waiting.at_or_above(Direction::Read.index(), end) {
            let range = view.arena.get(next.index).range;
            if range.offset != end {
                break;
            }
            end = range.end().max(end + 1);
        }
        end
    }

    /// The next request, whether or not a stream is expected.
    ///
    /// `ahead` is the first read at or above the head, if there is one.
    fn next(&mut self, view: &View<'_>, ahead: Option<Candidate>) -> Candidate {
        if self.left == 0 {
            self.left = self.batch;
            if let Some(expired) = self.expired(view) {
                return expired;
            }
        }
        self.left -= 1;
        if let Some(read) = self.in_order(view, Direction::Read, ahead) {
            return read;
        }
        let ahead = view.waiting.at_or_above(Direction::Write.index(), view.head);
        self.in_order(view, Direction::Write, ahead).expect("called only with a request")
    }

    /// The next one of a direction, of which `ahead` is the first at or above the head.
    fn in_order(&self, view: &View<'_>, direction: Direction, ahead: Option<Candidate>) -> Option<Candidate> {
        if self.sweeps {
            return if ahead.is_some() { ahead } else { view.waiting.lowest(direction.index()) };
        }
        let oldest = view.waiting.oldest_of(direction)?;
        let contiguous = ahead.filter(|ahead| view.arena.get(ahead.index).range.offset == view.head);
        Some(contiguous.unwrap_or(oldest))
    }
}

impl Elevator for Headstart {
    fn grouping(&self) -> Grouping {
        Grouping::ByDirection
    }

    fn choose(&mut self, view: &View<'_>) -> Choice {
        if let Some(trial) = &mut self.trial {
            self.sweeps = trial.choose(view.now, view.waiting.len());
        }
        let mut ahead = view.waiting.at_or_above(Direction::Read.index(), view.head);
        // Where the sweep goes on: behind a stream that has had its slice.
        let mut past = view.head;
        if let Some(anticipation) = &mut self.anticipation {
            // Neighbours went along with the chosen request, so only now its end is known.
            if let Some(turn) = anticipation.turn {
                anticipation.streams[turn.stream].end = view.head;
            }
            let goes_on = ahead.filter(|ahead| view.arena.get(ahead.index).range.offset == view.head);
            let has_time = anticipation.turn.is_none_or(|turn| view.now < turn.ends);
            match goes_on {
                Some(next) if has_time => {
                    anticipation.handle_served(view, view.head, true);
                    return Choice::Request(next);
                }
                Some(next) => {
                    past = Self::behind(view, next);
                    ahead = view.waiting.at_or_above(Direction::Read.index(), past);
                }
                None => {
                    if let Some(then) = anticipation.wait(view.now) {
                        return Choice::WaitUntil(then);
                    }
                }
            }
        }
        let next = self.next(&View { head: past, ..*view }, ahead);
        if let Some(anticipation) = &mut self.anticipation {
            let entry = view.arena.get(next.index);
            if entry.direction == Direction::Read {
                anticipation.handle_served(view, entry.range.offset, false);
            } else {
                anticipation.turn = None;
            }
        }
        Choice::Request(next)
    }
}
