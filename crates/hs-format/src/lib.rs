//! The headstart image format: bytes to structs and back. docs/FORMAT.md is the normative text; this
//! crate is its reading, without files, sockets, threads or clocks.
//!
//! ```text
//! 0                 superblock, 4096 bytes
//!                   hot segments (0..=16), each: index | hints | chunks
//!                   cold region: chunks | index leaves | index root
//! image_bytes-4096  mirror of the superblock
//! ```
//!
//! Opening an image: read 4096 bytes, [`Superblock::decode`], [`Superblock::check_file`]; for each
//! [`HotSegment`] read its index and [`HotIndex::decode`]; read the root and [`ColdRoot::decode`]; on the
//! first miss in a leaf, [`ColdLeaf::decode`]. Reading a chunk: fetch the range, [`Unverified::verify`], then
//! [`Decompressor::decompress`].
//!
//! What was fetched is [`Unverified`]: nothing looks at it before `verify` or `decode` has checked its
//! digest.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod check;
mod chunk;
mod codec;
mod cold;
mod cold_tables;
mod composed;
mod coverage;
mod digest;
mod disk_digest;
mod error;
mod file_kind;
mod geometry;
mod hints;
mod hot;
mod hot_map;
mod hot_runs;
mod leaf;
pub mod limits;
mod pack;
mod superblock;
mod unverified;
mod wire;

pub use chunk::ChunkRef;
pub use codec::{Codec, Compressor, Decompressor};
pub use cold::{ColdRegion, ColdRoot, LeafRef};
pub use cold_tables::{ColdTables, EncodedColdTables};
pub use composed::{BaseRun, Composed};
pub use coverage::ColdCoverage;
pub use digest::{ImageDigest, ParseImageDigestError, chunk_digest};
pub use disk_digest::{DiskHasher, leaf_digest};
pub use error::{FormatError, Part};
pub use file_kind::FileKind;
pub use geometry::{ColdGeometry, ColdPlace};
pub use hints::{Hint, Hints};
pub use hot::{HotChunk, HotIndex, HotIndexBuilder, HotPlace, HotSegment};
pub use hot_runs::HotRun;
pub use hs_volumes::FsKind;
pub use leaf::{ColdLeaf, WindowRef};
pub use pack::{BackingFile, BaseKind, PackHeader, PackRuns, PackTrust, Sample};
pub use superblock::{BaseRef, Features, Signature, Superblock};
pub use unverified::{ExpectedBytes, Unverified};
