//! From profiles to a layout plan: which blocks the hot region holds, in which chunks, in which order.
//!
//! [`plan()`] is the only entry point. The hot region is one sequential read that brings blocks in the order
//! in which a start first asks for them, so the plan's order is first access. Address order matters only
//! inside a chunk, which arrives as a unit.

#![forbid(unsafe_code)]

mod chunks;
mod coverage;
mod deadlines;
mod hints;
mod lead;
mod order;
mod placement;
mod plan;

#[cfg(test)]
mod tests;

pub use coverage::{Coverage, Covered, coverage};
pub use placement::{Placement, PlacementCosts};
pub use plan::{
    Combine, LayoutError, LayoutOptions, LayoutPlan, LayoutStats, PlannedChunk, PlannedHint, plan,
};
