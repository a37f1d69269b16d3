//! What this program asks of Linux directly, and nearly all of its `unsafe`.
//!
//! - [`rootenv`]: a command run in a root of its own that leaves nothing behind.
//! - [`loopdev`]: a file attached to a loop device.
//! - [`fsmount`]: the file system in a disk, recognised and mounted read-only; [`fuse2fs`] where the kernel's
//!   driver may not be used.
//! - [`mounts`]: mount points, looked up, checked and taken down.
//! - [`sockets`]: the other side of a socket; [`SocketFile`]: a socket in the file system.
//! - [`ends`]: the signals that end a process, as events.
//! - [`RootLock`]: a lock that root alone can hold.
//! - [`ublk`]: block devices of this kernel that a program serves.
//! - [`userfault`]: page faults that another process handles.
//! - [`MemoryProbe`]: the kernel's figures of memory, and limits of control groups.

mod allocator;
mod cached_pages;
mod descriptors;
pub mod ends;
mod error;
mod ext4_tools;
mod file_extents;
mod file_handle;
mod file_lock;
pub mod fsmount;
pub mod fuse2fs;
mod fuse_queue;
mod in_use;
mod io_flusher;
mod kernel_log;
pub mod loopdev;
mod memory;
pub mod mounts;
mod move_extents;
mod own_mounts;
mod root_lock;
pub mod rootenv;
mod size_limit;
mod socket_file;
pub mod sockets;
pub mod ublk;
pub mod userfault;
mod volume;
mod write_back;

pub use allocator::{allocate_kindly, give_back, use_small_pages};
pub use cached_pages::{ask_for_pages, count_cached, is_cached, wait_for_page};
pub use descriptors::{leave_descriptors, with_one_descriptor, without_descriptors};
pub use error::LinuxError;
pub use file_extents::{FileExtent, file_extents};
pub use file_handle::{
    FileHandle, btrfs_subvolume, btrfs_uuid, find_by_handle, handle_of, open_by_btrfs_inode, open_by_handle,
    open_by_inode, open_by_xfs_inode,
};
pub use file_lock::{LockKind, lock_bytes, lock_disk};
pub use fuse_queue::clone_fuse_queue;
pub use in_use::{MountedForWriting, loop_device_of, mounted_for_writing};
pub use io_flusher::flush_for_kernel;
pub use memory::{MemoryProbe, anonymous_bytes};
pub use move_extents::move_extents;
pub use own_mounts::OwnMounts;
pub use root_lock::{LockHolder, RootLock};
pub use size_limit::fail_beyond_size_limit;
pub use socket_file::SocketFile;
pub use volume::Volume;
pub use write_back::begin_write_back;
