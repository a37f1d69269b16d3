//! Open, read and verify headstart images.
//!
//! [`Image`] knows where everything lies and fetches chunks and pages of the index, verified; which of them
//! are fetched when, and what is kept, is decided elsewhere. [`verify()`] proves what an image holds, and
//! [`fill_cache`] brings it into the cache on disk.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod allocation;
mod base;
mod begun;
mod blocks;
mod borrowed;
mod cold;
mod error;
mod fill;
mod head;
mod hot_map;
mod image;
mod index_pages;
mod kept_chunks;
mod open_options;
mod pack_store;
mod progress;
mod splitter;
mod verify;
mod windows;

pub use allocation::Allocation;
pub use base::{BaseDisk, OpenBase, ReadBase, UseBase};
pub use begun::{ChunkReceiver, PageReceiver};
pub use blocks::Blocks;
pub use error::ImageError;
pub use fill::{FillReport, MissingRun, MissingRuns, fill_cache};
pub use head::{Head, HeadMessage, HeadReceiver};
pub use hot_map::HotPlace;
pub use hs_format::{BaseRef, Codec, Decompressor, FileKind, Hint, ImageDigest, WindowRef};
pub use image::{Image, LoadedChunk, Stored, StreamEvent};
pub use index_pages::{DecodedPage, IndexPage, IndexPages, StoredPage};
pub use kept_chunks::ChunkPlace;
pub use open_options::{OpenOptions, Opened};
pub use pack_store::{OpenDisk, PackStore};
pub use progress::Progress;
pub use verify::{ComparedDisk, FaultSink, VerifyReport, verify, verify_all, verify_content};

/// Bytes of the superblock, as an offset in the file.
pub const SUPERBLOCK_BYTES: u64 = hs_format::limits::SUPERBLOCK_BYTES as u64;
