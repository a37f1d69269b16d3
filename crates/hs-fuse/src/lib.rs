//! A disk shown as one file in a read-only FUSE file system: of an image ([`ServedImage`]) or of a plain file
//! ([`ServedFile`]).
//!
//! The transport is our own because no library does both things a front end for a root needs: going
//! on with the session of a server that died, and answering a read later, from any thread.
//!
//! ```text
//! kernel ──read──► worker threads ──► Disk::read(offset, len, DoneReply, Reply)
//!        ◄─writev─────────────────────────────── Reply::data, from any thread
//!        ◄─writev─────────────────────────────── Pusher::push, unasked
//! ```

#![cfg_attr(not(test), forbid(unsafe_code))]

mod abort;
mod device;
mod disks;
mod error;
mod files;
mod mount;
mod negotiate;
mod push;
mod queues;
mod replay;
mod reply;
mod served_file;
mod served_image;
mod session;
mod wire;
mod workers;

#[cfg(test)]
mod tests;

pub use abort::Abort;
pub use error::FuseError;
pub use negotiate::Negotiated;
pub use push::{PushError, Pusher};
pub use reply::{Disk, DoneReply, Reply};
pub use served_file::ServedFile;
pub use served_image::{Hold, HoldReplay, ServedImage};
pub use session::{HeldSession, Session, SessionOptions};
