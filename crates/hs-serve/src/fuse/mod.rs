//! A disk shown as one file in a read-only FUSE file system.
//!
//! The transport is our own because no library does both things a front end for a root needs: going
//! on with the session of a server that died, and answering a read later, from any thread.
//!
//! ```text
//! kernel ──read──► worker threads ──► Disk::read(offset, len, Reply)
//!        ◄─writev─────────────────────────────── Reply::data, from any thread
//!        ◄─writev─────────────────────────────── Pusher::push, unasked
//! ```

mod abort;
mod access;
mod device;
mod files;
mod mount;
mod negotiate;
mod push;
mod reply;
mod session;
mod wire;
mod workers;

#[cfg(test)]
mod tests;

pub use abort::Abort;
pub use access::FileAccess;
pub use negotiate::Negotiated;
pub use push::{PushError, Pusher};
pub use reply::{Disk, Reply};
pub use session::{HeldSession, Session, SessionOptions};
