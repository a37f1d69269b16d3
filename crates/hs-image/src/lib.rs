//! Build and read headstart images.
//!
//! Reading: [`Image`] knows where everything lies and fetches chunks and pages of the index, verified; which
//! of them are fetched when, and what is kept, is decided elsewhere.
//! Writing: [`build()`] stores a disk in cold windows, [`optimize()`] adds a hot region that a profile
//! ordered, [`verify()`] proves what an image holds, [`export::export()`] writes its disk for other programs.

#![forbid(unsafe_code)]

// The samples of the tests in `tests` serve those in `src` too, under the crate's own name.
#[cfg(test)]
extern crate self as hs_image;

pub mod cloop;
pub mod export;
pub mod ext4;
pub mod source;

mod allocation;
mod build;
mod cold;
mod error;
mod files;
mod fill;
mod find;
mod head;
mod hot_map;
mod image;
mod index_pages;
mod kept_chunks;
mod linked_file;
mod open_options;
mod optimize;
mod output;
mod splitter;
mod verify;

pub use allocation::Allocation;
pub(crate) use build::is_zero;
pub use build::{BuildOptions, BuildReport, DEFAULT_LEVEL, WINDOW_BYTES, build, build_unnamed};
pub use error::ImageError;
pub use files::find_files;
pub use fill::{FillReport, fill_cache};
pub use find::find_blocks;
pub use head::{Head, HeadMessage};
pub use hot_map::HotPlace;
pub use hs_format::{Codec, Decompressor, DiskContent, FileKind, Hint, ImageDigest, WindowRef};
pub use image::{Image, Stored, StreamEvent};
pub use index_pages::{DecodedPage, IndexPage, IndexPages, StoredPage};
pub use kept_chunks::ChunkPlace;
pub use linked_file::read_linked_file;
pub use open_options::{OpenOptions, Opened};
pub use optimize::{Blocks, OptimizeOptions, OptimizeReport, Place, optimize};
pub use output::{Progress, UnnamedFile};
pub use verify::{VerifyReport, verify, verify_content};

/// Bytes of the superblock, as an offset in the file.
pub(crate) const SUPERBLOCK_BYTES: u64 = hs_format::limits::SUPERBLOCK_BYTES as u64;
