//! Engines with a mistake in them, to see that a [`World`](super::World) notices.

use hs_engine::PrefetchConfig;
use hs_engine::queue::{Class, Dispatch, DispatchId, Poll, Queue, QueueConfig, Request, RequestTag, Ticket};
use hs_units::Nanos;

/// A mistake of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A request is forgotten.
    LosesRequest,
    /// A request ends, and nobody is told.
    LosesEnd,
    /// A request ends twice.
    EndsTwice,
    /// A request to the medium is shorter than what it is said to hold.
    CutsShort,
    /// The same request to the medium is made twice.
    SendsTwice,
    /// A class that waits is never served while a higher one wants something.
    Starves,
    /// What nobody waits for goes before what somebody waits for.
    Inverts,
    /// More requests are in service than may be.
    IgnoresDepth,
    /// The prefetch holds more than its budget.
    IgnoresPrefetchBudget,
    /// The cache keeps what it held when its budget shrinks.
    IgnoresCacheBudget,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::LosesRequest,
        Self::LosesEnd,
        Self::EndsTwice,
        Self::CutsShort,
        Self::SendsTwice,
        Self::Starves,
        Self::Inverts,
        Self::IgnoresDepth,
        Self::IgnoresPrefetchBudget,
        Self::IgnoresCacheBudget,
    ];
}

/// A request goes wrong when so many went well, as a mistake does that shows seldom.
const WELL: u64 = 20;

/// The engine's queue, perhaps with a mistake. It has the calls of [`Queue`] that a world makes.
pub(super) struct PlantedQueue {
    queue: Queue,
    fault: Option<Fault>,
    calls: u64,
    ended: Option<u64>,
    /// A request to the medium that is to be made again.
    again: Option<Dispatch>,
}

impl PlantedQueue {
    pub(super) fn new(config: QueueConfig, fault: Option<Fault>) -> Self {
        let mut config = config;
        for class in &mut config.classes {
            match fault {
                Some(Fault::Starves) => class.ageing = Nanos(u64::MAX / 2),
                Some(Fault::IgnoresDepth) => class.depth += 1,
                _ => {}
            }
        }
        Self { queue: Queue::new(config), fault, calls: 0, ended: None, again: None }
    }

    /// Whether a mistake of this kind shows now.
    fn goes_wrong(&mut self, fault: Fault) -> bool {
        if self.fault != Some(fault) {
            return false;
        }
        self.calls += 1;
        self.calls == WELL
    }

    pub(super) fn handle_request(&mut self, now: Nanos, request: Request) -> Ticket {
        let inverted = match request.class {
            Class::Demand => Class::Prefetch,
            Class::ReadAhead | Class::Prefetch | Class::Fill => Class::Demand,
        };
        let class = if self.fault == Some(Fault::Inverts) { inverted } else { request.class };
        let ticket = self.queue.handle_request(now, Request { class, ..request });
        if request.class == Class::Demand && self.goes_wrong(Fault::LosesRequest) {
            self.queue.handle_cancel(now, ticket);
        }
        ticket
    }

    pub(super) fn handle_promote(&mut self, now: Nanos, ticket: Ticket, class: Class) -> bool {
        self.queue.handle_promote(now, ticket, class)
    }

    pub(super) fn poll(&mut self, now: Nanos) -> Poll {
        if let Some(again) = self.again.take() {
            return Poll::Dispatch(again);
        }
        let mut dispatch = match self.queue.poll(now) {
            Poll::Dispatch(dispatch) => dispatch,
            other => return other,
        };
        if self.goes_wrong(Fault::CutsShort) {
            dispatch.range.len -= dispatch.range.len / 3;
        }
        if self.goes_wrong(Fault::SendsTwice) {
            self.again = Some(dispatch);
        }
        Poll::Dispatch(dispatch)
    }

    pub(super) fn tags(&self, id: DispatchId) -> impl Iterator<Item = RequestTag> {
        self.queue.tags(id)
    }

    /// The tags of the requests that have ended.
    pub(super) fn handle_done(&mut self, now: Nanos, id: DispatchId, bytes: u64) -> Vec<u64> {
        let mut tags: Vec<u64> =
            self.queue.handle_done(now, id, bytes).map(|finished| finished.tag.0).collect();
        if tags.len() > 1 && self.goes_wrong(Fault::LosesEnd) {
            tags.pop();
        }
        if self.goes_wrong(Fault::EndsTwice) {
            tags.extend(self.ended);
        }
        self.ended = tags.last().copied().or(self.ended);
        tags
    }

    pub(super) fn waiting(&self) -> u64 {
        self.queue.waiting()
    }
}

/// What the prefetch is told of its limits.
pub(super) fn limits(limits: PrefetchConfig, fault: Option<Fault>) -> PrefetchConfig {
    let times = if fault == Some(Fault::IgnoresPrefetchBudget) { 3 } else { 1 };
    PrefetchConfig { budget_bytes: limits.budget_bytes * times, ..limits }
}
