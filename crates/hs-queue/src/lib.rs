//! The I/O scheduler: what goes to the medium next, of all that is wanted from it.
//!
//! `handle_*` in, [`Queue::poll`] out, `now` is an argument. A request waits in its [`Class`]; within one
//! class an elevator says whose turn it is, and what lies next to it goes with it. docs/ENGINE.md says what
//! each policy is for.
//!
//! The queue does not know which requests conflict: a client that reads what it is writing waits for the
//! write itself.

#![forbid(unsafe_code)]

mod arena;
mod clients;
mod config;
mod elevator;
mod heap;
mod lane;
mod merge;
mod metrics;
mod pace;
mod positions;
mod recorder;
mod request;
mod service;
mod shares;
mod waiting;

use hs_units::Nanos;

use arena::Arena;
use clients::Clients;
pub use config::{
    ByPosition, ClassConfig, DEMAND_MERGE_BYTES, ElevatorKind, FairnessConfig, MediumTraits, QueueConfig,
};
use elevator::Choice;
use lane::Lane;
use merge::Merged;
pub use metrics::{ClassMetrics, QueueMetrics, jain_index};
use pace::Pace;
pub use recorder::{Event, Recorded, Recorder};
pub use request::{
    Class, ClientKey, Direction, Dispatch, DispatchId, Finished, Poll, Request, RequestTag, Ticket,
};
pub use service::Finish;
use service::Services;
use waiting::Candidate;

/// The class counters that a request of each class is in: its own and those of more urgent classes.
const COUNTED_IN: [[u32; Class::COUNT]; Class::COUNT] =
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]];

/// Requests that wait for a medium or are served by it.
#[derive(Debug)]
pub struct Queue {
    config: QueueConfig,
    arena: Arena,
    clients: Clients,
    lanes: [Lane; Class::COUNT],
    /// For each class, requests to the medium of it and of less urgent ones that have not ended.
    under_way: [u32; Class::COUNT],
    services: Services,
    /// Where the request before ended.
    head: u64,
    merged: Merged,
    /// How long one request takes while the medium is busy.
    pace: Pace,
    recorder: Option<Recorder>,
}

impl Queue {
    /// A queue without requests.
    #[must_use]
    pub fn new(config: QueueConfig) -> Self {
        Self {
            config,
            arena: Arena::default(),
            clients: Clients::default(),
            lanes: Class::ALL.map(|class| Lane::new(&config, class)),
            under_way: [0; Class::COUNT],
            services: Services::default(),
            head: 0,
            merged: Merged::new(),
            pace: Pace::default(),
            recorder: None,
        }
    }

    /// How the queue behaves.
    #[must_use]
    pub const fn config(&self) -> &QueueConfig {
        &self.config
    }

    /// Keeps the last `capacity` events from now on.
    pub fn start_recording(&mut self, capacity: usize) {
        self.recorder = Some(Recorder::new(capacity));
    }

    /// The events that are kept, if they are.
    pub const fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Adds a request. Call [`Queue::poll`] afterwards.
    ///
    /// # Panics
    /// When the range ends beyond 2^64.
    // Inlined, so that a request that the caller has just put together is not read back from memory.
    #[inline]
    pub fn handle_request(&mut self, now: Nanos, request: Request) -> Ticket {
        assert!(request.range.offset.checked_add(request.range.len).is_some(), "a range ends below 2^64");
        let class = if self.config.by_class { request.class } else { Class::Demand };
        let client = self.client(request.client);
        self.clients.get_mut(client).handle_request(now);
        let Request { tag, direction, range, .. } = request;
        self.record(now, Event::Requested { tag, class, direction, client: request.client, range });
        let ticket = self.arena.insert(now, &request, class, client);
        self.lanes[class.index()].insert(now, &mut self.arena, ticket.index);
        ticket
    }

    /// Withdraws a request. False when it was in service already, or has ended.
    pub fn handle_cancel(&mut self, now: Nanos, ticket: Ticket) -> bool {
        let Some(index) = self.arena.waiting(ticket) else { return false };
        let entry = *self.arena.get(index);
        self.lanes[entry.class.index()].remove(&mut self.arena, index);
        self.clients.get_mut(entry.client).handle_ended(now);
        self.arena.release(index);
        self.record(now, Event::Withdrawn { tag: entry.tag });
        true
    }

    /// Makes a request more urgent, because a reader now waits for it. False when it was in service already,
    /// has ended, or is already as urgent.
    pub fn handle_promote(&mut self, now: Nanos, ticket: Ticket, class: Class) -> bool {
        let Some(index) = self.arena.waiting(ticket) else { return false };
        let old = self.arena.get(index).class;
        if class >= old || !self.config.by_class {
            return false;
        }
        self.lanes[old.index()].remove(&mut self.arena, index);
        self.arena.get_mut(index).class = class;
        let tag = self.arena.get(index).tag;
        self.lanes[class.index()].insert(now, &mut self.arena, index);
        self.record(now, Event::Promoted { tag, class });
        true
    }

    /// A client opened a connection. It inherits the service of the client: all connections of a client have
    /// one share together, and more of them gain nothing.
    pub fn open_connection(&mut self, client: ClientKey) {
        let number = self.client(client);
        self.clients.get_mut(number).connections += 1;
    }

    /// A client closed a connection. The service of the connection stays with the client, so reconnecting
    /// gains nothing either.
    pub fn close_connection(&mut self, client: ClientKey) {
        if let Some(number) = self.clients.find(client) {
            let client = self.clients.get_mut(number);
            client.connections = client.connections.saturating_sub(1);
        }
    }

    /// What to send to the medium now. Call it again until the result is not [`Poll::Dispatch`].
    // Inlined, since a decision goes through the caller's crate and this one.
    #[inline]
    pub fn poll(&mut self, now: Nanos) -> Poll {
        if !self.has_room(Class::Demand) {
            return Poll::Idle;
        }
        let mut then = Class::ALL[1..].iter().fold(Lane::NEVER, |first, class| first.min(self.due(*class)));
        if then <= now && then != Lane::NEVER {
            return self.dispatch_aged(now, then);
        }
        for class in Class::ALL {
            if self.lanes[class.index()].is_empty() || !self.has_room(class) {
                continue;
            }
            match self.may_begin(class) {
                begins if begins <= now => {}
                begins => {
                    then = then.min(begins);
                    break;
                }
            }
            match self.lanes[class.index()].choose(now, &mut self.arena, self.head, self.pace.request()) {
                Choice::Request(chosen) => return self.dispatch(now, class, chosen, false),
                Choice::WaitUntil(better) => then = then.min(better),
            }
            break;
        }
        if then == Lane::NEVER { Poll::Idle } else { Poll::WaitUntil(then) }
    }

    /// The caller's names of what a dispatch holds.
    pub fn tags(&self, id: DispatchId) -> impl Iterator<Item = RequestTag> {
        self.services.members(&self.arena, id).map(|index| self.arena.get(index).tag)
    }

    /// The medium has answered, or failed: `bytes` came, from the beginning of the range on. The result
    /// yields the requests that have ended. Those that the caller does not take out of it end as well.
    ///
    /// # Panics
    /// When the dispatch has ended before.
    #[inline]
    pub fn handle_done(&mut self, now: Nanos, id: DispatchId, bytes: u64) -> Finish<'_> {
        let service = self.services.finish(id);
        self.record(now, Event::Ended { class: service.class, bytes, range: service.range });
        self.pace.handle_ended(now, service.requests);
        for (count, ended) in self.under_way.iter_mut().zip(COUNTED_IN[service.class.index()]) {
            *count -= ended;
        }
        let lane = &mut self.lanes[service.class.index()];
        lane.seen = Some(now);
        Finish::new(&mut self.arena, &mut self.clients, lane, now, service, bytes)
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.lanes.iter().map(|lane| u64::from(lane.queued)).sum()
    }

    /// What the queue has done so far.
    #[must_use]
    pub fn metrics(&self, now: Nanos) -> QueueMetrics {
        QueueMetrics {
            classes: std::array::from_fn(|class| self.lanes[class].metrics),
            clients: self.clients.iter().count() as u32,
            jain_index: metrics::jain_of(&self.clients, now),
        }
    }

    /// The number of a client; a new client gets one.
    fn client(&mut self, key: ClientKey) -> u32 {
        if let Some(number) = self.clients.find(key) {
            return number;
        }
        let lanes = &mut self.lanes;
        let may_forget = |number| {
            lanes.iter().filter_map(|lane| lane.shares.as_ref()).all(|shares| shares.may_forget(number))
        };
        let number = self.clients.add(key, may_forget);
        for shares in lanes.iter_mut().filter_map(|lane| lane.shares.as_mut()) {
            shares.forget(number);
        }
        number
    }

    fn has_room(&self, class: Class) -> bool {
        self.under_way[class.index()] < self.lanes[class.index()].config.depth
    }

    /// When the class is to be served although more urgent requests wait; [`Lane::NEVER`] when it is empty or
    /// has no room.
    fn due(&self, class: Class) -> Nanos {
        if self.has_room(class) { self.lanes[class.index()].due } else { Lane::NEVER }
    }

    /// When the class may begin, if nothing more urgent comes: a pause after more urgent requests have come
    /// or ended.
    fn may_begin(&self, class: Class) -> Nanos {
        let hold_off = self.lanes[class.index()].config.hold_off;
        if hold_off == Nanos::ZERO {
            return Nanos::ZERO;
        }
        // The stream, which is no client, itself knows when it may follow a read at once.
        let is_busy = self.under_way[Class::Demand.index()] > self.under_way[class.index()];
        if is_busy
            && self.clients.find(ClientKey::NONE) != self.lanes[class.index()].first_client(&self.arena)
        {
            return Lane::NEVER;
        }
        let seen = self.lanes[..class.index()].iter().filter_map(|lane| lane.seen).max();
        seen.map_or(Nanos::ZERO, |seen| seen + hold_off)
    }

    /// Sends the oldest of the class that was due then.
    #[cold]
    fn dispatch_aged(&mut self, now: Nanos, due: Nanos) -> Poll {
        let overdue = Class::ALL[1..].iter().find(|class| self.due(**class) == due);
        let class = *overdue.expect("a class is due");
        let lane = &mut self.lanes[class.index()];
        lane.metrics.aged += 1;
        let oldest = lane.oldest(&mut self.arena);
        self.dispatch(now, class, oldest, true)
    }

    fn dispatch(&mut self, now: Nanos, class: Class, chosen: Candidate, aged: bool) -> Poll {
        if self.under_way[Class::Demand.index()] == 0 {
            self.pace.handle_busy(now);
        }
        for (count, began) in self.under_way.iter_mut().zip(COUNTED_IN[class.index()]) {
            *count += began;
        }
        let lane = &mut self.lanes[class.index()];
        lane.take(now, &mut self.arena, &mut self.clients, chosen, &mut self.merged);
        self.head = self.merged.range.end();
        let dispatch = self.services.start(&mut self.arena, class, &self.merged);
        let Dispatch { range, direction, requests, .. } = dispatch;
        self.record(now, Event::Dispatched { class, direction, aged, requests, range });
        Poll::Dispatch(dispatch)
    }

    fn record(&mut self, now: Nanos, event: Event) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(now, event);
        }
    }
}

#[cfg(test)]
mod tests;
