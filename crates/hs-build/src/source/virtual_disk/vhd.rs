//! VHD files, fixed and dynamic. Fields from Microsoft's "Virtual Hard Disk Image Format Specification".

use super::blocks::{Blocks, field, read, read_table};
use super::fault::VirtualDiskFault;
use crate::source::qcow2::file::Bytes;

pub(super) const MAGIC: &[u8] = b"conectix";
pub(super) const FOOTER_BYTES: usize = 512;
const CHECKSUM_AT: usize = 64;
const DYNAMIC_BYTES: usize = 1024;
const DYNAMIC_CHECKSUM_AT: usize = 36;
const SECTOR_BYTES: u64 = 512;
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
const NO_PLACE: u32 = u32::MAX;

/// The footer at the end of a file, if it is whole.
pub(super) fn footer<B: Bytes>(from: &B) -> Option<[u8; FOOTER_BYTES]> {
    let mut footer = [0; FOOTER_BYTES];
    read(from, from.len().checked_sub(FOOTER_BYTES as u64)?, &mut footer).ok()?;
    let is_whole = footer.starts_with(MAGIC) && is_summed(&footer, CHECKSUM_AT);
    is_whole.then_some(footer)
}

/// The inverted sum of all bytes but its own.
fn is_summed(bytes: &[u8], at: usize) -> bool {
    let others = bytes[..at].iter().chain(&bytes[at + 4..]);
    let sum = others.fold(0_u32, |sum, &byte| sum.wrapping_add(byte.into()));
    !sum == u32::from_be_bytes(field(bytes, at))
}

/// Where the blocks of the disk lie.
pub(super) fn blocks<B: Bytes>(from: &B) -> Result<Blocks, VirtualDiskFault> {
    let footer = footer(from).ok_or(VirtualDiskFault::Damaged("VHD footer"))?;
    let disk_bytes = u64::from_be_bytes(field(&footer, 48));
    match u32::from_be_bytes(field(&footer, 60)) {
        FIXED if disk_bytes <= from.len() - FOOTER_BYTES as u64 => return Ok(Blocks::plain(disk_bytes, 0)),
        FIXED => return Err(VirtualDiskFault::Damaged("VHD footer")),
        DYNAMIC => {}
        _ => return Err(VirtualDiskFault::Unread("has what differs from another disk")),
    }
    let mut header = [0; DYNAMIC_BYTES];
    read(from, u64::from_be_bytes(field(&footer, 16)), &mut header)?;
    if !header.starts_with(b"cxsparse") || !is_summed(&header, DYNAMIC_CHECKSUM_AT) {
        return Err(VirtualDiskFault::Damaged("VHD header"));
    }
    let block_bytes = u64::from(u32::from_be_bytes(field(&header, 32)));
    let mut blocks = Blocks::new(disk_bytes, block_bytes, false)?;
    if u64::from(u32::from_be_bytes(field(&header, 28))) < blocks.len() as u64 {
        return Err(VirtualDiskFault::Damaged("VHD header"));
    }
    // A bit for each sector comes before a block: those that are 0 were never written, and are zeros.
    let bitmap_bytes = (block_bytes / SECTOR_BYTES).div_ceil(8).next_multiple_of(SECTOR_BYTES);
    let at = u64::from_be_bytes(field(&header, 16));
    let table = read_table(from, "its table", at, 4 * blocks.len() as u64)?;
    for (block, sector) in table.chunks_exact(4).enumerate() {
        let sector = u32::from_be_bytes(field(sector, 0));
        if sector != NO_PLACE {
            blocks.place(block, u64::from(sector) * SECTOR_BYTES + bitmap_bytes);
        }
    }
    Ok(blocks)
}
