//! First come, first served: for media where order does not matter, and to compare with.
//!
//! Like Linux's elevator of that name, it merges neighbours and orders nothing.

use super::{Choice, Elevator, View};
use crate::waiting::Grouping;

#[derive(Debug)]
pub(super) struct Noop;

impl Elevator for Noop {
    fn grouping(&self) -> Grouping {
        Grouping::Together
    }

    fn choose(&mut self, view: &View<'_>) -> Choice {
        Choice::Request(view.waiting.oldest(view.arena).expect("called only with a request"))
    }
}
