//! A front end: the memory of guests, whose page faults are answered with the blocks of an image's disk.
//!
//! A VMM (Firecracker, for one) maps its guest's memory, registers it with userfaultfd(2), connects to a
//! socket and sends one message: where the memory lies in its process, where each part lies in the disk, and
//! the descriptor of the faults.
//!
//! ```text
//! VMM ──regions and descriptor──► listener (one thread for all VMMs)
//! guest touches a page ──event──►   │ ServedDisk::submit
//!                      ◄─────────── UFFDIO_COPY, by the thread that has the bytes
//!                      ◄─────────── hot pages, as they come
//! ```
//!
//! A page that cannot be had is poisoned: what touches it gets SIGBUS, and never zeros.

#![forbid(unsafe_code)]

mod client;
mod regions;
mod server;

pub use regions::{Region, Regions, RegionsError};
pub use server::{KeepClients, KeptClient, MOST_CLIENTS, UffdServer};
