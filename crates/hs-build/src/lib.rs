//! Build headstart images, and convert their disks.
//!
//! [`build()`] stores a disk in cold windows, [`BaseBlocks`] what of it lies on another disk already,
//! [`optimize()`] adds a hot region that a profile ordered, [`commit()`] makes an image of a changed disk,
//! [`export::export()`] writes the disk of an image for other programs. Disks come from a [`source::Source`].
//! [`find_blocks`] and [`find_files`] look for what a profile recorded on the disk of another image; [`ext4`]
//! reads the file system that a disk holds.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod cloop;
pub mod export;
pub mod ext4;
pub mod source;

mod base;
mod build;
mod carried;
mod commit;
mod earlier;
mod error;
mod files;
mod find;
mod followed;
mod linked_file;
mod optimize;
mod output;
mod pack;
mod start_config;

pub use base::BaseBlocks;
pub use build::{BuildOptions, BuildReport, DEFAULT_LEVEL, WINDOW_BYTES, build, build_unnamed};
pub use commit::{build_like, commit};
pub use error::BuildError;
pub use files::{ListedFile, find_files, list_files};
pub use find::find_blocks;
pub use linked_file::{first_linked_file, read_linked_file};
pub use optimize::{HotPlacement, OptimizeOptions, OptimizeReport, optimize};
pub use output::UnnamedFile;
pub use pack::{PackFrom, PackedDisk, backing_samples, pack, pack_unnamed, samples};
pub use start_config::{MOST_START_CONFIG_BYTES, START_CONFIG_PATH, StartConfig};
