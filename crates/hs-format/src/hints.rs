//! Residency hints: which file's pages the blocks of a hot segment were.
//!
//! A hint lets a reader that sees a file system, not only a disk, ask for a page by its file before a program
//! needs it. Nothing checks that a hint is right. A reader may therefore use one to *ask* for pages on a path
//! that finds their bytes by itself (read-ahead, `posix_fadvise`). It must never use one to decide *where
//! bytes go*, such as storing a block's bytes in a file's page cache: a wrong hint may cost speed, never
//! correctness.

use hs_units::{BlockRange, Digest, Lba};
use zerocopy::{FromBytes, IntoBytes};

use crate::Superblock;
use crate::check;
use crate::digest::{HINTS_CONTEXT, derived};
use crate::error::{FormatError, Part};
use crate::hot::HotSegment;
use crate::unverified::{ExpectedBytes, Unverified};
use crate::wire::HintWire;

/// A run of blocks and the pages that held them when the profile was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hint {
    /// The run's first block.
    pub lba: Lba,
    /// The file's inode number; zero is the block device's own cache, that is metadata.
    pub inode: u64,
    /// The first block's page in the file, in pages of 4096 bytes.
    pub page: u32,
    /// Blocks, and pages, in the run.
    pub blocks: u32,
}

/// The hints of one segment, in first-access order; there may be none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hints(pub Vec<Hint>);

impl Hints {
    /// Checks the digest of `bytes`, then reads them.
    ///
    /// # Errors
    /// [`FormatError::Size`] and [`FormatError::DigestMismatch`] when these are not the segment's hints;
    /// [`FormatError::OutsideDisk`] or [`FormatError::Limit`] when a run leaves the disk or its file.
    pub fn decode(
        bytes: Unverified<&[u8]>,
        segment: &HotSegment,
        superblock: &Superblock,
    ) -> Result<Self, FormatError> {
        let part = Part::Hints { offset: segment.hints.offset };
        let bytes = bytes.verify(&ExpectedBytes {
            part,
            len: segment.hints.len,
            digest: segment.hints_digest,
            digest_of: Self::digest_of,
        })?;
        let entries = <[HintWire]>::ref_from_bytes(bytes).map_err(|_| FormatError::Inconsistent {
            part,
            field: "hints bytes past the last whole hint",
            expected: 0,
            found: (bytes.len() % size_of::<HintWire>()) as u64,
        })?;
        let disk_blocks = superblock.geometry().disk_blocks();
        let mut hints = Vec::with_capacity(entries.len());
        for entry in entries {
            let lba = Lba(entry.lba.get().into());
            let (page, blocks) = (entry.page.get(), entry.blocks.get());
            // R22
            check::on_disk(part, BlockRange::new(lba, blocks.into()), disk_blocks)?;
            check::within(part, "page after the run", u64::from(page) + u64::from(blocks), (1, 1 << 32))?;
            hints.push(Hint { lba, inode: entry.inode.get(), page, blocks });
        }
        Ok(Self(hints))
    }

    /// The hints' bytes; none for no hints.
    ///
    /// # Panics
    /// When a block number is beyond the largest disk.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * size_of::<HintWire>());
        for hint in &self.0 {
            let lba = u32::try_from(hint.lba.0).expect("a block number within the largest disk");
            let entry = HintWire {
                inode: hint.inode.into(),
                lba: lba.into(),
                page: hint.page.into(),
                blocks: hint.blocks.into(),
            };
            bytes.extend_from_slice(entry.as_bytes());
        }
        bytes
    }

    /// The digest of encoded hints.
    #[must_use]
    pub fn digest_of(bytes: &[u8]) -> Digest {
        derived(HINTS_CONTEXT, bytes)
    }
}
