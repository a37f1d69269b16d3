//! Entries of extended attributes, in an inode or in a block of their own. Layout from the kernel's
//! documentation, "Extended Attributes".

use super::{u16_at, u32_at};

/// Stands before the entries, in both places.
pub(crate) const MAGIC: u32 = 0xea02_0000;
/// Bytes of an entry before its name.
const HEADER_BYTES: usize = 16;

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// What stands for the beginning of its name.
    pub(crate) prefix: u8,
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// An entry that lies outside, or whose value lies outside or in another inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DamagedEntry;

/// The entries in `area` up to the end mark. Offsets of values count from `base` bytes before it.
pub(crate) fn entries(area: &[u8], base: usize) -> impl Iterator<Item = Result<Entry<'_>, DamagedEntry>> {
    let mut offset = Some(0);
    std::iter::from_fn(move || {
        let at = offset.take()?;
        let entry = area.get(at..).unwrap_or_default();
        if entry.len() >= 4 && u32_at(entry, 0) == 0 {
            return None;
        }
        let read = read_entry(entry, area, base);
        // After a damaged one there is no telling where the next begins.
        offset = read.ok().map(|entry| at + (HEADER_BYTES + entry.name.len()).next_multiple_of(4));
        Some(read)
    })
}

fn read_entry<'a>(entry: &'a [u8], area: &'a [u8], base: usize) -> Result<Entry<'a>, DamagedEntry> {
    if entry.len() < HEADER_BYTES {
        return Err(DamagedEntry);
    }
    let name = entry[HEADER_BYTES..].get(..usize::from(entry[0])).ok_or(DamagedEntry)?;
    let (start, inode, bytes) = (usize::from(u16_at(entry, 2)), u32_at(entry, 4), u32_at(entry, 8) as usize);
    if inode != 0 {
        return Err(DamagedEntry);
    }
    let value = match start.checked_sub(base) {
        _ if bytes == 0 => &[],
        Some(start) => area.get(start..).and_then(|rest| rest.get(..bytes)).ok_or(DamagedEntry)?,
        None => return Err(DamagedEntry),
    };
    Ok(Entry { prefix: entry[1], name, value })
}
