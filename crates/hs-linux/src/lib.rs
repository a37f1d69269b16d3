//! What this program asks of Linux directly, and nearly all of its `unsafe`.
//!
//! - [`rootenv`]: a command run in a root of its own that leaves nothing behind.
//! - [`loopdev`]: a file attached to a loop device.
//! - [`fsmount`]: the file system in a disk, recognised and mounted read-only; [`fuse2fs`] where the kernel's
//!   driver may not be used.
//! - [`mounts`]: mount points, looked up, checked and taken down.
//! - [`MemoryProbe`]: the kernel's figures of memory, and limits of control groups.

mod allocator;
mod error;
pub mod fsmount;
pub mod fuse2fs;
pub mod loopdev;
mod memory;
pub mod mounts;
pub mod rootenv;
mod socket_file;

pub use allocator::{allocate_kindly, give_back};
pub use error::LinuxError;
pub use memory::MemoryProbe;
pub use socket_file::SocketFile;
