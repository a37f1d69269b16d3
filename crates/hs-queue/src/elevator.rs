//! Elevators: which request of a class is next.

mod c_look;
mod cfq;
mod deadline;
mod headstart;
mod noop;
mod trial;

use std::fmt;

use hs_units::Nanos;

use super::arena::Arena;
use super::config::{ElevatorKind, QueueConfig};
use super::request::Class;
use super::waiting::{Candidate, Grouping, Waiting};

/// What an elevator may look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub now: Nanos,
    /// Requests of the class, at least one.
    pub waiting: &'a Waiting,
    pub arena: &'a Arena,
    /// Where the request before ended.
    pub head: u64,
    /// How long one request takes, as seen so far.
    pub pace: Nanos,
}

/// An elevator's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// This request.
    Request(Candidate),
    /// None of those that wait: a better one is expected before then.
    WaitUntil(Nanos),
}

/// Chooses among the requests of one class. One file each, named by its published name.
pub(super) trait Elevator: fmt::Debug + Send {
    /// How the elevator wants requests sorted; those of one group can be merged.
    fn grouping(&self) -> Grouping;

    /// Whether it shares among clients by itself, so that nothing else must.
    fn shares(&self) -> bool {
        false
    }

    /// The next request. Unless it is to wait, what it answers will be dispatched.
    fn choose(&mut self, view: &View<'_>) -> Choice;
}

/// A new elevator for a class.
pub(super) fn new(config: &QueueConfig, class: Class) -> Box<dyn Elevator> {
    match config.elevator {
        ElevatorKind::Noop => Box::new(noop::Noop),
        ElevatorKind::Deadline => Box::new(deadline::Deadline::new(config)),
        ElevatorKind::Cfq => Box::new(cfq::Cfq::new(config)),
        ElevatorKind::CLook => Box::new(c_look::CLook),
        ElevatorKind::Headstart => Box::new(headstart::Headstart::new(config, class)),
    }
}
