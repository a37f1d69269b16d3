//! Disks of images for NBD clients: QEMU, libnbd's programs, the kernel's own client.
//!
//! ```text
//! client ──bytes──► connection's thread ──► Protocol ──► ServedDisk::submit
//!        ◄─sendmsg── whichever thread brings the last chunk
//!        ◄─sendmsg── connection's thread, what the socket did not take at once
//! ```
//!
//! Under TLS these bytes are records: the thread that sends an answer seals it, the connection's thread opens
//! them. The protocol ([`protocol`]) does no I/O and is the same for every transport. docs/NBD.md says what
//! clients get.

#![forbid(unsafe_code)]

mod address;
mod client;
mod connection;
mod export;
mod options;
mod outgoing;
pub mod protocol;
mod room;
mod server;
mod tls;
mod wire;
mod writing;

pub use address::{BadAddress, NbdAddress, NbdListeners};
pub use export::{Export, ExportedDisk, KeptImage};
pub use protocol::End;
pub use server::{NbdOptions, NbdServer, NbdStats};
pub use tls::NbdTls;
pub use wire::{Reply, errno};
