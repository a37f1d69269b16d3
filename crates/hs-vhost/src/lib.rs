//! Disks of images as virtio block devices of guests: a vhost-user-blk backend.
//! Guests write where the disk keeps that ([`hs_keep`]).
//!
//! ```text
//! VMM ──messages──► connection's thread ──► Device: memory, rings
//! guest ──ring, kick──► ring's thread ──► Chain ──► Request ──► ServedDisk, KeptDisk
//!       ◄──memory, used ring, call── whichever thread has the last part
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
mod writing;

pub use config::MOST_QUEUES;
pub use server::{VhostOptions, VhostServer, VhostStats};
