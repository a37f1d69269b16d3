//! The cold region and the root of its index.

use hs_units::{ByteRange, Digest, to_u32};
use zerocopy::{FromBytes, IntoBytes};

use crate::Superblock;
use crate::check;
use crate::digest::{LEAF_CONTEXT, ROOT_CONTEXT, derived};
use crate::error::{FormatError, Part};
use crate::geometry::ColdGeometry;
use crate::limits::LEAF_ENTRY_BYTES;
use crate::unverified::{ExpectedBytes, Unverified};
use crate::wire::LeafWire;

/// The cold region, as the superblock describes it: chunks, then leaves, then the root. All but `range`
/// is relative to its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdRegion {
    /// The region in the file.
    pub range: ByteRange,
    /// Blocks in a window.
    pub window_blocks: u32,
    /// Windows in a leaf.
    pub windows_per_leaf: u32,
    /// Where the leaves start, and the chunks end; relative.
    pub leaves_offset: u64,
    /// The root; relative.
    pub root: ByteRange,
    /// The root's digest.
    pub root_digest: Digest,
    /// Chunks stored, each counted once.
    pub distinct_chunks: u64,
}

impl ColdRegion {
    /// Where chunks may lie, relative to the region.
    #[must_use]
    pub const fn chunk_space(&self) -> ByteRange {
        ByteRange::new(0, self.leaves_offset)
    }

    /// Where leaves may lie, relative to the region.
    #[must_use]
    pub const fn leaf_space(&self) -> ByteRange {
        ByteRange::new(self.leaves_offset, self.root.offset.saturating_sub(self.leaves_offset))
    }

    /// The range in the file of a range relative to the region, such as a leaf's or a chunk's.
    #[must_use]
    pub const fn in_file(&self, relative: ByteRange) -> ByteRange {
        ByteRange::new(self.range.offset + relative.offset, relative.len)
    }

    /// What the root's bytes must be.
    #[must_use]
    pub const fn expected_root(&self) -> ExpectedBytes {
        ExpectedBytes {
            part: Part::ColdRoot,
            len: self.root.len,
            digest: self.root_digest,
            digest_of: ColdRoot::digest_of,
        }
    }

    /// The rules between the region's own fields. `geometry` has been checked.
    pub(crate) fn check(&self, geometry: &ColdGeometry) -> Result<(), FormatError> {
        let part = Part::Superblock;
        let root_bytes = geometry.leaf_count() * LEAF_ENTRY_BYTES as u64;
        // R9
        check::equal(part, "cold root bytes", root_bytes, self.root.len)?;
        check::inside(part, "cold root", self.root, ByteRange::new(0, self.range.len))?;
        check::equal(part, "cold region bytes", self.root.end(), self.range.len)?;
        check::within(part, "cold leaves offset", self.leaves_offset, (0, self.root.offset))?;
        // R10
        // Every stored chunk has at least one byte, and at most those of a window.
        let most_chunks = geometry.windows().min(self.leaves_offset);
        let least_chunks = self.leaves_offset.div_ceil(geometry.window_bytes());
        check::within(part, "distinct cold chunks", self.distinct_chunks, (least_chunks, most_chunks))
    }
}

/// Where one leaf lies and which bytes it must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeafRef {
    /// Its bytes, relative to the cold region; empty when nothing is stored.
    pub range: ByteRange,
    /// Its digest.
    pub digest: Digest,
}

impl LeafRef {
    /// The reference to a leaf of which every window is zero: nothing is stored.
    pub const ZERO: Self = Self { range: ByteRange::new(0, 0), digest: Digest([0; 32]) };

    /// The reference to an encoded leaf, placed at `offset` of the cold region.
    #[must_use]
    pub fn of_encoded(offset: u64, leaf: &[u8]) -> Self {
        Self { range: ByteRange::new(offset, leaf.len() as u64), digest: Self::digest_of(leaf) }
    }

    /// The digest of an encoded leaf.
    #[must_use]
    pub fn digest_of(leaf: &[u8]) -> Digest {
        derived(LEAF_CONTEXT, leaf)
    }

    /// What the bytes of the leaf must be, which has this number.
    #[must_use]
    pub const fn expected(&self, leaf: u64) -> ExpectedBytes {
        let part = Part::ColdLeaf { leaf };
        ExpectedBytes { part, len: self.range.len, digest: self.digest, digest_of: Self::digest_of }
    }

    /// Whether every window of the leaf is zero and nothing is stored.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.range.len == 0
    }
}

/// The root of the cold index: one reference for each leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColdRoot {
    /// The leaves, in the order of the disk.
    pub leaves: Vec<LeafRef>,
}

impl ColdRoot {
    /// Checks the digest of `bytes`, then reads them.
    ///
    /// # Errors
    /// [`FormatError::Size`] and [`FormatError::DigestMismatch`] when these are not the root's bytes; others
    /// when the bytes break a rule although their digest is right.
    pub fn decode(bytes: Unverified<&[u8]>, superblock: &Superblock) -> Result<Self, FormatError> {
        let part = Part::ColdRoot;
        let cold = &superblock.cold;
        let geometry = superblock.geometry();
        let bytes = bytes.verify(&cold.expected_root())?;
        check::equal(part, "leaves", geometry.leaf_count(), (bytes.len() / LEAF_ENTRY_BYTES) as u64)?;
        let entries = <[LeafWire]>::ref_from_bytes(bytes).map_err(|_| FormatError::Size {
            part,
            expected: geometry.leaf_count() * LEAF_ENTRY_BYTES as u64,
            found: bytes.len() as u64,
        })?;
        let mut next = cold.leaves_offset;
        let mut leaves = Vec::with_capacity(entries.len());
        for (leaf, entry) in entries.iter().enumerate() {
            let at = leaf * LEAF_ENTRY_BYTES;
            // R1
            check::zero(part, at + 12, entry.reserved.as_bytes())?;
            // R12
            if entry.bytes.get() == 0 {
                check::zero(part, at, entry.as_bytes())?;
                leaves.push(LeafRef::ZERO);
                continue;
            }
            // R13
            // Leaves lie one after another without gaps: no two can share bytes, and none can be the
            // root or a chunk.
            let range = ByteRange::new(entry.offset.get(), entry.bytes.get().into());
            check::equal(part, "leaf bytes", geometry.leaf_bytes(leaf as u64).into(), range.len)?;
            check::equal(part, "leaf offset", next, range.offset)?;
            check::inside(part, "leaf", range, cold.leaf_space())?;
            next = range.end();
            leaves.push(LeafRef { range, digest: Digest(entry.digest) });
        }
        check::equal(part, "end of the leaves", cold.root.offset, next)?;
        Ok(Self { leaves })
    }

    /// The root's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.leaves.len() * LEAF_ENTRY_BYTES);
        for leaf in &self.leaves {
            let entry = LeafWire {
                offset: leaf.range.offset.into(),
                bytes: to_u32(leaf.range.len).into(),
                reserved: 0.into(),
                digest: leaf.digest.0,
            };
            bytes.extend_from_slice(entry.as_bytes());
        }
        bytes
    }

    /// The digest of an encoded root.
    #[must_use]
    pub fn digest_of(bytes: &[u8]) -> Digest {
        derived(ROOT_CONTEXT, bytes)
    }
}
