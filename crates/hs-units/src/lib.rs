//! Byte sizes, block numbers, ranges and durations as types.
//!
//! Everything above agrees on these words: a *block* is [`BLOCK_BYTES`] bytes of the logical disk
//! and is named by its [`Lba`]; a [`BlockRange`] is a run of them; a [`ByteRange`] is a run of
//! bytes of a file; a [`Nanos`] is a point or a span on some clock.

#![forbid(unsafe_code)]

mod architecture;
mod block;
mod bytes;
mod digest;
mod memory;
mod narrow;
mod prng;
mod time;

pub use architecture::oci_architecture;
pub use block::{BLOCK_BYTES, BlockRange, Lba};
pub use bytes::{ByteRange, ByteSize, ParseByteSizeError};
pub use digest::{Digest, ParseDigestError};
pub use memory::{MemoryPressure, MemorySample};
pub use narrow::{to_u32, to_usize};
pub use prng::Prng;
pub use time::Nanos;
