//! The files behind the one that holds the disk of a pack: a qcow2 file may leave parts of its disk to them.

use core::mem::{offset_of, size_of};

use hs_units::{ByteRange, Digest, to_u32};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BaseKind, PART, PackHeader, Sample, SampleWire};
use crate::check;
use crate::digest::{PACK_BACKING_CONTEXT, derived};
use crate::error::FormatError;
use crate::limits::{MAX_BACKING_SAMPLES, MAX_CHUNK_RAW_BYTES, MAX_IMAGE_BYTES, MAX_PACK_NAME_BYTES};
use crate::unverified::{ExpectedBytes, Unverified};

/// Bytes of a file in the table.
pub(super) const BACKING_BYTES: usize = size_of::<BackingWire>();

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BackingWire {
    kind: U16,
    name_bytes: U16,
    sample_count: U16,
    reserved: U16,
    file_bytes: U64,
    modified_ns: U64,
    name: [u8; MAX_PACK_NAME_BYTES],
    samples: [SampleWire; MAX_BACKING_SAMPLES],
}

const _: () = assert!(BACKING_BYTES == 664);

/// A file behind another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackingFile {
    /// How it holds its disk.
    pub kind: BaseKind,
    /// Its name, without a folder.
    pub name: String,
    /// Its size in bytes.
    pub file_bytes: u64,
    /// When it was modified, as [`PackHeader::modified_ns`].
    pub modified_ns: u64,
    /// Samples of it.
    pub samples: Vec<Sample>,
}

impl BackingFile {
    /// The bytes of a table, and their digest.
    ///
    /// # Panics
    /// When a name or the samples are more than a file may have.
    #[must_use]
    pub fn encode_all(files: &[Self]) -> (Vec<u8>, Digest) {
        let bytes: Vec<u8> = files.iter().flat_map(|file| file.wire().as_bytes().to_vec()).collect();
        let digest = if files.is_empty() { Digest::default() } else { Self::digest_of(&bytes) };
        (bytes, digest)
    }

    fn wire(&self) -> BackingWire {
        let mut wire = BackingWire::new_zeroed();
        wire.kind = self.kind.number().into();
        wire.name_bytes = u16::try_from(self.name.len()).expect("a short name").into();
        wire.sample_count = u16::try_from(self.samples.len()).expect("few samples").into();
        wire.file_bytes = self.file_bytes.into();
        wire.modified_ns = self.modified_ns.into();
        wire.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        assert!(self.samples.len() <= MAX_BACKING_SAMPLES, "few samples");
        encode_samples(&mut wire.samples, &self.samples);
        wire
    }

    /// Reads and checks the table of a pack with this header: the files in the order in which each lies
    /// behind the one before.
    ///
    /// # Errors
    /// When it is not the one that the header names, or a rule of docs/FORMAT.md is broken.
    pub fn decode_all(header: &PackHeader, bytes: Unverified<&[u8]>) -> Result<Vec<Self>, FormatError> {
        if header.backing_count == 0 {
            return Ok(Vec::new());
        }
        let (len, digest) = (header.backing_range().len, header.backing_digest);
        let expected = ExpectedBytes { part: PART, len, digest, digest_of: Self::digest_of };
        let bytes = bytes.verify(&expected)?;
        let wires =
            bytes.chunks_exact(BACKING_BYTES).filter_map(|wire| BackingWire::ref_from_bytes(wire).ok());
        wires.map(Self::decode).collect()
    }

    fn decode(wire: &BackingWire) -> Result<Self, FormatError> {
        // R59
        let kind = BaseKind::of_number(wire.kind.get())?;
        check::equal(PART, "reserved bytes of a backing file", 0, wire.reserved.get().into())?;
        let file_bytes = wire.file_bytes.get();
        check::within(PART, "bytes of a backing file", file_bytes, (1, MAX_IMAGE_BYTES))?;
        let (names_at, samples_at) = (offset_of!(BackingWire, name), offset_of!(BackingWire, samples));
        Ok(Self {
            kind,
            name: decode_name(&wire.name, wire.name_bytes.get(), names_at)?,
            file_bytes,
            modified_ns: wire.modified_ns.get(),
            samples: decode_samples(&wire.samples, wire.sample_count.get(), samples_at, file_bytes)?,
        })
    }

    /// The digest of a table.
    #[must_use]
    pub fn digest_of(bytes: &[u8]) -> Digest {
        derived(PACK_BACKING_CONTEXT, bytes)
    }
}

impl BaseKind {
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::Raw => 1,
            Self::Qcow2 => 2,
        }
    }

    pub(super) fn of_number(number: u16) -> Result<Self, FormatError> {
        check::within(PART, "kind of the disk", number.into(), (1, 2))?;
        Ok(if number == 1 { Self::Raw } else { Self::Qcow2 })
    }
}

/// The name of a file beside the pack, whose field lies at `at`.
pub(super) fn decode_name(
    field: &[u8; MAX_PACK_NAME_BYTES],
    bytes: u16,
    at: usize,
) -> Result<String, FormatError> {
    check::within(PART, "name bytes", bytes.into(), (0, MAX_PACK_NAME_BYTES as u64))?;
    let (name, rest) = field.split_at(bytes.into());
    check::zero(PART, at + name.len(), rest)?;
    // R52: it names a file beside the pack, and nothing else.
    let is_file_name = !name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..";
    match std::str::from_utf8(name) {
        Ok(name) if is_file_name => Ok(name.to_owned()),
        _ => Err(FormatError::PackName { name: name.escape_ascii().to_string() }),
    }
}

/// The samples of a file of so many bytes, whose field lies at `at`.
pub(super) fn decode_samples(
    field: &[SampleWire],
    count: u16,
    at: usize,
    file_bytes: u64,
) -> Result<Vec<Sample>, FormatError> {
    let count = usize::from(count);
    check::within(PART, "samples", count as u64, (0, field.len() as u64))?;
    let (samples, rest) = field.split_at(count);
    check::zero(PART, at + count * size_of::<SampleWire>(), rest.as_bytes())?;
    let decode = |sample: &SampleWire| {
        let range = ByteRange::new(sample.offset.get(), sample.bytes.get().into());
        check::equal(PART, "reserved bytes of a sample", 0, sample.reserved.get().into())?;
        // R53
        check::within(PART, "sample bytes", range.len, (1, MAX_CHUNK_RAW_BYTES.into()))?;
        check::inside(PART, "sample", range, ByteRange::new(0, file_bytes))?;
        Ok(Sample { range, digest: Digest(sample.digest) })
    };
    samples.iter().map(decode).collect()
}

pub(super) fn encode_samples(field: &mut [SampleWire], samples: &[Sample]) {
    for (place, sample) in field.iter_mut().zip(samples) {
        place.offset = sample.range.offset.into();
        place.bytes = to_u32(sample.range.len).into();
        place.digest = sample.digest.0;
    }
}
