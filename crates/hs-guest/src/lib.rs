//! Guests: whole systems that boot from a disk that headstart serves.
//!
//! - [`uml`]: how User-mode Linux is told what to boot from, and where it writes.
//! - [`console`]: what a guest's console says about how far it has come; no I/O.
//! - [`Guest`]: one that runs, in a PID namespace that ends with this process.

pub mod console;
mod error;
mod guest;
pub mod uml;

pub use error::GuestError;
pub use guest::Guest;
