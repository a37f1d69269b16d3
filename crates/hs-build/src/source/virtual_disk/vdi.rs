//! VDI files of VirtualBox. Fields from `VDICore.h` of VirtualBox.

use super::blocks::{Blocks, field, read, read_table};
use super::fault::VirtualDiskFault;
use crate::source::qcow2::file::Bytes;

pub(super) const MAGIC_AT: usize = 0x40;
pub(super) const MAGIC: &[u8] = &[0x7f, 0x10, 0xda, 0xbe];
const HEADER_BYTES: usize = 0x188;
const VERSION: u32 = 0x1_0001;
/// Disks that grow, and disks that have all their blocks.
const KINDS: [u32; 2] = [1, 2];
/// Blocks from here on are zeros: not there, or given back.
const FIRST_ZERO: u32 = 0xffff_fffe;

/// Where the blocks of the disk lie.
pub(super) fn blocks<B: Bytes>(from: &B) -> Result<Blocks, VirtualDiskFault> {
    let mut header = [0; HEADER_BYTES];
    read(from, 0, &mut header)?;
    let number = |at| u32::from_le_bytes(field(&header, at));
    if number(0x44) != VERSION {
        return Err(VirtualDiskFault::Unread("is VDI of another version than 1.1"));
    }
    if !KINDS.contains(&number(0x4c)) {
        return Err(VirtualDiskFault::Unread("has what differs from another disk"));
    }
    if number(0x17c) != 0 {
        return Err(VirtualDiskFault::Unread("has something before each part"));
    }
    let (disk_bytes, block_bytes) = (u64::from_le_bytes(field(&header, 0x170)), u64::from(number(0x178)));
    let mut blocks = Blocks::new(disk_bytes, block_bytes, false)?;
    if u64::from(number(0x180)) < blocks.len() as u64 {
        return Err(VirtualDiskFault::Damaged("VDI header"));
    }
    let data_at = u64::from(number(0x158));
    let table = read_table(from, "its table", number(0x154).into(), 4 * blocks.len() as u64)?;
    for (block, place) in table.chunks_exact(4).enumerate() {
        let place = u32::from_le_bytes(field(place, 0));
        if place < FIRST_ZERO {
            // At most 2^32 times 2^28.
            blocks.place(block, data_at + u64::from(place) * block_bytes);
        }
    }
    Ok(blocks)
}
