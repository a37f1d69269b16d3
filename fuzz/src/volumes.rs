//! Bytes as a raw disk, in which file systems and partition tables are looked for. The first byte chooses how
//! far the rest is stretched, so that a small input is a disk with places far from its start: each sector of
//! the input is followed by so many sectors of zeros.

use hs_volumes::{MOST_LOGICAL, MOST_PARTITIONS, MOST_TABLE_BYTES, Reader, examine};

const SECTOR: usize = 512;
/// Reads of one disk: a few of each partition, and the search in the log of an XFS.
const MOST_READS: usize = 1200 * (MOST_PARTITIONS + 1) + MOST_LOGICAL as usize;

/// Whether a file system or a table was found; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((&stretch, bytes)) = data.split_first() else { return false };
    let distance = usize::from(stretch % 64) + 1;
    let disk_bytes = (bytes.len().div_ceil(SECTOR) * distance * SECTOR) as u64;
    let mut reads = 0;
    let mut read = |offset: u64, into: &mut [u8]| -> Result<(), ()> {
        reads += 1;
        assert!(reads < MOST_READS, "too many reads");
        assert!(into.len() as u64 <= MOST_TABLE_BYTES, "{} bytes at once", into.len());
        assert!(offset.checked_add(into.len() as u64).is_some_and(|end| end <= disk_bytes), "{offset}");
        for (place, byte) in into.iter_mut().enumerate() {
            let at = offset as usize + place;
            let (sector, within) = (at / SECTOR, at % SECTOR);
            let is_there = sector.is_multiple_of(distance);
            let from = is_there.then(|| bytes.get(sector / distance * SECTOR + within)).flatten();
            *byte = from.copied().unwrap_or(0);
        }
        Ok(())
    };
    let found = examine(&mut Reader::new(disk_bytes, &mut read)).expect("reads do not fail");
    if let Some(table) = &found.table {
        assert!(!table.partitions.is_empty() && table.partitions.len() <= MOST_PARTITIONS);
        let listing = table.to_string();
        assert_eq!(listing.lines().count(), table.partitions.len() + 1, "{listing}");
        assert!(!listing.contains('\x1b'));
        for partition in &table.partitions {
            partition.range.offset.checked_add(partition.range.len).expect("an end");
            assert!(table.choose(&partition.number.to_string()).is_ok(), "{listing}");
        }
        let _ = table.likely();
    }
    found.file_system.is_some() || found.table.is_some()
}
