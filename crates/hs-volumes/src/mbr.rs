//! Master boot records: four entries, one of which may begin a chain of logical partitions.

use hs_units::ByteRange;

use crate::partition::{Partition, PartitionType, Scheme, Table};
use crate::reader::{Reader, le32};

/// Logical partitions of one disk, and so links of their chain.
pub const MOST_LOGICAL: u32 = 60;

const SECTOR: usize = 512;
const ENTRIES_AT: usize = 446;
const ENTRY_BYTES: usize = 16;
const FIRST_LOGICAL: u32 = 5;

#[derive(Clone, Copy)]
struct Entry {
    status: u8,
    kind: u8,
    first: u32,
    sectors: u32,
}

impl Entry {
    fn of(sector: &[u8], number: usize) -> Self {
        let entry = &sector[ENTRIES_AT + number * ENTRY_BYTES..][..ENTRY_BYTES];
        Self { status: entry[0], kind: entry[4], first: le32(entry, 8), sectors: le32(entry, 12) }
    }

    fn is_used(self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    fn partition(self, number: u32, base: u64, sector_bytes: u32, signature: u32) -> Partition {
        let sector = u64::from(sector_bytes);
        Partition {
            number,
            kind: PartitionType::Mbr(self.kind),
            label: None,
            id: format!("{signature:08x}-{number:02x}"),
            // Three numbers of at most 32 bits, times 4096, stay below 2⁶⁴.
            range: ByteRange::new((base + u64::from(self.first)) * sector, u64::from(self.sectors) * sector),
            file_system: None,
        }
    }
}

/// The table, counted in sectors of this size.
pub(crate) fn read<E>(disk: &mut Reader<'_, E>, sector_bytes: u32) -> Result<Option<Table>, E> {
    let Some(mbr) = disk.read(0, SECTOR)?.filter(|sector| is_signed(sector)) else { return Ok(None) };
    let entries: Vec<Entry> = (0..4).map(|number| Entry::of(&mbr, number)).collect();
    // Any boot sector ends as an MBR does, and its program is where the entries would be.
    if entries.iter().any(|entry| entry.status & 0x7f != 0) {
        return Ok(None);
    }
    let signature = le32(&mbr, 440);
    let mut partitions = Vec::new();
    let mut extended = None;
    for (entry, number) in entries.into_iter().zip(1..) {
        let partition = entry.partition(number, 0, sector_bytes, signature);
        if !entry.is_used() || entry.first == 0 || partition.range.offset >= disk.bytes() {
            continue;
        }
        if partition.is_container() && extended.is_none() {
            extended = Some(entry);
        }
        partitions.push(partition);
    }
    if let Some(extended) = extended {
        read_logical(disk, extended, sector_bytes, signature, &mut partitions)?;
    }
    let (disk_bytes, is_empty) = (disk.bytes(), partitions.is_empty());
    let table = Table { scheme: Scheme::Mbr, sector_bytes, disk_bytes, partitions };
    Ok((!is_empty).then_some(table))
}

fn is_signed(sector: &[u8]) -> bool {
    sector.get(510..) == Some(&[0x55, 0xaa])
}

/// Follows the chain of records in the extended partition: each has a partition, and the next record.
fn read_logical<E>(
    disk: &mut Reader<'_, E>,
    extended: Entry,
    sector_bytes: u32,
    signature: u32,
    partitions: &mut Vec<Partition>,
) -> Result<(), E> {
    let start = u64::from(extended.first);
    let (mut record, mut seen) = (start, Vec::new());
    for number in FIRST_LOGICAL..FIRST_LOGICAL + MOST_LOGICAL {
        let Some(sector) = disk.read(record * u64::from(sector_bytes), SECTOR)? else { break };
        if !is_signed(&sector) {
            break;
        }
        let (logical, next) = (Entry::of(&sector, 0), Entry::of(&sector, 1));
        let partition = logical.partition(number, record, sector_bytes, signature);
        if logical.is_used() && !partition.is_container() && partition.range.offset < disk.bytes() {
            partitions.push(partition);
        }
        seen.push(record);
        if !next.is_used() || seen.contains(&(start + u64::from(next.first))) {
            break;
        }
        record = start + u64::from(next.first);
    }
    Ok(())
}
