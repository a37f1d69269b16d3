//! One class: what waits in it, in which order it goes, and how long it has not been served.

use hs_units::Nanos;

use super::arena::Arena;
use super::config::{ClassConfig, QueueConfig};
use super::elevator::{self, Choice, Elevator, View};
use super::request::Class;
use super::waiting::Waiting;

/// The requests of one class.
#[derive(Debug)]
pub(super) struct Lane {
    pub config: ClassConfig,
    pub waiting: Waiting,
    elevator: Box<dyn Elevator>,
    /// When somebody began to wait, or was served last.
    pub since: Nanos,
    /// Requests to the medium that have not ended.
    pub in_service: u32,
    /// When a request of the class came or ended last.
    pub seen: Option<Nanos>,
}

impl Lane {
    pub(super) fn new(config: &QueueConfig, class: Class) -> Self {
        let elevator = elevator::new(config, class);
        Self {
            config: config.classes[class.index()],
            waiting: Waiting::new(elevator.grouping()),
            elevator,
            since: Nanos::ZERO,
            in_service: 0,
            seen: None,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the class must be served, however busy others are; `None` while nobody waits.
    pub(super) fn due(&self) -> Option<Nanos> {
        (!self.is_empty()).then(|| self.since + self.config.ageing)
    }

    pub(super) fn insert(&mut self, now: Nanos, arena: &mut Arena, index: u32) {
        if self.is_empty() {
            self.since = now;
        }
        self.waiting.insert(arena, index);
    }

    pub(super) fn choose(&mut self, now: Nanos, arena: &Arena, head: u64) -> Choice {
        self.elevator.choose(View { now, waiting: &self.waiting, arena, head })
    }
}
