//! Scheduling and prefetch policy as pure logic: `handle_*` in, `poll` out, `now` is an argument.
//!
//! The engine never touches a file or a clock. The [`Prefetch`] sees the sizes of the hot chunks, what the
//! medium answered and how long that took. It says which contiguous run of chunks to request next, or that a
//! reader that needs a chunk now should wait for the stream rather than make the medium seek
//! (docs/decisions/006-late-reads.md). The [`queue`] sees every request and says which one is next. The same
//! code can run against a model under a virtual clock.

#![forbid(unsafe_code)]

mod background;
pub mod cache;
pub mod disk;
mod estimate;
mod memory_budget;
mod neighbours;
mod prefetch;
mod read_ahead;

pub use estimate::MediumEstimate;
pub use hs_queue as queue;
pub use memory_budget::{MemoryBudget, MemoryBudgetConfig};
pub use neighbours::{NeighbourPrice, Neighbours};
pub use prefetch::{
    ChunkSize, EndReason, Late, LateRule, Next, Prefetch, PrefetchConfig, PrefetchRate, RequestId,
};
pub use read_ahead::{Ahead, ReadAhead, ReadAheadConfig};
