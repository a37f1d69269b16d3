//! The front ends of a served disk.
//!
//! - [`fuse`]: a disk shown as one file in a read-only FUSE file system, over our own thin transport.
//! - [`http`]: images as files, over HTTP.
//! - [`nbd`]: disks of images over the network block device protocol.
//! - [`self_filling`]: a sparse file that is filled before it is read.
//! - [`loopdev`]: a file attached to a loop device.
//! - [`fsmount`]: the file system in a disk, recognised and mounted read-only.
//! - [`rootenv`]: a command run in a root of its own that leaves nothing behind.
//! - [`block_files`]: which file pages the blocks of a recording are.
//! - [`observe`]: what programs really did with pages that were prefetched.

mod background_fill;
pub mod block_files;
mod error;
pub mod fsmount;
pub mod fuse;
mod fuse2fs;
pub mod http;
mod image_disk;
pub mod loopdev;
mod mounts;
pub mod nbd;
pub mod observe;
mod places;
mod record;
pub mod rootenv;
pub mod self_filling;
mod send_queue;
mod served;
mod shares;
mod socket_file;
mod usage;
mod warm;

pub use background_fill::{BackgroundFill, FillProgress};
pub use error::ServeError;
pub use hs_disk::{CacheSizing, Deliver, ReadOptions, ServedDisk, Streamed, UseVisibility, allocate_kindly};
pub use image_disk::{FileDisk, FileReads, ImageDisk};
pub use mounts::{MountTable, clear_dead};
pub use record::Recorder;
pub use served::{
    FsDriver, Hold, MountFsOptions, MountedFs, Prefetching, ServeConfig, ServedError, ServedFile, ServedImage,
};
pub use socket_file::SocketFile;
pub use usage::{Observation, ObservedUsage};
pub use warm::Warmer;
