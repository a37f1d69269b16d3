//! Which parts of the disk are known to be zero without reading them: whole windows of the cold region.

use hs_format::WindowRef;
use hs_units::ByteRange;

use crate::{Image, ImageError};

/// Windows that one call looks at, at most: 1 GiB of windows of the usual size, so that a question about the
/// whole of a large disk does not read the whole of its index.
const WINDOWS: usize = 8192;

/// A run of bytes of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// How many.
    pub len: u64,
    /// They are all zero, and stored nowhere. Other bytes may be zero as well.
    pub zero: bool,
}

impl Image {
    /// What is stored of `range`, which lies in the disk, from its start on: runs that differ from their
    /// neighbours, at most `limit` of them and at least one. They may cover less than `range`.
    ///
    /// # Errors
    /// When the range does not lie in the disk, or the index cannot be read.
    pub fn allocation(&self, range: ByteRange, limit: usize) -> Result<Vec<Allocation>, ImageError> {
        if !range.fits_in(self.disk_bytes()) {
            return Err(ImageError::OutsideDisk { range, disk_bytes: self.disk_bytes() });
        }
        let window_bytes = self.window_bytes();
        let mut runs: Vec<Allocation> = Vec::new();
        let mut at = range.offset;
        for _ in 0..WINDOWS {
            if at >= range.end() {
                break;
            }
            let window = at / window_bytes;
            let zero = matches!(self.window(window)?, WindowRef::Zero);
            let len = ((window + 1) * window_bytes).min(range.end()) - at;
            let full = runs.len() == limit.max(1);
            match runs.last_mut() {
                Some(last) if last.zero == zero => last.len += len,
                _ if full => break,
                _ => runs.push(Allocation { len, zero }),
            }
            at += len;
        }
        Ok(runs)
    }
}
