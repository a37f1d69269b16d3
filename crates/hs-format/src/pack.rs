//! The header of a pack: an image without its cold chunks, which are the windows of a disk that lies in
//! another file, as they are. docs/FORMAT.md draws it.

use core::mem::{offset_of, size_of};

use hs_units::{BLOCK_BYTES, ByteRange, Digest, to_u32, to_usize};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::check;
use crate::chunk::ChunkRef;
use crate::codec::Codec;
use crate::digest::{PACK_RUNS_CONTEXT, UNREAD_DISK_CONTEXT, derived, plain};
use crate::error::{FormatError, Part};
use crate::leaf::WindowRef;
use crate::limits::{
    MAX_CHUNK_RAW_BYTES, MAX_DISK_BYTES, MAX_IMAGE_BYTES, MAX_PACK_BACKING, MAX_PACK_NAME_BYTES,
    MAX_PACK_RUNS, MAX_PACK_SAMPLES, PACK_HEADER_BYTES, SUPERBLOCK_BYTES, VERSION, WINDOW_ENTRY_BYTES,
};
use crate::superblock::Superblock;
use crate::unverified::{ExpectedBytes, Unverified};
use crate::wire::{PACK_MAGIC, WindowWire};

mod backing;

pub use backing::BackingFile;
use backing::{BACKING_BYTES, decode_name, decode_samples, encode_samples};

const PART: Part = Part::Pack;
const CHECKSUM_AT: usize = PACK_HEADER_BYTES - 32;
/// Bytes of a run in the table.
const RUN_BYTES: usize = 16;
const HEADER_BYTES: u64 = PACK_HEADER_BYTES as u64;

/// The header as it lies in the file.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HeaderWire {
    magic: [u8; 8],
    version: U32,
    header_bytes: U32,
    disk_kind: U16,
    trust: U16,
    name_bytes: U16,
    sample_count: U16,
    file_bytes: U64,
    modified_ns: U64,
    disk_bytes: U64,
    head_bytes: U64,
    chunk_bytes: U64,
    tail_bytes: U64,
    window_bytes: U32,
    run_count: U32,
    runs_digest: [u8; 32],
    reserved: [u8; 16],
    name: [u8; MAX_PACK_NAME_BYTES],
    samples: [SampleWire; MAX_PACK_SAMPLES],
    backing_count: U32,
    backing_reserved: U32,
    backing_digest: [u8; 32],
    behind: [u8; 568],
    checksum: [u8; 32],
}

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SampleWire {
    offset: U64,
    bytes: U32,
    reserved: U32,
    digest: [u8; 32],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RunWire {
    first: U64,
    count: U64,
}

const _: () = assert!(size_of::<HeaderWire>() == PACK_HEADER_BYTES);
const _: () = assert!(offset_of!(HeaderWire, name) == 128);
const _: () = assert!(offset_of!(HeaderWire, samples) == 384);
const _: () = assert!(offset_of!(HeaderWire, backing_count) == 3456);
const _: () = assert!(offset_of!(HeaderWire, behind) == 3496);
const _: () = assert!(size_of::<RunWire>() == RUN_BYTES);

/// How the file holds the disk that a pack is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BaseKind {
    /// As it is.
    Raw,
    /// As a qcow2 file, with the files behind it that the pack names.
    Qcow2,
}

/// What is known of the disk that a pack is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PackTrust {
    /// All of it was read: each window has its digest.
    Whole,
    /// It was not read. Only its length, its time and samples of the file are known, and what is packed.
    Sampled,
}

/// Some bytes of the file that holds the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Where they lie in the file.
    pub range: ByteRange,
    /// Plain BLAKE3 of them.
    pub digest: Digest,
}

/// The header of a pack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackHeader {
    /// How the file holds the disk.
    pub kind: BaseKind,
    /// What is known of the disk.
    pub trust: PackTrust,
    /// The name of the file, without a folder. May be empty.
    pub name: String,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// When it was modified, in nanoseconds since 1970; 0 where that is not known.
    pub modified_ns: u64,
    /// Samples of the file.
    pub samples: Vec<Sample>,
    /// Bytes of the disk, in whole blocks.
    pub disk_bytes: u64,
    /// Bytes of a full window.
    pub window_bytes: u32,
    /// Bytes of the image before its cold chunks. They follow the header.
    pub head_bytes: u64,
    /// Bytes of its cold chunks: windows of the disk, which lie in the other file.
    pub chunk_bytes: u64,
    /// Bytes of the image behind the cold chunks, leaves excepted where these are not stored. They follow the
    /// head.
    pub tail_bytes: u64,
    /// Runs of windows that are cold chunks. Their table follows the tail.
    pub run_count: u32,
    /// Digest of that table.
    pub runs_digest: Digest,
    /// Files behind the one that holds the disk. Their table follows that of the runs.
    pub backing_count: u32,
    /// Digest of that table; zero without one.
    pub backing_digest: Digest,
}

impl PackHeader {
    /// Reads and checks a header.
    ///
    /// # Errors
    /// When it is none, its checksum is wrong, or a rule of docs/FORMAT.md is broken.
    pub fn decode(bytes: Unverified<&[u8]>) -> Result<Self, FormatError> {
        let bytes = bytes.with_own_digest();
        let size = FormatError::Size { part: PART, expected: HEADER_BYTES, found: bytes.len() as u64 };
        let wire = HeaderWire::ref_from_bytes(bytes).map_err(|_| size)?;
        // R49: as R5 and R6 say of a superblock.
        if wire.magic != PACK_MAGIC {
            return Err(FormatError::BadMagic { part: PART, expected: PACK_MAGIC, found: wire.magic });
        }
        if wire.version.get() != VERSION {
            let found = wire.version.get();
            return Err(FormatError::UnsupportedVersion { part: PART, expected: VERSION, found });
        }
        check::equal(PART, "header bytes", HEADER_BYTES, wire.header_bytes.get().into())?;
        let (expected, found) = (Digest(wire.checksum), plain(&bytes[..CHECKSUM_AT]));
        if expected != found {
            return Err(FormatError::DigestMismatch { part: PART, expected, found });
        }
        // R1
        check::zero(PART, offset_of!(HeaderWire, reserved), &wire.reserved)?;
        check::zero(PART, offset_of!(HeaderWire, backing_reserved), wire.backing_reserved.as_bytes())?;
        check::zero(PART, offset_of!(HeaderWire, behind), &wire.behind)?;
        // R50
        let kind = BaseKind::of_number(wire.disk_kind.get())?;
        check::within(PART, "trust", wire.trust.get().into(), (1, 2))?;
        let header = Self {
            kind,
            trust: if wire.trust.get() == 1 { PackTrust::Whole } else { PackTrust::Sampled },
            name: decode_name(&wire.name, wire.name_bytes.get(), offset_of!(HeaderWire, name))?,
            file_bytes: wire.file_bytes.get(),
            modified_ns: wire.modified_ns.get(),
            samples: decode_samples(
                &wire.samples,
                wire.sample_count.get(),
                offset_of!(HeaderWire, samples),
                wire.file_bytes.get(),
            )?,
            disk_bytes: wire.disk_bytes.get(),
            window_bytes: wire.window_bytes.get(),
            head_bytes: wire.head_bytes.get(),
            chunk_bytes: wire.chunk_bytes.get(),
            tail_bytes: wire.tail_bytes.get(),
            run_count: wire.run_count.get(),
            runs_digest: Digest(wire.runs_digest),
            backing_count: wire.backing_count.get(),
            backing_digest: Digest(wire.backing_digest),
        };
        header.check()?;
        Ok(header)
    }

    /// The rules for its numbers.
    ///
    /// # Errors
    /// The first that is broken.
    pub fn check(&self) -> Result<(), FormatError> {
        // R51
        let within = |field, found, limits| check::within(PART, field, found, limits);
        within("file bytes", self.file_bytes, (1, MAX_IMAGE_BYTES))?;
        within("disk bytes", self.disk_bytes, (BLOCK_BYTES, MAX_DISK_BYTES))?;
        let most = u64::from(MAX_CHUNK_RAW_BYTES);
        within("window bytes", self.window_bytes.into(), (BLOCK_BYTES, most))?;
        for (field, bytes) in [("disk", self.disk_bytes), ("window", self.window_bytes.into())] {
            check::equal(PART, field, bytes - bytes % BLOCK_BYTES, bytes)?;
        }
        let superblock = SUPERBLOCK_BYTES as u64;
        within("head bytes", self.head_bytes, (superblock, MAX_IMAGE_BYTES))?;
        within("cold chunk bytes", self.chunk_bytes, (0, self.disk_bytes))?;
        within("tail bytes", self.tail_bytes, (superblock, MAX_IMAGE_BYTES))?;
        within("runs", self.run_count.into(), (0, self.windows().min(MAX_PACK_RUNS.into())))?;
        within("image bytes", self.image_bytes(), (superblock, MAX_IMAGE_BYTES))?;
        within("samples", self.samples.len() as u64, (0, MAX_PACK_SAMPLES as u64))?;
        // R58
        let most = if self.kind == BaseKind::Qcow2 { MAX_PACK_BACKING } else { 0 };
        within("backing files", self.backing_count.into(), (0, most.into()))?;
        if self.backing_count == 0 {
            check::zero(PART, offset_of!(HeaderWire, backing_digest), &self.backing_digest.0)?;
        }
        within("name bytes", self.name.len() as u64, (0, MAX_PACK_NAME_BYTES as u64))
    }

    /// That the image of the pack is one of this disk, in these windows.
    ///
    /// # Errors
    /// [`FormatError::Inconsistent`].
    pub fn check_image(&self, superblock: &Superblock) -> Result<(), FormatError> {
        // R55
        check::equal(PART, "disk bytes", superblock.disk_bytes, self.disk_bytes)?;
        check::equal(PART, "window bytes", superblock.geometry().window_bytes(), self.window_bytes.into())?;
        let elsewhere = self.chunk_bytes + self.leaf_bytes();
        if elsewhere > 0 {
            check::equal(PART, "head bytes", superblock.cold.range.offset, self.head_bytes)?;
        }
        check::within(PART, "cold bytes", elsewhere, (0, superblock.cold.range.len))
    }

    /// That the file of the pack has the bytes that the header makes it.
    ///
    /// # Errors
    /// [`FormatError::Size`].
    pub fn check_file(&self, found: u64) -> Result<(), FormatError> {
        // R51
        let expected = self.pack_bytes();
        if expected == found { Ok(()) } else { Err(FormatError::Size { part: PART, expected, found }) }
    }

    /// The header's bytes, checksum included.
    ///
    /// # Panics
    /// When a number breaks a rule; see [`PackHeader::check`].
    #[must_use]
    pub fn encode(&self) -> [u8; PACK_HEADER_BYTES] {
        let mut wire = HeaderWire::new_zeroed();
        wire.magic = PACK_MAGIC;
        wire.version = VERSION.into();
        wire.header_bytes = to_u32(HEADER_BYTES).into();
        wire.disk_kind = self.kind.number().into();
        wire.trust = if self.trust == PackTrust::Whole { 1 } else { 2 }.into();
        wire.name_bytes = u16::try_from(self.name.len()).expect("a short name").into();
        wire.sample_count = u16::try_from(self.samples.len()).expect("few samples").into();
        wire.file_bytes = self.file_bytes.into();
        wire.modified_ns = self.modified_ns.into();
        wire.disk_bytes = self.disk_bytes.into();
        wire.head_bytes = self.head_bytes.into();
        wire.chunk_bytes = self.chunk_bytes.into();
        wire.tail_bytes = self.tail_bytes.into();
        wire.window_bytes = self.window_bytes.into();
        wire.run_count = self.run_count.into();
        wire.runs_digest = self.runs_digest.0;
        wire.backing_count = self.backing_count.into();
        wire.backing_digest = self.backing_digest.0;
        wire.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        encode_samples(&mut wire.samples, &self.samples);
        wire.checksum = plain(&wire.as_bytes()[..CHECKSUM_AT]).0;
        let mut bytes = [0; PACK_HEADER_BYTES];
        bytes.copy_from_slice(wire.as_bytes());
        bytes
    }

    /// Windows of the disk.
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.disk_bytes.div_ceil(self.window_bytes.into())
    }

    /// Bytes of the leaves that are not stored, because they follow from the disk's size.
    #[must_use]
    pub fn leaf_bytes(&self) -> u64 {
        match self.trust {
            PackTrust::Whole => 0,
            PackTrust::Sampled => self.windows() * WINDOW_ENTRY_BYTES as u64,
        }
    }

    /// Some bytes of these leaves.
    #[must_use]
    pub fn leaf_part(&self, range: ByteRange) -> Vec<u8> {
        let entry = WINDOW_ENTRY_BYTES as u64;
        let window_bytes = u64::from(self.window_bytes);
        let first = range.offset / entry;
        let mut bytes = Vec::new();
        for window in first..range.end().div_ceil(entry).min(self.windows()) {
            let offset = window * window_bytes;
            let len = window_bytes.min(self.disk_bytes - offset);
            let chunk = ChunkRef {
                range: ByteRange::new(offset, len),
                raw_bytes: to_u32(len),
                codec: Codec::Store,
                digest: Digest::default(),
            };
            bytes.extend_from_slice(WindowWire::of(&WindowRef::Chunk(chunk)).as_bytes());
        }
        let from = to_usize(range.offset - first * entry);
        bytes[from..][..to_usize(range.len)].to_vec()
    }

    /// What stands for the digest of a disk that was not read: it names the file as it is known.
    #[must_use]
    pub fn unread_digest(&self) -> Digest {
        let mut known = Vec::new();
        for number in [self.file_bytes, self.modified_ns, self.disk_bytes] {
            known.extend_from_slice(&number.to_le_bytes());
        }
        for sample in &self.samples {
            known.extend_from_slice(&sample.range.offset.to_le_bytes());
            known.extend_from_slice(&sample.digest.0);
        }
        if self.backing_count > 0 {
            known.extend_from_slice(&self.backing_digest.0);
        }
        derived(UNREAD_DISK_CONTEXT, &known)
    }

    /// Bytes of the image that pack and disk are together.
    #[must_use]
    pub fn image_bytes(&self) -> u64 {
        let parts = [self.head_bytes, self.chunk_bytes, self.leaf_bytes(), self.tail_bytes];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes of the pack.
    #[must_use]
    pub fn pack_bytes(&self) -> u64 {
        let tables = self.runs_bytes() + self.backing_bytes();
        [self.head_bytes, self.tail_bytes, tables].into_iter().fold(HEADER_BYTES, u64::saturating_add)
    }

    fn runs_bytes(&self) -> u64 {
        u64::from(self.run_count) * RUN_BYTES as u64
    }

    fn backing_bytes(&self) -> u64 {
        u64::from(self.backing_count) * BACKING_BYTES as u64
    }

    /// Where the table of runs lies in the pack.
    #[must_use]
    pub fn runs_range(&self) -> ByteRange {
        let bytes = self.runs_bytes();
        ByteRange::new(self.backing_range().offset - bytes, bytes)
    }

    /// Where the table of backing files lies in the pack.
    #[must_use]
    pub fn backing_range(&self) -> ByteRange {
        let bytes = self.backing_bytes();
        ByteRange::new(self.pack_bytes() - bytes, bytes)
    }
}

/// Which windows of the disk are cold chunks, in their order: the others are zeros.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PackRuns {
    /// First window, windows, and where their bytes begin among the cold chunks.
    runs: Vec<(u64, u64, u64)>,
    window_bytes: u64,
    disk_bytes: u64,
    chunk_bytes: u64,
}

impl PackRuns {
    /// No windows yet, of a disk of so many bytes.
    #[must_use]
    pub fn new(disk_bytes: u64, window_bytes: u32) -> Self {
        Self { runs: Vec::new(), window_bytes: window_bytes.into(), disk_bytes, chunk_bytes: 0 }
    }

    /// Adds windows behind all others.
    pub fn push(&mut self, first: u64, count: u64) {
        let start = first * self.window_bytes;
        let bytes = (count * self.window_bytes).min(self.disk_bytes.saturating_sub(start));
        match self.runs.last_mut() {
            Some((before, windows, _)) if *before + *windows == first => *windows += count,
            _ => self.runs.push((first, count, self.chunk_bytes)),
        }
        self.chunk_bytes += bytes;
    }

    /// How many runs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether all of the disk is zeros.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes of all windows.
    #[must_use]
    pub const fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// The table's bytes, and their digest.
    #[must_use]
    pub fn encode(&self) -> (Vec<u8>, Digest) {
        let wire =
            |&(first, count, _): &(u64, u64, u64)| RunWire { first: first.into(), count: count.into() };
        let table: Vec<RunWire> = self.runs.iter().map(wire).collect();
        let bytes = table.as_bytes().to_vec();
        let digest = Self::digest_of(&bytes);
        (bytes, digest)
    }

    /// Reads and checks a table.
    ///
    /// # Errors
    /// When it is not the one that the header names, or a rule is broken.
    pub fn decode(header: &PackHeader, bytes: Unverified<&[u8]>) -> Result<Self, FormatError> {
        let (len, digest) = (header.runs_range().len, header.runs_digest);
        let expected = ExpectedBytes { part: PART, len, digest, digest_of: Self::digest_of };
        let bytes = bytes.verify(&expected)?;
        let mut runs = Self::new(header.disk_bytes, header.window_bytes);
        let mut next = 0;
        for wire in bytes.chunks_exact(RUN_BYTES).filter_map(|run| RunWire::read_from_bytes(run).ok()) {
            let (first, count) = (wire.first.get(), wire.count.get());
            // R54
            check::within(PART, "first window of a run", first, (next, header.windows()))?;
            check::within(PART, "windows of a run", count, (1, header.windows() - first))?;
            runs.push(first, count);
            next = first + count;
        }
        check::equal(PART, "cold chunk bytes", header.chunk_bytes, runs.chunk_bytes)?;
        Ok(runs)
    }

    /// The digest of a table.
    #[must_use]
    pub fn digest_of(bytes: &[u8]) -> Digest {
        derived(PACK_RUNS_CONTEXT, bytes)
    }

    /// Where on the disk some bytes of the cold chunks lie: ranges in their order, all of them together.
    #[must_use]
    pub fn on_disk(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut ranges = Vec::new();
        let (mut at, end) = (range.offset, range.end().min(self.chunk_bytes));
        let mut next = self.runs.partition_point(|(_, _, start)| *start <= at).saturating_sub(1);
        while at < end {
            let (first, _, start) = self.runs[next];
            let run_end = self.runs.get(next + 1).map_or(self.chunk_bytes, |(_, _, start)| *start);
            let len = end.min(run_end) - at;
            ranges.push(ByteRange::new(first * self.window_bytes + (at - start), len));
            at += len;
            next += 1;
        }
        ranges
    }
}

#[cfg(test)]
mod tests;
