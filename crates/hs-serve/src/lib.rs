//! The front ends of a served disk.
//!
//! - [`fuse`]: a disk shown as one file in a read-only FUSE file system, over our own thin transport.
//! - [`http`]: images as files, over HTTP.
//! - [`nbd`]: disks of images over the network block device protocol.
//! - [`self_filling`]: a sparse file that is filled before it is read.

mod background_fill;
mod certificates;
mod error;
pub mod fuse;
pub mod http;
mod image_disk;
pub mod nbd;
mod places;
mod record;
pub mod self_filling;
mod send_queue;
mod served;
mod shares;
mod warm;

pub use background_fill::{BackgroundFill, FillProgress};
pub use certificates::{Certificates, TlsError};
pub use error::ServeError;
pub use hs_disk::{CacheSizing, Deliver, ReadOptions, ServedDisk, Streamed, UseVisibility};
pub use image_disk::{FileDisk, FileReads, ImageDisk};
pub use record::Recorder;
pub use served::{
    FsDriver, Hold, MountFsOptions, MountedFs, Prefetching, ServeConfig, ServedFile, ServedImage,
};
pub use warm::Warmer;
