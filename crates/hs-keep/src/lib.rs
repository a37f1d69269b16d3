//! Disks that keep what is written to them: an image below, and an overlay in a file of its own.
//!
//! - [`KeepFile`]: the file, opened and locked, so that one process uses it.
//! - [`compact`](fn@compact): the file written anew, with only what its disk needs.
//! - [`NewFile`]: a file that takes the place of another one when all of it is written.
//! - [`KeptDisk`]: reads, writes and flushes of the disk, from any thread.
//! - [`SnapshotFile`]: a snapshot that is read while another process uses the file; [`ask`] has that process
//!   take one.
//!
//! ```text
//! front end ─ write ─► Overlay (memory) ─► committer: one append, one fdatasync ─► answers of all flushes
//!           ─ read ──► Overlay (memory), file, ServedDisk below
//! ```
//!
//! What is decided is decided by [`hs_overlay`]; this crate has the file and the threads. A front end's
//! thread waits neither for the medium of the image nor, but in [`KeptDisk::flush_here`], for the file.

#![forbid(unsafe_code)]

mod below;
mod change;
mod committer;
mod compact;
mod control;
mod disk;
mod error;
mod file;
mod new_file;
mod place;
mod read;
mod snapshot_file;
mod snapshots;
mod unflushed;

pub use below::Below;
pub use compact::{Compacted, compact};
pub use control::ask;
pub use disk::{KeptDisk, ZeroKind};
pub use error::KeepError;
pub use file::{KeepFile, OpenedAs};
pub use new_file::NewFile;
pub use snapshot_file::SnapshotFile;
pub use snapshots::SnapshotChange;
pub use unflushed::Unflushed;
