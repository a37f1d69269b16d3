//! The superblock: what the image is, and where everything lies.

use hs_units::{BLOCK_BYTES, ByteRange, Digest, to_u32};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::check;
use crate::cold::ColdRegion;
use crate::digest::{IMAGE_CONTEXT, ImageDigest, derived, plain};
use crate::error::{FormatError, Part};
use crate::geometry::{ColdGeometry, ColdPlace};
use crate::hot::HotSegment;
use crate::limits::{
    COMPAT_SHORT, COMPAT_TABLES_BITS, COMPAT_TABLES_SHIFT, FEATURE_BASE, FEATURE_BORROWED, FEATURE_STALE,
    FEATURE_UNREAD, KNOWN_INCOMPAT, MAX_DISK_BYTES, MAX_HINTS_BYTES, MAX_HOT_INDEX_BYTES, MAX_HOT_SEGMENTS,
    MAX_IMAGE_BYTES, MAX_PADDING_BYTES, SUPERBLOCK_BYTES, VERSION,
};
use crate::unverified::Unverified;
use crate::wire::{BaseWire, ColdWire, HotSlotWire, SUPERBLOCK_MAGIC, SignatureWire, SuperblockWire};

const CHECKSUM_AT: usize = SUPERBLOCK_BYTES - 32;

/// The largest number of [`Features::table_blocks`].
const MOST_TABLE_BLOCKS: u64 = (1 << COMPAT_TABLES_BITS) - 1;

/// Feature bits of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features {
    /// A reader refuses the image when it does not know one of these.
    pub incompat: u64,
    /// A reader ignores those that it does not know. Twelve of them are a number, see [`COMPAT_SHORT`].
    pub compat: u64,
}

impl Features {
    /// Those of an image with this base, if it has one.
    #[must_use]
    pub const fn of_base(base: Option<&BaseRef>) -> Self {
        Self { incompat: if base.is_some() { FEATURE_BASE } else { 0 }, compat: 0 }
    }

    /// The same of the image that a pack of a disk makes that was not read.
    #[must_use]
    pub const fn of_unread(self) -> Self {
        Self { incompat: self.incompat | FEATURE_UNREAD, ..self }
    }

    /// The same of an image with hot chunks of its base's image, or without.
    #[must_use]
    pub const fn of_borrowed(self, borrows: bool) -> Self {
        let incompat = self.incompat & !FEATURE_BORROWED;
        Self { incompat: if borrows { incompat | FEATURE_BORROWED } else { incompat }, ..self }
    }

    /// Whether some hot chunks are those of the base's image.
    #[must_use]
    pub const fn borrows(self) -> bool {
        self.incompat & FEATURE_BORROWED != 0
    }

    /// The same features, of an image whose hot chunks have blocks that are none of its disk, or have not.
    #[must_use]
    pub const fn of_stale(self, has_stale: bool) -> Self {
        let incompat = self.incompat & !FEATURE_STALE;
        Self { incompat: if has_stale { incompat | FEATURE_STALE } else { incompat }, ..self }
    }

    /// Whether some hot chunks have blocks that are none of the disk.
    #[must_use]
    pub const fn has_stale(self) -> bool {
        self.incompat & FEATURE_STALE != 0
    }

    /// Whether cold windows have no digests.
    #[must_use]
    pub const fn is_unread(self) -> bool {
        self.incompat & FEATURE_UNREAD != 0
    }

    /// The same of a disk whose first blocks, so many, hold the tables of its file system. More than fit the
    /// number are as many as fit.
    #[must_use]
    pub fn of_tables(self, blocks: u64) -> Self {
        let blocks = blocks.min(MOST_TABLE_BLOCKS);
        Self {
            compat: self.compat & !(MOST_TABLE_BLOCKS << COMPAT_TABLES_SHIFT) | blocks << COMPAT_TABLES_SHIFT,
            ..self
        }
    }

    /// How many blocks at the disk's start hold the tables of its file system; zero if that is not known.
    #[must_use]
    pub const fn table_blocks(self) -> u64 {
        self.compat >> COMPAT_TABLES_SHIFT & MOST_TABLE_BLOCKS
    }

    /// The same of a disk that is so many bytes long, in whole blocks or not.
    #[must_use]
    pub const fn of_disk(self, exact_bytes: u64) -> Self {
        let short = exact_bytes.next_multiple_of(BLOCK_BYTES) - exact_bytes;
        Self { compat: self.compat & !COMPAT_SHORT | short, ..self }
    }

    fn check(self) -> Result<(), FormatError> {
        if self.incompat & !KNOWN_INCOMPAT == 0 {
            Ok(())
        } else {
            Err(FormatError::UnknownFeatures { known: KNOWN_INCOMPAT, found: self.incompat })
        }
    }
}

/// The disk of another image, blocks of which cold windows of this one may refer to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BaseRef {
    /// Names its content.
    pub disk_digest: Digest,
    /// Its bytes.
    pub disk_bytes: u64,
}

impl BaseRef {
    fn check(&self) -> Result<(), FormatError> {
        let part = Part::Superblock;
        // R30
        check::within(part, "disk bytes of the base", self.disk_bytes, (BLOCK_BYTES, MAX_DISK_BYTES))?;
        check::equal(part, "bytes past the base's last whole block", 0, self.disk_bytes % BLOCK_BYTES)
    }
}

/// A signature as it lies in the superblock. This crate carries it and does not judge it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The scheme; never zero.
    pub kind: u16,
    /// Which key made it.
    pub key_id: [u8; 8],
    /// The signature.
    pub signature: [u8; 64],
}

/// A superblock whose checksum, limits and places were checked (when it came from [`Self::decode`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Feature bits.
    pub features: Features,
    /// Bytes of the logical disk.
    pub disk_bytes: u64,
    /// Bytes of the whole image file.
    pub image_bytes: u64,
    /// The digest of the disk's content, see [`crate::DiskHasher`].
    pub disk_digest: Digest,
    /// The cold region.
    pub cold: ColdRegion,
    /// The hot segments, in the order in which a start should read them.
    pub hot: Vec<HotSegment>,
    /// Its base; there is one when the feature bit says so, and not otherwise.
    pub base: Option<BaseRef>,
    /// A signature, if there is one.
    pub signature: Option<Signature>,
}

impl Superblock {
    /// Reads and checks a superblock, or its mirror.
    ///
    /// # Errors
    /// When the bytes are not a superblock of this version, when their checksum is wrong, and when they break
    /// a rule of docs/FORMAT.md.
    pub fn decode(bytes: Unverified<&[u8]>) -> Result<Self, FormatError> {
        let part = Part::Superblock;
        let bytes = bytes.with_own_digest();
        let size = FormatError::Size { part, expected: SUPERBLOCK_BYTES as u64, found: bytes.len() as u64 };
        let wire = SuperblockWire::ref_from_bytes(bytes).map_err(|_| size)?;
        // R5: magic, version, size; then R6: the checksum; then R7: the features; then R1.
        if wire.magic != SUPERBLOCK_MAGIC {
            return Err(FormatError::BadMagic { part, expected: SUPERBLOCK_MAGIC, found: wire.magic });
        }
        // The version comes before the checksum: a newer version may have another one.
        if wire.version.get() != VERSION {
            let found = wire.version.get();
            return Err(FormatError::UnsupportedVersion { part, expected: VERSION, found });
        }
        check::equal(part, "superblock bytes", SUPERBLOCK_BYTES as u64, wire.superblock_bytes.get().into())?;
        let (expected, found) = (Digest(wire.checksum), plain(&bytes[..CHECKSUM_AT]));
        if expected != found {
            return Err(FormatError::DigestMismatch { part, expected, found });
        }
        let features = Features { incompat: wire.incompat.get(), compat: wire.compat.get() };
        // Features come before reserved bytes: one may give them a meaning.
        features.check()?;
        // R1
        check::zero(part, 124, wire.cold.reserved.as_bytes())?;
        check::zero(part, 170, &wire.reserved_hot)?;
        check::zero(part, 1880, &wire.reserved)?;
        let superblock = Self {
            features,
            disk_bytes: wire.disk_bytes.get(),
            image_bytes: wire.image_bytes.get(),
            disk_digest: Digest(wire.disk_digest),
            cold: decode_cold(&wire.cold),
            hot: decode_hot(wire)?,
            base: decode_base(wire)?,
            signature: decode_signature(&wire.signature)?,
        };
        superblock.check()?;
        Ok(superblock)
    }

    /// The superblock's bytes, checksum included. A builder asks [`Self::check_file`] first.
    ///
    /// # Panics
    /// When there are more hot segments than slots, when a signature has the kind zero, or when a table is
    /// longer than its 32-bit field; [`Self::check_file`] refuses the last.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut wire = self.to_wire();
        if let Some(signature) = &self.signature {
            assert_ne!(signature.kind, 0, "kind zero is no signature");
            wire.signature.kind = signature.kind.into();
            wire.signature.key_id = signature.key_id;
            wire.signature.signature = signature.signature;
        }
        wire.checksum = plain(&wire.as_bytes()[..CHECKSUM_AT]).0;
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(wire.as_bytes());
        bytes
    }

    /// The image's name: it does not depend on the signature, which can be added later.
    #[must_use]
    pub fn image_digest(&self) -> ImageDigest {
        ImageDigest(derived(IMAGE_CONTEXT, self.to_wire().as_bytes()))
    }

    /// The rules of the format, and that the file has the size that the superblock states.
    ///
    /// # Errors
    /// [`FormatError::Size`] of [`Part::File`] when the file is cut off or longer; any other when a rule is
    /// broken, which is news only for a superblock that was not decoded.
    pub fn check_file(&self, file_bytes: u64) -> Result<(), FormatError> {
        self.check()?;
        // R2
        if self.image_bytes == file_bytes {
            Ok(())
        } else {
            Err(FormatError::Size { part: Part::File, expected: self.image_bytes, found: file_bytes })
        }
    }

    /// How the disk is cut into cold windows.
    #[must_use]
    pub const fn geometry(&self) -> ColdGeometry {
        ColdGeometry {
            disk_bytes: self.disk_bytes,
            window_blocks: self.cold.window_blocks,
            windows_per_leaf: self.cold.windows_per_leaf,
        }
    }

    /// Blocks of the disk.
    #[must_use]
    pub const fn disk_blocks(&self) -> u64 {
        self.disk_bytes / BLOCK_BYTES
    }

    /// Bytes of the disk as it was built: less than a block shorter than [`disk_bytes`](Self::disk_bytes).
    #[must_use]
    pub const fn exact_bytes(&self) -> u64 {
        self.disk_bytes - (self.features.compat & COMPAT_SHORT)
    }

    /// Cold windows of the disk.
    #[must_use]
    pub const fn windows(&self) -> u64 {
        self.geometry().windows()
    }

    /// Raw bytes of a cold window; the last one ends with the disk.
    #[must_use]
    pub const fn window_raw_bytes(&self, window: u64) -> u32 {
        self.geometry().window_raw_bytes(window)
    }

    /// Leaves of the cold index.
    #[must_use]
    pub const fn leaf_count(&self) -> u64 {
        self.geometry().leaf_count()
    }

    /// Where a block lies in the cold region.
    #[must_use]
    pub const fn cold_place(&self, lba: hs_units::Lba) -> ColdPlace {
        self.geometry().place(lba)
    }

    /// Where the mirror of the superblock lies in the file.
    #[must_use]
    pub const fn mirror(&self) -> ByteRange {
        ByteRange::new(self.image_bytes.saturating_sub(SUPERBLOCK_BYTES as u64), SUPERBLOCK_BYTES as u64)
    }

    fn check(&self) -> Result<(), FormatError> {
        let part = Part::Superblock;
        self.features.check()?;
        let says_base = self.features.incompat & FEATURE_BASE;
        check::equal(part, "feature base", u64::from(self.base.is_some()), says_base)?;
        self.base.as_ref().map_or(Ok(()), BaseRef::check)?;
        // R56
        let borrows = u64::from(self.features.borrows());
        check::within(part, "feature borrowed without a base", borrows, (0, says_base))?;
        // R48
        let unread = u64::from(self.features.is_unread());
        check::within(part, "features base and unread together", says_base + unread, (0, 1))?;
        let least_image = 2 * SUPERBLOCK_BYTES as u64;
        check::within(part, "image bytes", self.image_bytes, (least_image, MAX_IMAGE_BYTES))?;
        // R8; the rest of it is in `ColdGeometry::check`.
        let geometry = self.geometry();
        geometry.check()?;
        // R3; overlaps are found below.
        check::inside(part, "cold region", self.cold.range, ByteRange::new(0, self.image_bytes))?;
        self.cold.check(&geometry)?;
        check::within(part, "hot segments", self.hot.len() as u64, (0, MAX_HOT_SEGMENTS as u64))?;
        for segment in &self.hot {
            segment.check(geometry.disk_blocks(), self.image_bytes, self.features)?;
        }
        self.check_hot_tables()?;
        self.check_regions()
    }

    /// A reader holds the tables of all segments at once.
    fn check_hot_tables(&self) -> Result<(), FormatError> {
        let sum = |bytes: fn(&HotSegment) -> u64| self.hot.iter().map(bytes).sum();
        let (part, indexes, hints) = (Part::Superblock, sum(|hot| hot.index.len), sum(|hot| hot.hints.len));
        // R36
        check::within(part, "bytes of all hot indexes", indexes, (0, MAX_HOT_INDEX_BYTES.into()))?;
        check::within(part, "bytes of all hints", hints, (0, MAX_HINTS_BYTES.into()))
    }

    /// The regions fill the file from the superblock to the mirror, disjoint, in any order, with at most
    /// alignment between them: each byte of the file belongs to a region.
    fn check_regions(&self) -> Result<(), FormatError> {
        let part = Part::Superblock;
        let mut regions = vec![self.cold.range];
        regions.extend(self.hot.iter().map(HotSegment::range));
        regions.sort_unstable();
        regions.push(self.mirror());
        let mut before = ByteRange::new(0, SUPERBLOCK_BYTES as u64);
        for region in regions {
            // R3
            if region.offset < before.end() {
                return Err(FormatError::Overlap { part, first: before, second: region });
            }
            let gap = ByteRange::new(before.end(), region.offset - before.end());
            // R4
            if gap.len >= MAX_PADDING_BYTES {
                return Err(FormatError::Gap { part, limit: MAX_PADDING_BYTES, gap });
            }
            before = region;
        }
        Ok(())
    }

    /// Everything but signature and checksum, which stay zero.
    fn to_wire(&self) -> SuperblockWire {
        let hot_count = u16::try_from(self.hot.len()).unwrap_or(u16::MAX);
        assert!(usize::from(hot_count) <= MAX_HOT_SEGMENTS, "{} hot segments", self.hot.len());
        let mut wire = SuperblockWire::new_zeroed();
        wire.magic = SUPERBLOCK_MAGIC;
        wire.version = VERSION.into();
        wire.superblock_bytes = to_u32(SUPERBLOCK_BYTES as u64).into();
        wire.incompat = self.features.incompat.into();
        wire.compat = self.features.compat.into();
        wire.disk_bytes = self.disk_bytes.into();
        wire.image_bytes = self.image_bytes.into();
        wire.disk_digest = self.disk_digest.0;
        wire.cold = encode_cold(&self.cold);
        wire.hot_count = hot_count.into();
        for (slot, segment) in wire.hot.iter_mut().zip(&self.hot) {
            *slot = encode_slot(segment);
        }
        if let Some(base) = &self.base {
            wire.base = BaseWire { disk_digest: base.disk_digest.0, disk_bytes: base.disk_bytes.into() };
        }
        wire
    }
}

fn decode_cold(wire: &ColdWire) -> ColdRegion {
    ColdRegion {
        range: ByteRange::new(wire.offset.get(), wire.bytes.get()),
        window_blocks: wire.window_blocks.get(),
        windows_per_leaf: wire.windows_per_leaf.get(),
        leaves_offset: wire.leaves_offset.get(),
        root: ByteRange::new(wire.root_offset.get(), wire.root_bytes.get().into()),
        root_digest: Digest(wire.root_digest),
        distinct_chunks: wire.distinct_chunks.get(),
    }
}

fn encode_cold(cold: &ColdRegion) -> ColdWire {
    ColdWire {
        offset: cold.range.offset.into(),
        bytes: cold.range.len.into(),
        window_blocks: cold.window_blocks.into(),
        windows_per_leaf: cold.windows_per_leaf.into(),
        leaves_offset: cold.leaves_offset.into(),
        root_offset: cold.root.offset.into(),
        root_bytes: to_u32(cold.root.len).into(),
        reserved: 0.into(),
        distinct_chunks: cold.distinct_chunks.into(),
        root_digest: cold.root_digest.0,
    }
}

fn decode_hot(wire: &SuperblockWire) -> Result<Vec<HotSegment>, FormatError> {
    let part = Part::Superblock;
    let count = wire.hot_count.get();
    check::within(part, "hot segments", count.into(), (0, MAX_HOT_SEGMENTS as u64))?;
    let (used, unused) = wire.hot.split_at(count.into());
    // R1
    check::zero(part, 176 + 104 * used.len(), unused.as_bytes())?;
    let mut segments = Vec::with_capacity(used.len());
    for slot in used {
        let index = ByteRange::new(slot.index_offset.get(), slot.index_bytes.get().into());
        // Ends may overflow here; the checks afterwards refuse the segment then.
        let hints_offset = index.offset.saturating_add(index.len);
        let hints = ByteRange::new(hints_offset, slot.hints_bytes.get().into());
        let chunks_offset = hints.offset.saturating_add(hints.len);
        segments.push(HotSegment {
            index,
            hints,
            chunks: ByteRange::new(chunks_offset, slot.chunks_bytes.get()),
            index_digest: Digest(slot.index_digest),
            hints_digest: Digest(slot.hints_digest),
            blocks: slot.blocks.get(),
            chunk_count: slot.chunk_count.get(),
            own_ms: slot.own_ms.get(),
        });
    }
    Ok(segments)
}

fn encode_slot(segment: &HotSegment) -> HotSlotWire {
    HotSlotWire {
        index_offset: segment.index.offset.into(),
        index_bytes: to_u32(segment.index.len).into(),
        hints_bytes: to_u32(segment.hints.len).into(),
        chunks_bytes: segment.chunks.len.into(),
        blocks: segment.blocks.into(),
        chunk_count: segment.chunk_count.into(),
        own_ms: segment.own_ms.into(),
        index_digest: segment.index_digest.0,
        hints_digest: segment.hints_digest.0,
    }
}

fn decode_base(wire: &SuperblockWire) -> Result<Option<BaseRef>, FormatError> {
    if wire.incompat.get() & FEATURE_BASE == 0 {
        // R1
        check::zero(Part::Superblock, 1840, wire.base.as_bytes())?;
        return Ok(None);
    }
    let BaseWire { disk_digest, disk_bytes } = wire.base;
    Ok(Some(BaseRef { disk_digest: Digest(disk_digest), disk_bytes: disk_bytes.get() }))
}

fn decode_signature(wire: &SignatureWire) -> Result<Option<Signature>, FormatError> {
    let part = Part::Superblock;
    if wire.kind.get() == 0 {
        // R1
        check::zero(part, 3984, wire.as_bytes())?;
        return Ok(None);
    }
    check::zero(part, 3986, &wire.reserved)?;
    let (kind, key_id, signature) = (wire.kind.get(), wire.key_id, wire.signature);
    Ok(Some(Signature { kind, key_id, signature }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_are_set_stay_set() {
        let features = Features::of_base(None).of_unread().of_unread().of_tables(7).of_tables(5);
        assert!(features.is_unread() && !features.borrows() && !features.has_stale());
        assert_eq!(features.table_blocks(), 5);
        assert_eq!(features.of_tables(u64::MAX).table_blocks(), (1 << COMPAT_TABLES_BITS) - 1);
        assert_eq!(Features { compat: u64::MAX, ..features }.of_tables(0).table_blocks(), 0);
    }
}
