//! One class: its waiting requests, their order, and how long it has not been served.

use hs_units::Nanos;

use super::arena::{Arena, EntryState};
use super::clients::Clients;
use super::config::{ClassConfig, QueueConfig};
use super::elevator::{self, Choice, Elevator, View};
use super::merge::Merged;
use super::metrics::ClassMetrics;
use super::request::Class;
use super::shares::Shares;
use super::waiting::{Candidate, Waiting};

/// The requests of one class.
#[derive(Debug)]
pub(super) struct Lane {
    pub config: ClassConfig,
    /// Those that the elevator chooses from.
    waiting: Waiting,
    elevator: Box<dyn Elevator>,
    /// Which requests are admitted to `waiting`; `None` when the elevator shares by itself, or clients have
    /// no shares.
    pub shares: Option<Shares>,
    /// Requests that were not sent to the medium yet, admitted or not.
    pub queued: u32,
    /// When the class must be served, however busy others are: its ageing after a request began to wait, or
    /// after the class was served last. [`Lane::NEVER`] while no request waits.
    pub due: Nanos,
    /// When a request of the class came or ended last.
    pub seen: Option<Nanos>,
    pub metrics: ClassMetrics,
}

impl Lane {
    /// Later than any time.
    pub(super) const NEVER: Nanos = Nanos(u64::MAX);

    pub(super) fn new(config: &QueueConfig, class: Class) -> Self {
        let elevator = elevator::new(config, class);
        let shares = config.fairness.filter(|_| !elevator.shares()).map(Shares::new);
        Self {
            config: config.classes[class.index()],
            waiting: Waiting::new(elevator.grouping()),
            elevator,
            shares,
            queued: 0,
            due: Self::NEVER,
            seen: None,
            metrics: ClassMetrics::default(),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// Takes in a request that is in no list.
    pub(super) fn insert(&mut self, now: Nanos, arena: &mut Arena, index: u32) {
        if self.is_empty() {
            self.due = now + self.config.ageing;
        }
        self.queued += 1;
        self.seen = Some(now);
        let admitted = self.shares.as_mut().is_none_or(|shares| shares.handle_request(arena, index));
        if admitted {
            self.waiting.insert(arena, index);
        }
    }

    /// Takes out a request that was not sent to the medium.
    pub(super) fn remove(&mut self, arena: &mut Arena, index: u32) {
        self.queued -= 1;
        if self.is_empty() {
            self.due = Self::NEVER;
        }
        let place = arena.get(index).place;
        if place == EntryState::Waiting {
            self.waiting.remove(arena, index);
        }
        if let Some(shares) = &mut self.shares {
            shares.handle_removed(arena, index);
        }
    }

    /// The request that the elevator chooses, of a class that is not empty.
    pub(super) fn choose(&mut self, now: Nanos, arena: &mut Arena, head: u64, pace: Nanos) -> Choice {
        self.admit(arena);
        self.elevator.choose(&View { now, waiting: &self.waiting, arena, head, pace })
    }

    /// The client whose request was admitted first.
    pub(super) fn first_client(&self, arena: &Arena) -> Option<u32> {
        self.waiting.oldest(arena).map(|first| arena.get(first.index).client)
    }

    /// The request that was admitted first, of a class that is not empty.
    pub(super) fn oldest(&mut self, arena: &mut Arena) -> Candidate {
        self.admit(arena);
        self.waiting.oldest(arena).expect("a class that is not empty has admitted a request")
    }

    /// Takes the chosen request and its neighbours out to be served.
    pub(super) fn take(
        &mut self,
        now: Nanos,
        arena: &mut Arena,
        clients: &mut Clients,
        chosen: Candidate,
        merged: &mut Merged,
    ) {
        merged.gather(&self.waiting, arena, chosen, self.config.merge_bytes);
        self.waiting.remove_run(arena, merged.lowest, &merged.members);
        for member in &merged.members {
            let entry = arena.get_mut(*member);
            entry.place = EntryState::InService;
            let waited = now.saturating_sub(entry.came);
            self.metrics.waited += waited;
            self.metrics.longest_wait = self.metrics.longest_wait.max(waited);
            clients.get_mut(entry.client).bytes += entry.range.len;
            if let Some(shares) = &mut self.shares {
                shares.handle_dispatched(entry);
            }
        }
        let members = merged.members.len() as u32;
        self.queued -= members;
        self.metrics.requests += u64::from(members);
        self.metrics.dispatches += 1;
        self.metrics.bytes += merged.range.len;
        self.due = if self.is_empty() { Self::NEVER } else { now + self.config.ageing };
    }

    fn admit(&mut self, arena: &mut Arena) {
        let Some(shares) = &mut self.shares else { return };
        while let Some(index) = shares.admit(arena, self.waiting.is_empty()) {
            self.waiting.insert(arena, index);
        }
    }
}
