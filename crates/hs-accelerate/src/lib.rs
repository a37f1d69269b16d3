//! What a start of an installed system needs from its disk: the kept list, and every decision about it.
//!
//! A [`PageList`] says which pages of which files, and which pages of the block device (metadata), the last
//! starts used, in the order of first use. It is bound to one file system ([`FsIdentity`]), and travels as
//! the bytes of [`PageList::encode`]. [`PageList::merge`] takes a new recording in, and lets go of what is
//! not used any more. [`requests`] is the order in which the pages are asked for on a kind of device
//! ([`DeviceKind`], which a few timed reads tell), [`Restraint`] ends the asking where it does not help, and
//! [`Ending`] says when a recording is over. [`PageList::file_runs`] and [`PageList::scatter`] are for
//! laying files anew.
//!
//! No I/O, clock or thread: `now` is an argument.

#![forbid(unsafe_code)]

mod bytes;
mod device_kind;
mod ending;
mod list;
mod merge;
mod order;
mod restraint;
mod scatter;

pub use bytes::{ListError, MAGIC, MAX_LIST_BYTES};
pub use device_kind::{DeviceKind, ProbeTimes};
pub use ending::{Ending, EndingStep, Second};
pub use list::{FileIdentity, FsIdentity, ListedFile, ListedRun, PageList};
pub use merge::{MAX_LISTED_PAGES, MAX_UNUSED_STARTS, RecordedPage};
pub use order::{MAX_REQUEST_PAGES, PageRequest, requests};
pub use restraint::{Restraint, StopReason};
pub use scatter::{FileRun, NEAR_BYTES, Scatter};
