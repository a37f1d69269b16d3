//! The first 256 bytes of a profile. Byte for byte (all numbers little-endian):
//!
//! ```text
//!   0  8  magic "HSPROF\0\0"         76  4  read_count
//!   8  4  version                    80  4  digest_count
//!  12  4  flags                      84  4  file_count
//!  16 32  disk_digest                88  4  run_count
//!  48  8  disk_bytes                 92  4  zero
//!  56  8  ready_ns                   96 64  4 × (stored_bytes 8, raw_bytes 8)
//!  64  8  ended_ns                  160 32  body_digest
//!  72  4  read_ahead_kib            192 32  zero
//!                                   224 32  header_digest
//! ```

use core::mem::offset_of;

use hs_units::Digest;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Limit, Section, TraceError};
use crate::limits;
use crate::profile::at_most;

pub(crate) const MAGIC: [u8; 8] = *b"HSPROF\0\0";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 256;
/// Bytes that the header digest covers: everything before it.
pub(crate) const SIGNED_BYTES: usize = 224;

/// `ready_ns` is set.
pub(crate) const FLAG_READY: u32 = 1;
/// Kernel read-ahead was on; `read_ahead_kib` is set.
pub(crate) const FLAG_READ_AHEAD: u32 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct SectionLengths {
    pub(crate) stored_bytes: U64,
    pub(crate) raw_bytes: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    pub(crate) flags: U32,
    pub(crate) disk_digest: [u8; 32],
    pub(crate) disk_bytes: U64,
    pub(crate) ready_ns: U64,
    pub(crate) ended_ns: U64,
    pub(crate) read_ahead_kib: U32,
    pub(crate) read_count: U32,
    pub(crate) digest_count: U32,
    pub(crate) file_count: U32,
    pub(crate) run_count: U32,
    pub(crate) zero: U32,
    pub(crate) sections: [SectionLengths; Section::ALL.len()],
    pub(crate) body_digest: [u8; 32],
    pub(crate) zero_tail: [u8; 32],
    pub(crate) header_digest: [u8; 32],
}

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(offset_of!(Header, version) == 8);
    assert!(offset_of!(Header, disk_digest) == 16);
    assert!(offset_of!(Header, disk_bytes) == 48);
    assert!(offset_of!(Header, ended_ns) == 64);
    assert!(offset_of!(Header, read_count) == 76);
    assert!(offset_of!(Header, run_count) == 88);
    assert!(offset_of!(Header, sections) == 96);
    assert!(offset_of!(Header, body_digest) == 160);
    assert!(offset_of!(Header, zero_tail) == 192);
    assert!(offset_of!(Header, header_digest) == SIGNED_BYTES);
};

impl Header {
    /// Computes the header's own digest and stores it in its place.
    pub(crate) fn seal(&mut self) {
        self.header_digest = blake3::hash(&self.as_bytes()[..SIGNED_BYTES]).into();
    }

    /// Takes the header off the front of `bytes` and checks everything that needs no body. Magic
    /// and version come first: a later version may move all the rest.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), TraceError> {
        let truncated = TraceError::Truncated { expected: HEADER_BYTES as u64, found: bytes.len() as u64 };
        if let Some(found) = bytes.first_chunk::<8>().filter(|found| **found != MAGIC) {
            return Err(TraceError::BadMagic { found: *found });
        }
        let Ok((header, body)) = Self::read_from_prefix(bytes) else { return Err(truncated) };
        if header.version.get() != VERSION {
            return Err(TraceError::UnknownVersion { found: header.version.get(), known: VERSION });
        }
        let found = Digest(blake3::hash(&bytes[..SIGNED_BYTES]).into());
        let expected = Digest(header.header_digest);
        if expected != found {
            return Err(TraceError::HeaderDigest { expected, found });
        }
        header.check_fields()?;
        Ok((header, body))
    }

    fn check_fields(&self) -> Result<(), TraceError> {
        let flags = self.flags.get();
        let unknown = flags & !(FLAG_READY | FLAG_READ_AHEAD);
        if unknown != 0 {
            return Err(TraceError::UnknownFlags { flags: unknown });
        }
        let must_be_zero = [
            (offset_of!(Self, ready_ns), flags & FLAG_READY == 0 && self.ready_ns.get() != 0),
            (
                offset_of!(Self, read_ahead_kib),
                flags & FLAG_READ_AHEAD == 0 && self.read_ahead_kib.get() != 0,
            ),
            (offset_of!(Self, zero), self.zero.get() != 0),
            (offset_of!(Self, zero_tail), self.zero_tail != [0; 32]),
        ];
        if let Some((offset, _)) = must_be_zero.into_iter().find(|(_, broken)| *broken) {
            return Err(TraceError::NotZero { offset });
        }
        at_most(Limit::Reads, self.read_count.get().into(), limits::MAX_READS)?;
        at_most(Limit::Digests, self.digest_count.get().into(), limits::MAX_DIGESTS)?;
        at_most(Limit::Files, self.file_count.get().into(), limits::MAX_FILES)?;
        at_most(Limit::Runs, self.run_count.get().into(), limits::MAX_RUNS)?;
        let raw =
            self.sections.iter().fold(0_u64, |sum, section| sum.saturating_add(section.raw_bytes.get()));
        at_most(Limit::RawBodyBytes, raw, limits::MAX_RAW_BODY_BYTES)
    }
}
