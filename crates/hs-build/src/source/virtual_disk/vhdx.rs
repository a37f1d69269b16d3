//! VHDX files, whose log is empty. Fields from Microsoft's MS-VHDX.

use super::blocks::{Blocks, field, read, read_table};
use super::fault::VirtualDiskFault;
use crate::source::qcow2::file::Bytes;

pub(super) const MAGIC: &[u8] = b"vhdxfile";
const HEADERS_AT: [u64; 2] = [64 << 10, 128 << 10];
const HEADER_BYTES: usize = 4096;
const REGIONS_AT: [u64; 2] = [192 << 10, 256 << 10];
const REGIONS_BYTES: usize = 64 << 10;
const METADATA_BYTES: usize = 64 << 10;
const ENTRY_BYTES: usize = 32;
const MOST_ENTRIES: usize = 2047;
const CHECKSUM_AT: usize = 4;

type Guid = [u8; 16];

/// As bytes of the file have it: the first three numbers with their lowest byte first.
const fn guid(text: u128) -> Guid {
    let b = text.to_be_bytes();
    [b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]
}

const TABLE_REGION: Guid = guid(0x2dc27766_f623_4200_9d64_115e9bfd4a08);
const METADATA_REGION: Guid = guid(0x8b7ca206_4790_4b9a_b8fe_575f050f886e);
const FILE_PARAMETERS: Guid = guid(0xcaa16737_fa36_4d43_b3b6_33f0aa44e76b);
const DISK_SIZE: Guid = guid(0x2fa54224_cd1b_4876_b211_5dbed83bf4b8);
const SECTOR_SIZE: Guid = guid(0x8141bf1d_a96f_4709_ba47_f233a8faab5f);

const HAS_PARENT: u32 = 1 << 1;
/// Blocks that one block of a bit map of sectors describes, times their size, in sectors.
const SECTORS_PER_BITMAP: u64 = 1 << 23;
/// States of a block.
const FULL: u64 = 6;
const PARTIAL: u64 = 7;

/// Where the blocks of the disk lie.
pub(super) fn blocks<B: Bytes>(from: &B) -> Result<Blocks, VirtualDiskFault> {
    check_log(from)?;
    let regions = regions(from)?;
    let region = |wanted| find(&regions, wanted).ok_or(VirtualDiskFault::Damaged("table of regions"));
    let place = |region: &[u8]| u64::from_le_bytes(field(region, 16));
    let metadata = Metadata::read(from, place(region(METADATA_REGION)?))?;
    let block_bytes = metadata.block_bytes;
    let mut blocks = Blocks::new(metadata.disk_bytes, block_bytes, false)?;
    // Behind so many entries one is for a bit map, which only a disk with a parent has.
    let ratio = SECTORS_PER_BITMAP * metadata.sector_bytes / block_bytes;
    let count = blocks.len() as u64;
    let entries = if count == 0 { 0 } else { count + (count - 1) / ratio };
    let table = read_table(from, "its table", place(region(TABLE_REGION)?), 8 * entries)?;
    for block in 0..count {
        let at = usize::try_from(8 * (block + block / ratio)).expect("within the table, which is in memory");
        let entry = u64::from_le_bytes(field(&table, at));
        match entry & 7 {
            FULL => blocks.place(usize::try_from(block).expect("as many as places"), entry & !0xf_ffff),
            PARTIAL => return Err(VirtualDiskFault::Unread("has what differs from another disk")),
            _ => {}
        }
    }
    Ok(blocks)
}

/// The newest header must say that nothing waits in the log.
fn check_log<B: Bytes>(from: &B) -> Result<(), VirtualDiskFault> {
    let mut newest: Option<(u64, Guid)> = None;
    for at in HEADERS_AT {
        let mut header = [0; HEADER_BYTES];
        read(from, at, &mut header)?;
        if !header.starts_with(b"head") || !is_summed(&mut header) {
            continue;
        }
        let sequence = u64::from_le_bytes(field(&header, 8));
        if newest.is_none_or(|(known, _)| known < sequence) {
            newest = Some((sequence, field(&header, 48)));
        }
    }
    match newest {
        None => Err(VirtualDiskFault::Damaged("VHDX header")),
        Some((_, log)) if log != [0; 16] => Err(VirtualDiskFault::NotClosed),
        Some(_) => Ok(()),
    }
}

/// CRC-32C of all with the checksum itself as zeros.
fn is_summed(bytes: &mut [u8]) -> bool {
    let sum = u32::from_le_bytes(field(bytes, CHECKSUM_AT));
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    crc32c::crc32c(bytes) == sum
}

/// The entries of the table of regions.
fn regions<B: Bytes>(from: &B) -> Result<Vec<u8>, VirtualDiskFault> {
    let mut table = vec![0; REGIONS_BYTES];
    for at in REGIONS_AT {
        read(from, at, &mut table)?;
        if table.starts_with(b"regi") && is_summed(&mut table) {
            let count = u32::from_le_bytes(field(&table, 8)) as usize;
            return Ok(table[16..][..count.min(MOST_ENTRIES) * ENTRY_BYTES].to_vec());
        }
    }
    Err(VirtualDiskFault::Damaged("table of regions"))
}

/// The entry that begins with this name.
fn find(entries: &[u8], name: Guid) -> Option<&[u8]> {
    entries.chunks_exact(ENTRY_BYTES).find(|entry| entry.starts_with(&name))
}

struct Metadata {
    disk_bytes: u64,
    block_bytes: u64,
    sector_bytes: u64,
}

impl Metadata {
    fn read<B: Bytes>(from: &B, at: u64) -> Result<Self, VirtualDiskFault> {
        let damaged = || VirtualDiskFault::Damaged("VHDX metadata");
        let table = read_table(from, "its metadata", at, METADATA_BYTES as u64)?;
        if !table.starts_with(b"metadata") {
            return Err(damaged());
        }
        let count = usize::from(u16::from_le_bytes(field(&table, 10))).min(MOST_ENTRIES);
        let entries = &table[ENTRY_BYTES..][..count.min(METADATA_BYTES / ENTRY_BYTES - 1) * ENTRY_BYTES];
        let item = |name| {
            let entry = find(entries, name).ok_or_else(damaged)?;
            let offset = u32::from_le_bytes(field(entry, 16));
            let mut item = [0; 8];
            // Sectors have a size of four bytes, behind which there is room.
            read(from, at + u64::from(offset), &mut item)?;
            Ok::<_, VirtualDiskFault>(item)
        };
        let parameters = item(FILE_PARAMETERS)?;
        if u32::from_le_bytes(field(&parameters, 4)) & HAS_PARENT != 0 {
            return Err(VirtualDiskFault::Unread("has what differs from another disk"));
        }
        let sector_bytes = u64::from(u32::from_le_bytes(field(&item(SECTOR_SIZE)?, 0)));
        let block_bytes = u64::from(u32::from_le_bytes(field(&parameters, 0)));
        let is_size = matches!(sector_bytes, 512 | 4096) && (1 << 20..=256 << 20).contains(&block_bytes);
        if !is_size || !block_bytes.is_power_of_two() {
            return Err(damaged());
        }
        Ok(Self { disk_bytes: u64::from_le_bytes(item(DISK_SIZE)?), block_bytes, sector_bytes })
    }
}
