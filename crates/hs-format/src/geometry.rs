//! How the disk is cut into cold windows, and the windows into leaves.

use hs_units::{BLOCK_BYTES, Lba, to_u32};

use crate::check;
use crate::error::{FormatError, Part};
use crate::limits::{
    LEAF_ENTRY_BYTES, MAX_DISK_BYTES, MAX_ROOT_BYTES, MAX_WINDOW_BLOCKS, MAX_WINDOWS_PER_LEAF,
    WINDOW_ENTRY_BYTES,
};

/// The three numbers that all arithmetic of the cold region follows from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ColdGeometry {
    /// Bytes of the logical disk.
    pub disk_bytes: u64,
    /// Blocks in a window.
    pub window_blocks: u32,
    /// Windows in a leaf.
    pub windows_per_leaf: u32,
}

/// Where a block lies in the cold region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ColdPlace {
    /// The window's number on the disk.
    pub window: u64,
    /// The block's position in the window, in blocks.
    pub block_in_window: u32,
    /// The leaf's number.
    pub leaf: u64,
    /// The window's position in the leaf.
    pub window_in_leaf: u32,
}

impl ColdGeometry {
    /// Checks the numbers against the limits of the format.
    ///
    /// # Errors
    /// [`FormatError::Limit`] or [`FormatError::Inconsistent`].
    pub fn check(&self) -> Result<(), FormatError> {
        let part = Part::Superblock;
        // R8
        check::within(part, "disk bytes", self.disk_bytes, (BLOCK_BYTES, MAX_DISK_BYTES))?;
        check::equal(part, "disk bytes past the last whole block", 0, self.disk_bytes % BLOCK_BYTES)?;
        check::within(part, "window blocks", self.window_blocks.into(), (1, MAX_WINDOW_BLOCKS.into()))?;
        let windows_per_leaf = self.windows_per_leaf.into();
        check::within(part, "windows per leaf", windows_per_leaf, (1, MAX_WINDOWS_PER_LEAF.into()))?;
        let max_leaves = u64::from(MAX_ROOT_BYTES) / LEAF_ENTRY_BYTES as u64;
        check::within(part, "leaves", self.leaf_count(), (1, max_leaves))
    }

    /// Blocks of the disk.
    #[must_use]
    pub const fn disk_blocks(&self) -> u64 {
        self.disk_bytes / BLOCK_BYTES
    }

    /// Bytes of every window but the last.
    #[must_use]
    pub const fn window_bytes(&self) -> u64 {
        self.window_blocks as u64 * BLOCK_BYTES
    }

    /// Windows of the disk.
    #[must_use]
    pub const fn windows(&self) -> u64 {
        self.disk_blocks().div_ceil(self.window_blocks as u64)
    }

    /// Leaves of the cold index.
    #[must_use]
    pub const fn leaf_count(&self) -> u64 {
        self.windows().div_ceil(self.windows_per_leaf as u64)
    }

    /// Raw bytes of a window; the last one ends with the disk, and past it there is nothing.
    #[must_use]
    pub const fn window_raw_bytes(&self, window: u64) -> u32 {
        let start = window.saturating_mul(self.window_bytes());
        let left = self.disk_bytes.saturating_sub(start);
        if left < self.window_bytes() { to_u32(left) } else { to_u32(self.window_bytes()) }
    }

    /// Windows that a leaf describes; the last one may have fewer, and past it there are none.
    #[must_use]
    pub const fn leaf_windows(&self, leaf: u64) -> u32 {
        let per_leaf = self.windows_per_leaf as u64;
        let left = self.windows().saturating_sub(leaf.saturating_mul(per_leaf));
        if left < per_leaf { to_u32(left) } else { to_u32(per_leaf) }
    }

    /// Bytes of a stored leaf.
    #[must_use]
    pub const fn leaf_bytes(&self, leaf: u64) -> u32 {
        self.leaf_windows(leaf) * to_u32(WINDOW_ENTRY_BYTES as u64)
    }

    /// Where a block lies.
    #[must_use]
    pub const fn place(&self, lba: Lba) -> ColdPlace {
        let window = lba.0 / self.window_blocks as u64;
        ColdPlace {
            window,
            block_in_window: to_u32(lba.0 % self.window_blocks as u64),
            leaf: window / self.windows_per_leaf as u64,
            window_in_leaf: to_u32(window % self.windows_per_leaf as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_window_and_leaf_are_short() {
        let geometry = ColdGeometry { disk_bytes: 11 * BLOCK_BYTES, window_blocks: 2, windows_per_leaf: 4 };
        assert_eq!((geometry.windows(), geometry.leaf_count()), (6, 2));
        assert_eq!((geometry.window_raw_bytes(4), geometry.window_raw_bytes(5)), (8192, 4096));
        assert_eq!((geometry.window_raw_bytes(6), geometry.window_raw_bytes(u64::MAX)), (0, 0));
        assert_eq!((geometry.leaf_windows(0), geometry.leaf_windows(1), geometry.leaf_windows(2)), (4, 2, 0));
        let place = ColdPlace { window: 4, block_in_window: 1, leaf: 1, window_in_leaf: 0 };
        assert_eq!(geometry.place(Lba(9)), place);
        assert_eq!(geometry.check(), Ok(()));
    }

    #[test]
    fn absurd_numbers_are_refused() {
        let good = ColdGeometry { disk_bytes: MAX_DISK_BYTES, window_blocks: 32, windows_per_leaf: 512 };
        assert_eq!(good.check(), Ok(()));
        for bad in [
            ColdGeometry { disk_bytes: 0, ..good },
            ColdGeometry { disk_bytes: 4097, ..good },
            ColdGeometry { disk_bytes: MAX_DISK_BYTES + BLOCK_BYTES, ..good },
            ColdGeometry { window_blocks: 0, ..good },
            ColdGeometry { window_blocks: 1025, ..good },
            ColdGeometry { windows_per_leaf: 0, ..good },
            ColdGeometry { windows_per_leaf: MAX_WINDOWS_PER_LEAF + 1, ..good },
            // Too many leaves for a root of 16 MiB.
            ColdGeometry { windows_per_leaf: 1, ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_largest_leaf_has_the_most_bytes_of_a_leaf() {
        let geometry = ColdGeometry {
            disk_bytes: MAX_DISK_BYTES,
            window_blocks: 1,
            windows_per_leaf: MAX_WINDOWS_PER_LEAF,
        };
        assert_eq!(geometry.leaf_bytes(0), crate::limits::MAX_LEAF_BYTES);
    }
}
