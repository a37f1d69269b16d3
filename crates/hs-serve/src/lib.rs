//! What front ends share: how an image is served, and what is done for a disk whatever shows it.
//!
//! - [`ServeConfig`]: how an image is opened and prefetched; [`FileDisk`]: a plain file in its place.
//! - [`MountedFs`]: the file system in a shown disk, mounted, its caches warmed by a [`Warmer`].
//! - [`BackgroundFill`]: completes the cache on disk; [`Recorder`]: records the reads of a start.
//! - [`Slots`], [`Shares`]: fairness among the clients of a server.
//! - [`Certificates`]: the identity of a server.
//!
//! Front ends are crates of their own, above this one.

#![forbid(unsafe_code)]

mod access;
mod background_fill;
mod certificates;
mod client;
mod config;
mod file_disk;
mod fill_pace;
mod mounted_fs;
mod record;
mod shares;
mod slots;
mod warm;

pub use access::FileAccess;
pub use background_fill::{BackgroundFill, FillProgress};
pub use certificates::{Certificates, TlsError};
pub use client::{address_key, errno, user_key};
pub use config::{Prefetching, ServeConfig};
pub use file_disk::{FileDisk, FileReads};
pub use hs_disk::{CacheSizing, ONE_READERS_CACHE_BYTES, ReadOptions, ServedDisk};
pub use mounted_fs::{FsDriver, MountFsOptions, MountedFs, ShownDisk};
pub use record::Recorder;
pub use shares::Shares;
pub use slots::{Occupant, PROGRESS_BYTES, Slot, SlotLimits, Slots, Standing};
pub use warm::Warmer;
