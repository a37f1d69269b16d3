//! One way across the medium, then back to the lowest request: no request is passed twice, and the middle is
//! not favoured over the edges as it is by an elevator that turns round.
//!
//! C-LOOK as in Worthington, Ganger and Patt, "Scheduling Algorithms for Modern Disk Drives" (SIGMETRICS
//! 1994), section 3. It knows no deadline: a client that writes just ahead of the head can keep it there.

use super::{Choice, Elevator, View};
use crate::waiting::Grouping;

#[derive(Debug)]
pub(super) struct CLook;

impl Elevator for CLook {
    fn grouping(&self) -> Grouping {
        Grouping::Together
    }

    fn choose(&mut self, view: &View<'_>) -> Choice {
        let ahead = view.waiting.at_or_above(0, view.head);
        let next = ahead.or_else(|| view.waiting.lowest(0));
        Choice::Request(next.expect("called only with a request"))
    }
}
