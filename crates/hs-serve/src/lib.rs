//! The driver loop and the front ends.
//!
//! - [`fuse`]: a disk shown as one file in a read-only FUSE file system, over our own thin transport.
//! - [`loopdev`]: a file attached to a loop device.
//! - [`fsmount`]: the file system in a disk, recognised and mounted read-only.
//! - [`rootenv`]: a command run in a root of its own that leaves nothing behind.

mod error;
pub mod fsmount;
pub mod fuse;
pub mod loopdev;
mod mounts;
pub mod rootenv;

pub use error::ServeError;
