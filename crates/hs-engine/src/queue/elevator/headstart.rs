//! Class, deadline, direction and contiguity aware.
//!
//! Each class has an elevator of its own, and this one knows which. Where somebody waits (demand), requests are served
//! one way across a medium that seeks, and in order of arrival on one that does not. Where nobody waits yet, order
//! of arrival is the order of need, so it is kept, but whatever continues where the head is goes first: it costs
//! no seek. Reads go before writes until a write has expired. What has expired goes first, one in every `batch`, so
//! that a crowd of expired requests is still served in good order. And nothing expires before the medium, as fast as
//! it has been, could have worked off twice what waits: a deadline that every request misses only spoils the order.

use hs_units::Nanos;

use super::{Choice, Elevator, View};
use crate::queue::config::QueueConfig;
use crate::queue::request::{Class, Direction};
use crate::queue::waiting::{Found, Grouping};

#[derive(Debug)]
pub(super) struct Headstart {
    expiry: [Nanos; Direction::COUNT],
    /// Whether requests are served in order of position.
    sweeps: bool,
    batch: u32,
    /// How many may still be served before deadlines are looked at.
    left: u32,
}

impl Headstart {
    pub(super) fn new(config: &QueueConfig, class: Class) -> Self {
        let sweeps = config.by_position && class <= Class::ReadAhead;
        let expiry = [config.read_deadline, config.write_deadline];
        Self { expiry, sweeps, batch: config.batch.max(1), left: 0 }
    }

    /// The oldest request of a direction that has waited beyond its deadline; reads first.
    fn expired(&self, view: View<'_>) -> Option<Found> {
        let two_sweeps = Nanos(view.pace.0.saturating_mul(2 * u64::from(view.waiting.len())));
        [Direction::Read, Direction::Write].into_iter().find_map(|direction| {
            let oldest = view.waiting.oldest_of(direction)?;
            let deadline = view.arena.get(oldest.index).came + self.expiry[direction.index()].max(two_sweeps);
            (deadline <= view.now).then_some(oldest)
        })
    }

    fn in_order(&self, view: View<'_>, direction: Direction) -> Option<Found> {
        let oldest = view.waiting.oldest_of(direction)?;
        let group = direction.index();
        let ahead = view.waiting.at_or_above(group, view.head);
        if self.sweeps {
            return ahead.or_else(|| view.waiting.at_or_above(group, 0));
        }
        let contiguous = ahead.filter(|ahead| view.arena.get(ahead.index).range.offset == view.head);
        Some(contiguous.unwrap_or(oldest))
    }
}

impl Elevator for Headstart {
    fn grouping(&self) -> Grouping {
        Grouping::ByDirection
    }

    fn choose(&mut self, view: View<'_>) -> Choice {
        if self.left == 0 {
            self.left = self.batch;
            if let Some(expired) = self.expired(view) {
                return Choice::Request(expired);
            }
        }
        self.left -= 1;
        let read = self.in_order(view, Direction::Read);
        let next = read.or_else(|| self.in_order(view, Direction::Write));
        Choice::Request(next.expect("an elevator is asked when somebody waits"))
    }
}
