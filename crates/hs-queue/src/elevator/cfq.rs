//! A queue and a slice of time for each client in turn.
//!
//! Linux's CFQ (block/cfq-iosched.c until 5.0, Documentation/block/cfq-iosched.txt): within its slice a
//! client's requests are served in order of position. When a client on a medium that seeks has nothing more,
//! the slice waits for a moment. A client that reads one block after another has no second request waiting,
//! and would otherwise lose its slice at every block. Fair in time, not in bytes.

use hs_units::Nanos;

use super::{Choice, Elevator, View};
use crate::config::QueueConfig;
use crate::waiting::{Candidate, Grouping};

#[derive(Debug)]
pub(super) struct Cfq {
    slice: Nanos,
    idle: Nanos,
    /// The client that has the slice, since when, and how long the slice waits for its next request.
    turn: Option<Slice>,
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    client: u32,
    ends: Nanos,
    /// Set when the client had no request: until then no other client is served.
    patience: Option<Nanos>,
}

impl Cfq {
    pub(super) fn new(config: &QueueConfig) -> Self {
        Self { slice: config.slice, idle: config.slice_idle, turn: None }
    }

    /// The client's next request above the head, else its lowest.
    fn of_client(view: &View<'_>, client: u32) -> Option<Candidate> {
        let ahead = view.waiting.at_or_above(client as usize, view.head);
        ahead.or_else(|| view.waiting.lowest(client as usize))
    }

    /// The next client, in a circle by number.
    fn next_client(&self, view: &View<'_>) -> u32 {
        let after = self.turn.map_or(0, |turn| turn.client as usize + 1);
        let next = view.waiting.group_from(after).or_else(|| view.waiting.group_from(0));
        next.expect("called only with a request") as u32
    }
}

impl Elevator for Cfq {
    fn grouping(&self) -> Grouping {
        Grouping::ByClient
    }

    fn shares(&self) -> bool {
        true
    }

    fn choose(&mut self, view: &View<'_>) -> Choice {
        if let Some(turn) = self.turn.as_mut().filter(|turn| view.now < turn.ends) {
            if let Some(request) = Self::of_client(view, turn.client) {
                turn.patience = None;
                return Choice::Request(request);
            }
            let patience = *turn.patience.get_or_insert_with(|| (view.now + self.idle).min(turn.ends));
            if view.now < patience {
                return Choice::WaitUntil(patience);
            }
        }
        let client = self.next_client(view);
        self.turn = Some(Slice { client, ends: view.now + self.slice, patience: None });
        Choice::Request(Self::of_client(view, client).expect("the client was found by a request"))
    }
}
