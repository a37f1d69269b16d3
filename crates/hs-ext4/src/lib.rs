//! A tree of files becomes an ext4 file system: tree in, blocks out.
//!
//! A [`Plan`] takes the entries of a tree, with sizes and holes but without the data of files.
//! [`Plan::lay_out`] gives everything its place, and the [`Layout`] tells of any block what lies there: bytes
//! that it makes itself, a part of a file, or zeros. So blocks can be read in ascending order, or in any
//! other, and no copy of the file system is held. The same plan gives the same bytes.
//!
//! ```text
//! block 0     1             one of each for a group                  packed          each aligned
//! ┌──────────┬─────────────┬───────────────┬────────┬───────────────┬───────────────┬──────────────┬──────┐
//! │superblock│ descriptors │ bit maps      │ inodes │ directories,  │ small files,  │ large files  │ free │
//! │          │             │ blocks,inodes │        │ links, xattrs │ by folder and │              │      │
//! │          │             │               │        │ extent trees  │ kind          │              │      │
//! └──────────┴─────────────┴───────────────┴────────┴───────────────┴───────────────┴──────────────┴──────┘
//! ```
//!
//! [`Plan::lay_out_like`] keeps the places of an [`Earlier`] file system instead, so that little changes.
//!
//! Blocks of 4096 bytes, inodes of 256, checksums, extents, no journal, no copies of the superblock
//! (`sparse_super2`), an index for each directory of more than one block. A plan holds less than 200 bytes
//! for an entry, besides its name. Structures are from the kernel's documentation, `filesystems/ext4`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod attributes;
mod bytes;
mod data_order;
mod directory;
mod earlier;
mod error;
mod extents;
mod geometry;
mod hash;
mod inode;
mod layout;
mod like;
mod numbers;
mod places;
mod plan;
mod tables;
mod values;

pub use earlier::{Earlier, KeptNode};
pub use error::{LayoutError, Refusal};
pub use layout::{Layout, LayoutOptions, Run, RunContent};
pub use plan::{Attributes, DataRun, Kind, MOST_FILE_BYTES, Meta, NodeId, Plan, Time};
