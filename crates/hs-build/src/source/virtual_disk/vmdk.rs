//! VMDK files with tables: whole disks (monolithicSparse, streamOptimized) and parts of one
//! (twoGbMaxExtentSparse). Fields from VMware's "Virtual Disk Format 5.0".

use std::collections::HashSet;

use super::blocks::{Blocks, field, read, read_table};
use super::descriptor::Descriptor;
use super::fault::VirtualDiskFault;
use crate::source::qcow2::file::Bytes;

pub(super) const MAGIC: &[u8] = b"KDMV";
const HEADER_BYTES: usize = 512;
const SECTOR_BYTES: u64 = 512;
/// Entries of a second table: as many as the format has.
const TABLE_ENTRIES: u32 = 512;
const MOST_DESCRIPTOR_SECTORS: u64 = 2048;
/// The first table lies at the end of the file, with a copy of the header.
const AT_END: u64 = u64::MAX;
/// The header's copy, and the sector behind it that ends the file.
const FOOTER_BYTES: u64 = 2 * SECTOR_BYTES;
/// Blocks of this place are zeros.
const ZERO_PLACE: u32 = 1;

const HAS_ZERO_PLACES: u32 = 1 << 2;
const IS_PACKED: u32 = 1 << 16;
const HAS_MARKERS: u32 = 1 << 17;

struct Header {
    flags: u32,
    disk_bytes: u64,
    block_bytes: u64,
    descriptor: (u64, u64),
    table_entries: u32,
    first_table: u64,
    compression: u16,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, VirtualDiskFault> {
        let sectors = |at| u64::from_le_bytes(field(bytes, at)).checked_mul(SECTOR_BYTES);
        let size = |at| sectors(at).ok_or(VirtualDiskFault::Damaged("VMDK header"));
        if !bytes.starts_with(MAGIC) {
            return Err(VirtualDiskFault::Damaged("VMDK header"));
        }
        if !(1..=3).contains(&u32::from_le_bytes(field(bytes, 4))) {
            return Err(VirtualDiskFault::Unread("is VMDK of a later version"));
        }
        Ok(Self {
            flags: u32::from_le_bytes(field(bytes, 8)),
            disk_bytes: size(12)?,
            block_bytes: size(20)?,
            descriptor: (u64::from_le_bytes(field(bytes, 28)), u64::from_le_bytes(field(bytes, 36))),
            table_entries: u32::from_le_bytes(field(bytes, 44)),
            first_table: u64::from_le_bytes(field(bytes, 56)),
            compression: u16::from_le_bytes(field(bytes, 77)),
        })
    }
}

/// Where the blocks of the disk lie.
pub(super) fn blocks<B: Bytes>(from: &B) -> Result<Blocks, VirtualDiskFault> {
    let mut bytes = [0; HEADER_BYTES];
    read(from, 0, &mut bytes)?;
    check_descriptor(from, Header::parse(&bytes)?.descriptor)?;
    blocks_of_part(from)
}

/// The same of a file that may be a part of a disk.
pub(super) fn blocks_of_part<B: Bytes>(from: &B) -> Result<Blocks, VirtualDiskFault> {
    let mut bytes = [0; HEADER_BYTES];
    read(from, 0, &mut bytes)?;
    let mut header = Header::parse(&bytes)?;
    if header.first_table == AT_END {
        read(from, from.len().saturating_sub(FOOTER_BYTES), &mut bytes)?;
        header = Header::parse(&bytes)?;
    }
    let is_packed = header.flags & IS_PACKED != 0;
    if is_packed && (header.flags & HAS_MARKERS == 0 || header.compression != 1) {
        return Err(VirtualDiskFault::Unread("has another compression than streamOptimized files"));
    }
    if header.table_entries != TABLE_ENTRIES {
        return Err(VirtualDiskFault::Damaged("VMDK header"));
    }
    let mut blocks = Blocks::new(header.disk_bytes, header.block_bytes, is_packed)?;
    let tables = blocks.len().div_ceil(TABLE_ENTRIES as usize);
    let at = header.first_table.checked_mul(SECTOR_BYTES);
    let at = at.ok_or(VirtualDiskFault::Damaged("VMDK header"))?;
    let first = read_table(from, "its first table", at, 4 * tables as u64)?;
    let mut seen = HashSet::new();
    for (number, sector) in first.chunks_exact(4).enumerate() {
        let sector = u32::from_le_bytes(field(sector, 0));
        if sector == 0 {
            continue;
        }
        // Else a small file could have a disk without end.
        if !seen.insert(sector) {
            return Err(VirtualDiskFault::Damaged("first table"));
        }
        let at = u64::from(sector) * SECTOR_BYTES;
        let table = read_table(from, "a second table", at, 4 * u64::from(TABLE_ENTRIES))?;
        for (entry, sector) in table.chunks_exact(4).enumerate() {
            let sector = u32::from_le_bytes(field(sector, 0));
            let is_zero = sector == ZERO_PLACE && header.flags & HAS_ZERO_PLACES != 0;
            let offset = if is_zero { 0 } else { u64::from(sector) * SECTOR_BYTES };
            blocks.place(number * TABLE_ENTRIES as usize + entry, offset);
        }
    }
    Ok(blocks)
}

/// The text in the file says whether it is a whole disk; a part of one has none, or room for it.
fn check_descriptor<B: Bytes>(from: &B, (sector, sectors): (u64, u64)) -> Result<(), VirtualDiskFault> {
    const IS_PART: VirtualDiskFault =
        VirtualDiskFault::Unread("is a part of a disk of several files: take the file that names them all");
    if sector == 0 || sectors == 0 {
        return Err(IS_PART);
    }
    if sectors > MOST_DESCRIPTOR_SECTORS || sector > from.len() / SECTOR_BYTES {
        return Err(VirtualDiskFault::Damaged("descriptor"));
    }
    let text = read_table(from, "its descriptor", sector * SECTOR_BYTES, sectors * SECTOR_BYTES)?;
    let text = Descriptor::new(&text);
    text.check_whole()?;
    match text.value("createType").as_deref() {
        Some("monolithicsparse" | "streamoptimized") => Ok(()),
        None => Err(IS_PART),
        _ => {
            Err(VirtualDiskFault::Unread("is VMDK of another kind than monolithicSparse and streamOptimized"))
        }
    }
}
