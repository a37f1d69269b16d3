//! The latest events of the engine.

use hs_units::{ByteRange, Nanos};

use super::request::{Class, ClientKey, Direction, RequestTag};

/// Something that was reported to the engine or that it decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request came.
    Requested {
        /// The caller's name for it.
        tag: RequestTag,
        /// How urgent it is.
        class: Class,
        /// Which way the bytes go.
        direction: Direction,
        /// Who asks.
        client: ClientKey,
        /// Which bytes of the medium.
        range: ByteRange,
    },
    /// A request became more urgent, because a reader now waits for it.
    Promoted {
        /// The caller's name for it.
        tag: RequestTag,
        /// How urgent it is now.
        class: Class,
    },
    /// A request was withdrawn.
    Withdrawn {
        /// The caller's name for it.
        tag: RequestTag,
    },
    /// A request to the medium began.
    Dispatched {
        /// How urgent it is.
        class: Class,
        /// Which way the bytes go.
        direction: Direction,
        /// Whether it went before more urgent ones because its class had waited too long.
        aged: bool,
        /// How many requests it holds.
        requests: u32,
        /// Which bytes of the medium.
        range: ByteRange,
    },
    /// A request to the medium ended.
    Ended {
        /// How urgent it was.
        class: Class,
        /// Bytes that came, from the beginning of its range on.
        bytes: u64,
        /// Which bytes of the medium it was to bring.
        range: ByteRange,
    },
}

/// An event and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// When.
    pub at: Nanos,
    /// What.
    pub event: Event,
}

/// A ring of events of fixed size: what is new overwrites what is oldest, so that recording costs the same
/// always, and allocates nothing.
#[derive(Debug)]
pub struct Recorder {
    ring: Box<[Recorded]>,
    /// Events that were recorded, ever.
    recorded: u64,
}

impl Recorder {
    /// A recorder of the last `capacity` events, rounded up to a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let nothing = Event::Withdrawn { tag: RequestTag(0) };
        let empty = Recorded { at: Nanos::ZERO, event: nothing };
        let ring = vec![empty; capacity.max(1).next_power_of_two()].into_boxed_slice();
        Self { ring, recorded: 0 }
    }

    /// Keeps an event.
    pub fn record(&mut self, at: Nanos, event: Event) {
        let place = self.place(self.recorded);
        self.ring[place] = Recorded { at, event };
        self.recorded += 1;
    }

    /// The last `most` events that are kept, the oldest first.
    pub fn last(&self, most: usize) -> impl Iterator<Item = Recorded> {
        let kept = (self.ring.len() as u64).min(self.recorded).min(most as u64);
        (self.recorded - kept..self.recorded).map(|number| self.ring[self.place(number)])
    }

    /// Events that were recorded, ever.
    #[must_use]
    pub const fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Events that were overwritten.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.recorded.saturating_sub(self.ring.len() as u64)
    }

    const fn place(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept_in_order_and_the_others_counted() {
        let mut recorder = Recorder::new(3);
        assert_eq!(recorder.last(9).count(), 0);
        for tag in 0..7 {
            recorder.record(Nanos(tag), Event::Withdrawn { tag: RequestTag(tag) });
        }
        assert_eq!(recorder.lost(), 3);
        let kept = |most| recorder.last(most).map(|recorded| recorded.at.0).collect::<Vec<_>>();
        assert_eq!(kept(9), [3, 4, 5, 6]);
        assert_eq!(kept(2), [5, 6]);
    }
}
