//! GUID partition tables, by section 5.3 of the UEFI specification.

use hs_units::{ByteRange, to_usize};

use crate::partition::{Partition, PartitionType, Scheme, Table};
use crate::reader::{Reader, array, le16, le32, le64};
use crate::{Guid, MOST_PARTITIONS};

/// The largest table that is read: 8,192 entries of 128 bytes, where tools make 128 of them.
pub const MOST_TABLE_BYTES: u64 = 1 << 20;

const SIGNATURE: &[u8] = b"EFI PART";
const LEAST_HEADER_BYTES: u32 = 92;
const CHECKSUM_AT: usize = 16;
const ENTRY_BYTES: u32 = 128;
const NAME_UNITS: usize = 36;
const NAME_AT: usize = 56;

/// The table, of sectors of either size; its copy at the end of the disk where the first is damaged.
pub(crate) fn read<E>(disk: &mut Reader<'_, E>) -> Result<Option<Table>, E> {
    for sector_bytes in [512_u32, 4096] {
        let last = (disk.bytes() / u64::from(sector_bytes)).saturating_sub(1);
        // The copy counts only where something says that this is a GPT: it may be left from before.
        let is_said = is_protected(disk)? || has_signature(disk, sector_bytes.into())?;
        for header in [1, last].into_iter().filter(|_| is_said) {
            if let Some(table) = read_at(disk, header, sector_bytes)? {
                return Ok(Some(table));
            }
        }
    }
    Ok(None)
}

fn has_signature<E>(disk: &mut Reader<'_, E>, offset: u64) -> Result<bool, E> {
    Ok(disk.read_some(offset, SIGNATURE.len())? == SIGNATURE)
}

/// Whether the MBR has the entry that keeps other programs off a GPT.
pub(crate) fn is_protected<E>(disk: &mut Reader<'_, E>) -> Result<bool, E> {
    let mbr = disk.read_some(0, 512)?;
    let is_mbr = mbr.get(510..) == Some(&[0x55, 0xaa]);
    Ok(is_mbr && (0..4).any(|entry| mbr.get(446 + 16 * entry + 4) == Some(&0xee)))
}

fn read_at<E>(disk: &mut Reader<'_, E>, lba: u64, sector_bytes: u32) -> Result<Option<Table>, E> {
    let sector = u64::from(sector_bytes);
    let Some(at) = lba.checked_mul(sector).filter(|_| lba > 0) else { return Ok(None) };
    let Some(header) = disk.read(at, to_usize(sector))? else { return Ok(None) };
    let header_bytes = le32(&header, 12);
    if !header.starts_with(SIGNATURE)
        || !(LEAST_HEADER_BYTES..=sector_bytes).contains(&header_bytes)
        || le64(&header, 24) != lba
    {
        return Ok(None);
    }
    let mut summed = header[..to_usize(header_bytes.into())].to_vec();
    summed[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    if crc32(&summed) != le32(&header, CHECKSUM_AT) {
        return Ok(None);
    }
    let (count, entry_bytes) = (le32(&header, 80), le32(&header, 84));
    let table_bytes = u64::from(count) * u64::from(entry_bytes);
    if entry_bytes < ENTRY_BYTES || entry_bytes % 8 != 0 || table_bytes > MOST_TABLE_BYTES {
        return Ok(None);
    }
    let Some(entries_at) = le64(&header, 72).checked_mul(sector) else { return Ok(None) };
    let Some(entries) = disk.read(entries_at, to_usize(table_bytes))? else { return Ok(None) };
    if crc32(&entries) != le32(&header, 88) {
        return Ok(None);
    }
    let disk_bytes = disk.bytes();
    let entries = entries.chunks_exact(to_usize(entry_bytes.into())).zip(1..);
    let partitions: Vec<Partition> = entries
        .filter_map(|(entry, number)| partition(entry, number, sector))
        .take(MOST_PARTITIONS)
        .collect();
    let table = Table { scheme: Scheme::Gpt, sector_bytes, disk_bytes, partitions };
    Ok((!table.partitions.is_empty()).then_some(table))
}

/// A used entry.
fn partition(entry: &[u8], number: u32, sector: u64) -> Option<Partition> {
    let kind = Guid::mixed(array(entry, 0));
    let (first, last) = (le64(entry, 32), le64(entry, 40));
    if kind.is_nil() || first == 0 || last < first {
        return None;
    }
    let offset = first.checked_mul(sector)?;
    let len = (last - first).checked_add(1)?.checked_mul(sector)?;
    offset.checked_add(len)?;
    let units: Vec<u16> =
        (0..NAME_UNITS).map(|unit| le16(entry, NAME_AT + 2 * unit)).take_while(|unit| *unit != 0).collect();
    let label = String::from_utf16_lossy(&units);
    Some(Partition {
        number,
        kind: PartitionType::Gpt(kind),
        label: (!label.is_empty()).then_some(label),
        id: Guid::mixed(array(entry, 16)).to_string(),
        range: ByteRange::new(offset, len),
        file_system: None,
    })
}

/// The checksum of ISO 3309, reflected, as Ethernet and zip have it.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum, _| {
                if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 }
            },
        )
    })
}
