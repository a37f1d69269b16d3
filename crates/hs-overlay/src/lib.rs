//! What is written to the disk of an image, kept in one file beside it: an overlay.
//!
//! The file is a log of records, each written behind the last one and never changed (docs/FORMAT.md,
//! "Overlays"). This crate decides what is written where, and knows what each block of the disk holds. It
//! does no I/O: bytes of the file go in and out as arguments.
//!
//! ```text
//! handle_write, handle_zero ─► gathered batch ─ poll: one append, one sync ─► map of the disk
//! lookup ◄── gathered batch, batch under way, map of the disk; else the disk below
//! ```
//!
//! - [`Overlay`]: an overlay in use. [`Overlay::poll`] gives the next [`Job`]; its end is reported.
//! - [`Opening`]: from the bytes of a file to an [`Overlay`], up to the last whole record.
//! - `check`: each block of an overlay against its sum.
//!
//! One job at a time is under way. All writes that come meanwhile are one batch, so the flushes of many
//! writers become one.

#![forbid(unsafe_code)]

mod batch;
mod check;
mod checkpoint;
mod error;
#[doc(hidden)]
pub mod forge;
mod job;
mod layout;
mod map;
mod moving;
mod opening;
mod overlay;
mod pace;
mod record;
mod segments;
mod siblings;
mod slot;
mod snapshot;
mod waiting;

pub use check::{BlockSums, Checked, Checking};
pub use error::{DamagedPart, OverlayError, Refusal};
pub use job::{Failed, FailedStep, Job, Step};
pub use layout::{FIRST_SEGMENT_BYTE, Identity, MAX_SNAPSHOTS, SEGMENT_BYTES};
pub use map::{Content, ExtentMap};
pub use opening::{Needed, Opening};
pub use overlay::{Figures, Limits, Overlay, Piece, Source, Trouble};
pub use slot::MAGIC;
pub use snapshot::Snapshot;
pub use waiting::{ChangeKind, Waiting};
