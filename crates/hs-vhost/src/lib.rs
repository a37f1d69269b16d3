//! Disks of images as virtio block devices of guests: a vhost-user-blk backend, read-only.
//!
//! ```text
//! VMM ──messages──► connection's thread ──► Device: memory, rings
//! guest ──ring, kick──► ring's thread ──► Chain ──► Request ──► ServedDisk::submit_for
//!       ◄──memory, used ring, call── whichever thread brings the last chunk
//! ```
//!
//! What a descriptor says is a guest's, and what a message says is its VMM's: both are held against limits.
//! docs/VHOST.md says what VMMs get.

#![forbid(unsafe_code)]

mod call;
mod chain;
mod config;
mod connection;
mod device;
mod inflight;
mod memory;
mod reading;
mod request;
mod ring;
mod room;
mod server;

pub use config::MOST_QUEUES;
pub use server::{VhostOptions, VhostServer, VhostStats};
