//! The header of a qcow2 file, and the entries of its tables: QEMU's docs/interop/qcow2.txt. All numbers are
//! big-endian.

use hs_units::{to_u32, to_usize};

use super::fault::Qcow2Fault;

pub(super) const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Bytes that are read to find header, extensions and the name of the backing file: the smallest cluster that
/// QEMU makes by itself is larger, and all of these are small.
pub(super) const HEADER_AREA_BYTES: u64 = 64 << 10;
/// Bytes of a header of version 2, and the least of version 3.
const V2_BYTES: usize = 72;
const V3_BYTES: usize = 104;
/// As QEMU has it.
const MOST_CLUSTER_BITS: u32 = 21;
const LEAST_CLUSTER_BITS: u32 = 9;
/// With subclusters, clusters have at least so many bits.
const LEAST_BITS_WITH_SUBCLUSTERS: u32 = 14;
/// As QEMU has it.
const MOST_L1_BYTES: u64 = 32 << 20;
const MOST_NAME_BYTES: u32 = 1023;
/// The largest disk that is taken: larger than any file of this system.
const MOST_DISK_BYTES: u64 = 1 << 60;

/// Incompatible features that a reader may pass over or understands.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const SUBCLUSTERS: u64 = 1 << 4;

/// The header extension that names the format of the backing file.
const BACKING_FORMAT: u32 = 0xe279_2aca;

/// How clusters are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    Deflate,
    Zstd,
}

impl Compression {
    /// The most bytes that one becomes: a match of 258 bytes has two bits, a block of 128 KiB four bytes.
    pub(super) const fn most_ratio(self) -> u64 {
        match self {
            Self::Deflate => 1032,
            Self::Zstd => 32 << 10,
        }
    }
}

/// What a header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) disk_bytes: u64,
    pub(super) cluster_bits: u32,
    pub(super) l1_at: u64,
    /// Entries that the disk needs.
    pub(super) l1_entries: u64,
    pub(super) has_subclusters: bool,
    /// Of version 3: entries may say that a cluster is zeros.
    pub(super) knows_zeros: bool,
    pub(super) compression: Compression,
    /// The name of the backing file, and its format where that is said.
    pub(super) backing: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Header {
    /// Reads the header of a file of `file_bytes` that begins with `area`.
    pub(super) fn parse(area: &[u8], file_bytes: u64) -> Result<Self, Qcow2Fault> {
        let number = |at: usize, bytes: usize| -> Result<u64, Qcow2Fault> {
            let field = area.get(at..at + bytes).ok_or(Qcow2Fault::Header("it is cut short"))?;
            Ok(field.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
        };
        if !area.starts_with(&MAGIC) {
            return Err(Qcow2Fault::Header("it does not begin as one"));
        }
        let version = number(4, 4)?;
        if !(2..=3).contains(&version) {
            return Err(Qcow2Fault::Version { version });
        }
        let (backing_at, backing_bytes) = (number(8, 8)?, number(16, 4)?);
        let cluster_bits = to_u32(number(20, 4)?);
        let (disk_bytes, encryption) = (number(24, 8)?, number(32, 4)?);
        let (l1_size, l1_at) = (number(36, 4)?, number(40, 8)?);
        let (features, header_bytes) = if version == 3 { (number(72, 8)?, number(100, 4)?) } else { (0, 72) };
        refuse_features(features, encryption)?;
        let has_subclusters = features & SUBCLUSTERS != 0;
        let least = if has_subclusters { LEAST_BITS_WITH_SUBCLUSTERS } else { LEAST_CLUSTER_BITS };
        if !(least..=MOST_CLUSTER_BITS).contains(&cluster_bits) {
            return Err(Qcow2Fault::Header("its clusters have no size that is allowed"));
        }
        if disk_bytes > MOST_DISK_BYTES {
            return Err(Qcow2Fault::LargeDisk { bytes: disk_bytes });
        }
        let least = if version == 3 { V3_BYTES } else { V2_BYTES };
        if to_usize(header_bytes) < least || to_usize(header_bytes) > area.len() {
            return Err(Qcow2Fault::Header("it has no size that is allowed"));
        }
        let compression = match (features & COMPRESSION_TYPE != 0, number(V3_BYTES, 1)) {
            (false, _) => Compression::Deflate,
            (true, Ok(1)) if to_usize(header_bytes) > V3_BYTES => Compression::Zstd,
            _ => return Err(Qcow2Fault::Feature("another compression than deflate and zstd")),
        };
        let mut header = Self {
            disk_bytes,
            cluster_bits,
            l1_at,
            l1_entries: 0,
            has_subclusters,
            knows_zeros: version == 3,
            compression,
            backing: None,
        };
        header.l1_entries = disk_bytes.div_ceil(header.l2_covers());
        header.check_l1(l1_size, file_bytes)?;
        if backing_at > 0 && backing_bytes > 0 {
            let name = backing_name(area, backing_at, backing_bytes)?;
            header.backing = Some((name, backing_format(area, to_usize(header_bytes))?));
        }
        Ok(header)
    }

    fn check_l1(&self, l1_size: u64, file_bytes: u64) -> Result<(), Qcow2Fault> {
        let bytes = self.l1_entries * 8;
        if bytes > MOST_L1_BYTES {
            return Err(Qcow2Fault::Header("its first table would have more than 32 MiB"));
        }
        if l1_size < self.l1_entries {
            return Err(Qcow2Fault::Header("its first table is too short for the disk"));
        }
        if self.l1_at.checked_add(bytes).is_none_or(|end| end > file_bytes) {
            return Err(Qcow2Fault::OutOfFile { what: "the first table", offset: self.l1_at });
        }
        Ok(())
    }

    pub(super) const fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Bytes of an entry of a second table.
    pub(super) const fn entry_bytes(&self) -> u64 {
        if self.has_subclusters { 16 } else { 8 }
    }

    /// Entries of a second table, which fills a cluster.
    pub(super) const fn l2_entries(&self) -> u64 {
        self.cluster_bytes() / self.entry_bytes()
    }

    /// Bytes of the disk that a second table is for.
    pub(super) const fn l2_covers(&self) -> u64 {
        self.l2_entries() * self.cluster_bytes()
    }

    /// Clusters are divided into so many parts, each of which is there or not.
    pub(super) const fn parts(&self) -> u64 {
        if self.has_subclusters { 32 } else { 1 }
    }

    /// The offset that an entry of a table has.
    pub(super) const fn offset_in(entry: u64) -> u64 {
        entry & 0x00ff_ffff_ffff_fe00
    }

    /// What an entry of a second table says.
    pub(super) fn entry(&self, bytes: &[u8]) -> Entry {
        let number = |at: usize| {
            let field = bytes.get(at..at + 8).unwrap_or(&[0; 8]);
            field.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        let entry = number(0);
        if entry & 1 << 62 != 0 {
            let offset_bits = 62 - (self.cluster_bits - 8);
            let offset = entry & ((1 << offset_bits) - 1);
            let sectors = (entry & ((1 << 62) - 1)) >> offset_bits;
            return Entry::Compressed { offset, bytes: (sectors + 1) * 512 - offset % 512 };
        }
        let offset = Self::offset_in(entry);
        let (present, zeros) = if self.has_subclusters {
            let map = number(8);
            (to_u32(map & u64::from(u32::MAX)), to_u32(map >> 32))
        } else if self.knows_zeros && entry & 1 != 0 {
            (0, 1)
        } else {
            (u32::from(offset != 0), 0)
        };
        Entry::Parts { offset, present, zeros }
    }
}

/// Where a cluster is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Compressed {
        offset: u64,
        bytes: u64,
    },
    /// Each part has a bit; one that is neither present nor zeros is of the backing file.
    Parts {
        offset: u64,
        present: u32,
        zeros: u32,
    },
}

/// The state of a part of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PartState {
    Present,
    Zeros,
    OfBacking,
}

impl Entry {
    pub(super) fn part(self, part: u64) -> PartState {
        match self {
            Self::Compressed { .. } => PartState::Present,
            Self::Parts { zeros, .. } if zeros >> part & 1 != 0 => PartState::Zeros,
            Self::Parts { present, .. } if present >> part & 1 != 0 => PartState::Present,
            Self::Parts { .. } => PartState::OfBacking,
        }
    }
}

fn refuse_features(features: u64, encryption: u64) -> Result<(), Qcow2Fault> {
    let known = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION_TYPE | SUBCLUSTERS;
    if encryption != 0 {
        return Err(Qcow2Fault::Feature("encryption"));
    }
    if features & CORRUPT != 0 {
        return Err(Qcow2Fault::Corrupt);
    }
    if features & EXTERNAL_DATA != 0 {
        return Err(Qcow2Fault::Feature("an external data file"));
    }
    if features & !known != 0 {
        return Err(Qcow2Fault::Feature("a feature of a later version"));
    }
    Ok(())
}

fn backing_name(area: &[u8], at: u64, bytes: u64) -> Result<Vec<u8>, Qcow2Fault> {
    if bytes > u64::from(MOST_NAME_BYTES) {
        return Err(Qcow2Fault::Header("the name of its backing file is too long"));
    }
    let range = usize::try_from(at).ok().and_then(|at| area.get(at..)?.get(..to_usize(bytes)));
    range
        .map(<[u8]>::to_vec)
        .ok_or(Qcow2Fault::OutOfFile { what: "the name of the backing file", offset: at })
}

/// The format of the backing file, among the extensions behind the header.
fn backing_format(area: &[u8], header_bytes: usize) -> Result<Option<Vec<u8>>, Qcow2Fault> {
    let mut rest = area.get(header_bytes..).unwrap_or_default();
    while let Some((head, behind)) = rest.split_at_checked(8) {
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, bytes) = (number(0), number(4) as usize);
        if kind == 0 {
            return Ok(None);
        }
        let content = behind.get(..bytes).ok_or(Qcow2Fault::Header("an extension of it is cut short"))?;
        if kind == BACKING_FORMAT {
            return Ok(Some(content.to_vec()));
        }
        rest = behind.get(bytes.next_multiple_of(8)..).unwrap_or_default();
    }
    Ok(None)
}
