//! A snapshot that is read while another process may be writing to its file.
//!
//! The file is not locked. Nothing of a snapshot moves or is written over while there is the snapshot
//! (docs/decisions/088-snapshots-in-use.md). That it is there is not relied on: each block is compared with
//! its sum in a record that is not newer than the map, and again when it is read later.

use std::io;
use std::path::Path;

use hs_overlay::{BlockSums, Checked, Checking, Content, Opening, Overlay};
use hs_units::{BLOCK_BYTES, Digest};

use crate::error::KeepError;
use crate::file::{KeepFile, OpenedAs};

const BLOCK: usize = BLOCK_BYTES as usize;
/// So often the map is read while blocks are not what it says.
const MOST_MAPS: u32 = 3;

/// The disk as a snapshot has it.
pub struct SnapshotFile {
    file: KeepFile,
    overlay: Overlay,
    sums: BlockSums,
}

impl SnapshotFile {
    /// The snapshot of this name in the file of this disk, and what its blocks were found to be: where some
    /// are damaged they cannot be read.
    ///
    /// # Errors
    /// When the file is no overlay of the disk, has no such snapshot, or cannot be read.
    pub fn open(path: &Path, name: &str, disk: (Digest, u64)) -> Result<(Self, Checked), KeepError> {
        let file = KeepFile::unlocked(path, OpenedAs::ReadOnly)?;
        let mut overlay = map_of(&file, name, disk)?;
        let (mut checked, mut sums) = check(&file, &overlay)?;
        for _ in 1..MOST_MAPS {
            if checked.damaged == 0 {
                break;
            }
            // It may have been deleted, and another one may have its name.
            overlay = map_of(&file, name, disk)?;
            (checked, sums) = check(&file, &overlay)?;
        }
        Ok((Self { file, overlay, sums }, checked))
    }

    /// Its extents: first block of the disk, blocks, content. Data is named by its block in the file.
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64, Content)> {
        self.overlay.extents()
    }

    /// Fills `buffer` with what lies at `offset` of the file.
    ///
    /// # Errors
    /// When it cannot be read, or is not what the snapshot has.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let first = offset / BLOCK_BYTES;
        let into = (offset % BLOCK_BYTES) as usize;
        let mut blocks = vec![0; (into + buffer.len()).next_multiple_of(BLOCK)];
        self.file.read(first * BLOCK_BYTES, &mut blocks)?;
        for (place, block) in (first..).zip(blocks.chunks_exact(BLOCK)) {
            if !self.sums.has(place, block) {
                return Err(io::Error::other(
                    "a block is not what the snapshot has any more: it was deleted meanwhile, or the medium has \
                     changed the block",
                ));
            }
        }
        buffer.copy_from_slice(&blocks[into..into + buffer.len()]);
        Ok(())
    }
}

/// An overlay that is the snapshot alone.
fn map_of(file: &KeepFile, name: &str, disk: (Digest, u64)) -> Result<Overlay, KeepError> {
    let mut overlay = file.overlay_meanwhile(|file_bytes| Opening::of_map(Some(disk), file_bytes))?;
    overlay.keep_only(name).map_err(KeepError::overlay(file.path()))?;
    Ok(overlay)
}

fn check(file: &KeepFile, overlay: &Overlay) -> Result<(Checked, BlockSums), KeepError> {
    let mut checking = Checking::keeping_sums(overlay);
    file.feed(&mut checking)?;
    Ok(checking.finish_with_sums())
}
