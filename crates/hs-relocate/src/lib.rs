//! Lays the recorded blocks of a start one behind the other on a mounted ext4, block by block.
//!
//! The kernel lets blocks of a file change places with blocks of another file that was reserved for it
//! (`EXT4_IOC_MOVE_EXT`), while both are in use. [`plan`], [`choose`], [`layout`] and [`Scatter`] decide, and
//! do no I/O: which pages move, where they go, how scattered a list is, and whether another layout pays.
//! [`relocate()`] opens files, reserves space and moves. docs/RELOCATE.md says what it is for.

#![forbid(unsafe_code)]

pub mod choose;
mod error;
pub mod layout;
mod listed;
pub mod plan;
mod recorded;
mod relocate;
mod space;
mod volume;

pub use error::RelocateError;
pub use hs_accelerate::{FileRun, NEAR_BYTES, Scatter};
pub use listed::LeftBecause;
pub use recorded::recorded_runs;
pub use relocate::{Left, Options, Outcome, Progress, Report, relocate};
