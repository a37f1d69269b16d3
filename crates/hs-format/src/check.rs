//! The few questions that every table asks of its bytes.

use hs_units::{BlockRange, ByteRange};

use crate::error::{FormatError, Part};

/// `found` must be `expected`.
pub(crate) fn equal(part: Part, field: &'static str, expected: u64, found: u64) -> Result<(), FormatError> {
    if expected == found { Ok(()) } else { Err(FormatError::Inconsistent { part, field, expected, found }) }
}

/// `found` must be in `min..=max`.
pub(crate) fn within(
    part: Part,
    field: &'static str,
    found: u64,
    (min, max): (u64, u64),
) -> Result<(), FormatError> {
    if (min..=max).contains(&found) {
        Ok(())
    } else {
        Err(FormatError::Limit { part, field, min, max, found })
    }
}

/// `range` must lie inside `space`, whose own end does not overflow.
pub(crate) fn inside(
    part: Part,
    field: &'static str,
    range: ByteRange,
    space: ByteRange,
) -> Result<(), FormatError> {
    if range.offset >= space.offset && range.fits_in(space.end()) {
        Ok(())
    } else {
        Err(FormatError::OutOfBounds { part, field, space, range })
    }
}

/// `run` must not be empty and must lie on the disk.
pub(crate) fn on_disk(part: Part, run: BlockRange, disk_blocks: u64) -> Result<(), FormatError> {
    let on_disk = run.count > 0 && run.start.0.checked_add(run.count).is_some_and(|end| end <= disk_blocks);
    if on_disk { Ok(()) } else { Err(FormatError::OutsideDisk { part, disk_blocks, run }) }
}

/// `bytes` must be zero; `offset` is where they stand in `part`.
pub(crate) fn zero(part: Part, offset: usize, bytes: &[u8]) -> Result<(), FormatError> {
    match bytes.iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(at) => {
            Err(FormatError::ReservedNotZero { part, offset: (offset + at) as u64, found: bytes[at] })
        }
    }
}
