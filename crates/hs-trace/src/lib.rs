//! The profile of one start: which blocks were read, in which order, when, and what each read cost.
//!
//! A [`Profile`] is bound to one disk by its digest, and travels as a small file (suffix `.hsp`)
//! whose bytes `docs/PROFILE.md` defines. [`Profile::decode`] accepts bytes from anywhere: it never
//! panics, allocates only what the bytes present can justify, and returns nothing that was not
//! checked against the digests in the file and the rules of [`Profile::validate`].
//!
//! A [`BlockLog`] reads what other programs recorded of a device: fio and blkparse. [`BlockEvents`] reads the
//! kernel's trace events of one.

#![forbid(unsafe_code)]

mod block_events;
mod block_log;
mod block_set;
mod columns;
mod csv;
mod decode;
mod encode;
mod error;
mod file_map;
mod head;
mod header;
pub mod limits;
mod profile;
mod recorded;
mod remap;
pub mod varint;

#[cfg(test)]
mod tests;

pub use block_events::{BlockEvents, ServedRequest};
pub use block_log::{BlockLog, BlockLogError, BlockLogFault, BlockLogKind, BlockRequest};
pub use block_set::BlockSet;
pub use csv::quoted;
pub use error::{FileFault, Limit, ReadFault, Section, Syntax, TraceError};
pub use file_map::{FileMap, FilePiece};
pub use head::ProfileHead;
pub use profile::{BlockDigest, FileRun, FileUse, Profile, Read, ReadAhead};
pub use recorded::RecordedBlocks;
pub use remap::{FoundFile, Places, Remapped};
