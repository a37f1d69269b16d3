//! Sorted batches, reads before writes, and no request waits much longer than a deadline.
//!
//! Linux's mq-deadline (block/mq-deadline.c, Documentation/block/deadline-iosched.rst): a batch of up to
//! `fifo_batch` requests of one direction in order of position; then the direction is chosen anew, reads
//! first unless writes were passed over twice; and the next batch begins with the oldest request when that
//! has expired, else where the last one ended.

use hs_units::Nanos;

use super::{Choice, Elevator, View};
use crate::config::QueueConfig;
use crate::request::Direction;
use crate::waiting::{Candidate, Grouping};

/// How often reads go before writes that wait; Linux's `writes_starved`.
const WRITES_STARVED: u32 = 2;

#[derive(Debug)]
pub(super) struct Deadline {
    expiry: [Nanos; Direction::COUNT],
    batch: u32,
    direction: Direction,
    /// Where the last request of each direction was, one byte further.
    position: [u64; Direction::COUNT],
    left: u32,
    passed_over: u32,
}

impl Deadline {
    pub(super) fn new(config: &QueueConfig) -> Self {
        Self {
            expiry: [config.read_deadline, config.write_deadline],
            batch: config.batch.max(1),
            direction: Direction::Read,
            position: [0; Direction::COUNT],
            left: 0,
            passed_over: 0,
        }
    }

    fn ahead(&self, view: &View<'_>, direction: Direction) -> Option<Candidate> {
        view.waiting.at_or_above(direction.index(), self.position[direction.index()])
    }

    /// The direction of the next batch.
    fn turn(&mut self, view: &View<'_>) -> Direction {
        let reads = view.waiting.oldest_of(Direction::Read).is_some();
        let writes = view.waiting.oldest_of(Direction::Write).is_some();
        if reads && (!writes || self.passed_over < WRITES_STARVED) {
            self.passed_over += u32::from(writes);
            return Direction::Read;
        }
        self.passed_over = 0;
        Direction::Write
    }
}

impl Elevator for Deadline {
    fn grouping(&self) -> Grouping {
        Grouping::ByDirection
    }

    fn choose(&mut self, view: &View<'_>) -> Choice {
        let within_batch = if self.left > 0 { self.ahead(view, self.direction) } else { None };
        let next = within_batch.unwrap_or_else(|| {
            self.direction = self.turn(view);
            self.left = self.batch;
            let oldest = view.waiting.oldest_of(self.direction).expect("the direction has requests");
            let expired = view.arena.get(oldest.index).came + self.expiry[self.direction.index()] <= view.now;
            let ahead = if expired { None } else { self.ahead(view, self.direction) };
            ahead.unwrap_or(oldest)
        });
        self.left -= 1;
        self.position[self.direction.index()] = view.arena.get(next.index).range.end();
        Choice::Request(next)
    }
}
