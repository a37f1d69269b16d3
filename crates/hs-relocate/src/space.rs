//! Reserved space: a file without a name, whose blocks are exchanged for those of others.
//!
//! The kernel frees it with its last descriptor, whatever ends this process, and after a power cut when the
//! file system is mounted again.

use std::fs::File;

use hs_linux::{LinuxError, file_extents};
use hs_units::BLOCK_BYTES;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::Errno;

use crate::RelocateError;
use crate::layout::FileLayout;
use crate::listed::piece_of;
use crate::volume::Volume;

/// How many spaces are tried: the allocator takes no wish for a place, and a second try lies elsewhere.
const TRIES: u64 = 3;
/// Blocks more than are needed, as a share: the end of a piece stays empty where a file does not fit.
const SLACK_SHARE: u64 = 32;

/// Reserved blocks.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) file: File,
    pub(crate) layout: FileLayout,
}

impl Space {
    /// Reserves room for so many pages: of a few tries, the one for which `cost` gives the least. The root
    /// directory lies in the first group of blocks, and the allocator begins to look there, at the fast end
    /// of a drive; that prefers low places among equals.
    pub(crate) fn reserve(
        volume: &Volume,
        pages: u64,
        cost: impl Fn(&FileLayout) -> u64,
    ) -> Result<Self, RelocateError> {
        let needed = pages * BLOCK_BYTES;
        let room = volume.room_for(needed)?;
        let bytes = (needed + needed / SLACK_SHARE).next_multiple_of(BLOCK_BYTES).min(room);
        // The other tries hold their space, or the next one would get the same.
        let tries = (room / bytes.max(1)).clamp(1, TRIES);
        let mut spaces =
            vec![Self::once(volume, bytes).map_err(LinuxError::io("reserve space on", &volume.path))?];
        for _ in 1..tries {
            spaces.extend(Self::once(volume, bytes));
        }
        let place = |space: &Self| space.layout.pieces().first().map_or(u64::MAX, |piece| piece.place);
        spaces.sort_by_cached_key(|space| (cost(&space.layout), place(space)));
        Ok(spaces.swap_remove(0))
    }

    fn once(volume: &Volume, bytes: u64) -> Result<Self, Errno> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&volume.root, ".", flags, Mode::RUSR | Mode::WUSR)?);
        fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        let extents = file_extents(&file, false)?;
        let reserved = extents.iter().filter(|extent| extent.is_unwritten());
        // With small blocks a piece may end inside of a page, which is no room for one.
        let whole = reserved.filter_map(|extent| piece_of(extent, |bytes, page| bytes / page));
        Ok(Self { layout: FileLayout::new(whole), file })
    }
}
