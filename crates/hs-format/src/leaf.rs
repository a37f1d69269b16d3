//! Leaves of the cold index: where each window of the disk is stored.

use hs_units::{ByteRange, Digest, to_u32};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::Superblock;
use crate::check;
use crate::chunk::ChunkRef;
use crate::codec::Codec;
use crate::cold::LeafRef;
use crate::error::{FormatError, Part};
use crate::limits::WINDOW_ENTRY_BYTES;
use crate::unverified::Unverified;
use crate::wire::WindowWire;

/// What is stored of one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowRef {
    /// Nothing: all its bytes are zero.
    Zero,
    /// A chunk, relative to the cold region; several windows may share one.
    Chunk(ChunkRef),
}

/// One verified leaf: 48 bytes of memory for each window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColdLeaf {
    entries: Box<[WindowWire]>,
    /// Raw bytes of every window but the last.
    window_bytes: u32,
    /// Raw bytes of the last window.
    last_window_bytes: u32,
}

impl ColdLeaf {
    /// Checks the digest of `bytes`, then reads them as the leaf `leaf_number`, to which `leaf` refers.
    ///
    /// # Errors
    /// [`FormatError::Size`] and [`FormatError::DigestMismatch`] when these are not the leaf's bytes; others
    /// when the bytes break a rule although their digest is right.
    pub fn decode(
        bytes: Unverified<&[u8]>,
        leaf_number: u64,
        leaf: &LeafRef,
        superblock: &Superblock,
    ) -> Result<Self, FormatError> {
        let part = Part::ColdLeaf { leaf: leaf_number };
        let geometry = superblock.geometry();
        let bytes = bytes.verify(&leaf.expected(leaf_number))?;
        let expected = u64::from(geometry.leaf_bytes(leaf_number));
        let size = FormatError::Size { part, expected, found: bytes.len() as u64 };
        let entries = match <[WindowWire]>::ref_from_bytes(bytes) {
            Ok(entries) if bytes.len() as u64 == expected && !entries.is_empty() => entries,
            _ => return Err(size),
        };
        let first_window = leaf_number * u64::from(geometry.windows_per_leaf);
        let decoded = Self {
            entries: entries.into(),
            window_bytes: to_u32(geometry.window_bytes()),
            last_window_bytes: geometry.window_raw_bytes(first_window + entries.len() as u64 - 1),
        };
        decoded.check(part, superblock)?;
        Ok(decoded)
    }

    fn check(&self, part: Part, superblock: &Superblock) -> Result<(), FormatError> {
        let (space, has_base) = (superblock.cold.chunk_space(), superblock.base.is_some());
        let is_read = !superblock.features.is_unread();
        let mut stored = Vec::with_capacity(self.entries.len());
        for (i, entry) in self.entries.iter().enumerate() {
            let at = i * WINDOW_ENTRY_BYTES;
            // R1
            check::zero(part, at + 14, entry.flags.as_bytes())?;
            // R14
            if entry.stored_bytes.get() == 0 {
                check::zero(part, at, entry.as_bytes())?;
                continue;
            }
            let codec = Codec::from_u16(entry.codec.get(), part)?;
            // R31
            if codec == Codec::Composed && !has_base {
                return Err(FormatError::MisplacedComposed { part });
            }
            // R48: without a digest nothing is verified, so only what says so goes without.
            if (Digest(entry.digest) != Digest::default()) != is_read {
                return Err(FormatError::ChunkDigest { part, expected: is_read });
            }
            // R15; R24 is checked there as well.
            self.chunk(i, entry, codec).check(part, space)?;
            stored.push(i);
        }
        // R16
        // Windows may share a chunk, wholly: same place, same everything. Anything else that overlaps
        // would make one stored byte mean two things.
        stored.sort_unstable_by_key(|&i| (self.entries[i].offset.get(), self.entries[i].stored_bytes.get()));
        for pair in stored.windows(2) {
            let (first, second) = (&self.entries[pair[0]], &self.entries[pair[1]]);
            let (first_range, second_range) = (range_of(first), range_of(second));
            let shared = first == second && self.raw_bytes(pair[0]) == self.raw_bytes(pair[1]);
            if !shared && first_range.end() > second_range.offset {
                return Err(FormatError::Overlap { part, first: first_range, second: second_range });
            }
        }
        Ok(())
    }

    /// A leaf of these windows, for [`Self::encode`].
    ///
    /// # Panics
    /// When there is no window.
    #[must_use]
    pub fn new(windows: &[WindowRef]) -> Self {
        let raw_bytes = |window: &WindowRef| match window {
            WindowRef::Zero => 0,
            WindowRef::Chunk(chunk) => chunk.raw_bytes,
        };
        let (last, others) = windows.split_last().expect("a leaf has at least one window");
        Self {
            entries: windows.iter().map(WindowWire::of).collect(),
            window_bytes: others.iter().map(raw_bytes).max().unwrap_or(0),
            last_window_bytes: raw_bytes(last),
        }
    }

    /// The leaf's bytes; their reference is [`LeafRef::of_encoded`]. A leaf of zero windows only is not
    /// stored at all: [`LeafRef::ZERO`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.entries.as_bytes().to_vec()
    }

    /// Windows in the leaf, of which there is at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no leaf is empty")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is stored of the window at the position `i` of the leaf.
    ///
    /// # Panics
    /// When `i` is not below [`Self::len`].
    #[must_use]
    pub fn window(&self, i: usize) -> WindowRef {
        let entry = &self.entries[i];
        // `decode` refused unknown codecs and `new` can make none, so what is left is the zero entry.
        match Codec::from_u16(entry.codec.get(), Part::ColdRoot) {
            Ok(codec) => WindowRef::Chunk(self.chunk(i, entry, codec)),
            Err(_) => WindowRef::Zero,
        }
    }

    /// What is stored of every window, in order.
    pub fn windows(&self) -> impl ExactSizeIterator<Item = WindowRef> + '_ {
        (0..self.len()).map(|i| self.window(i))
    }

    fn raw_bytes(&self, i: usize) -> u32 {
        if i + 1 == self.entries.len() { self.last_window_bytes } else { self.window_bytes }
    }

    fn chunk(&self, i: usize, entry: &WindowWire, codec: Codec) -> ChunkRef {
        let digest = Digest(entry.digest);
        ChunkRef { range: range_of(entry), raw_bytes: self.raw_bytes(i), codec, digest }
    }
}

impl WindowWire {
    pub(crate) fn of(window: &WindowRef) -> Self {
        match window {
            WindowRef::Zero => Self::new_zeroed(),
            WindowRef::Chunk(chunk) => Self {
                offset: chunk.range.offset.into(),
                stored_bytes: to_u32(chunk.range.len).into(),
                codec: chunk.codec.to_u16().into(),
                flags: 0.into(),
                digest: chunk.digest.0,
            },
        }
    }
}

fn range_of(entry: &WindowWire) -> ByteRange {
    ByteRange::new(entry.offset.get(), entry.stored_bytes.get().into())
}
