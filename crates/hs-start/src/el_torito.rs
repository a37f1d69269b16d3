//! What firmware itself reads of a bootable ISO: the boot catalog and the images in it (El Torito 1.0).
//!
//! The bytes may be hostile: two sectors are read of them.

use std::io;

use crate::iso_files::SECTOR_BYTES;

/// The sector of the boot record, and where in it the sector of the catalog stands (section 2.0).
const RECORD_SECTOR: u64 = 17;
const RECORD_BEGINS: &[u8] = b"\0CD001\x01EL TORITO SPECIFICATION";
const CATALOG_FIELD: std::ops::Range<usize> = 0x47..0x4b;
const ENTRY_BYTES: usize = 32;
/// The first byte of the catalog, and of an entry that can be started (2.1, 2.2, 2.4).
const VALIDATION: u8 = 1;
const BOOTABLE: u8 = 0x88;
/// The sector of an image in its entry.
const IMAGE_FIELD: std::ops::Range<usize> = 8..12;

/// Where the catalog begins on a medium that `read` reads, and each image that firmware can start. Empty
/// without a catalog.
///
/// # Errors
/// When the medium cannot be read.
pub(crate) fn read_by_firmware(
    read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
    medium_bytes: u64,
) -> io::Result<Vec<u64>> {
    let mut sector = vec![0; SECTOR_BYTES as usize];
    let is_inside = |at: u64| at.checked_add(SECTOR_BYTES).is_some_and(|end| end <= medium_bytes);
    let number = |field: &[u8]| field.try_into().map_or(0, u32::from_le_bytes);
    let byte_of = |field: &[u8]| u64::from(number(field)) * SECTOR_BYTES;
    if !is_inside(RECORD_SECTOR * SECTOR_BYTES) {
        return Ok(Vec::new());
    }
    read(RECORD_SECTOR * SECTOR_BYTES, &mut sector)?;
    let catalog = byte_of(&sector[CATALOG_FIELD]);
    if !sector.starts_with(RECORD_BEGINS) || !is_inside(catalog) {
        return Ok(Vec::new());
    }
    read(catalog, &mut sector)?;
    if sector[0] != VALIDATION {
        return Ok(Vec::new());
    }
    let entries = sector.chunks_exact(ENTRY_BYTES).filter(|entry| entry[0] == BOOTABLE);
    Ok([catalog].into_iter().chain(entries.map(|entry| byte_of(&entry[IMAGE_FIELD]))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: u8, sector: u32) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        entry[0] = first;
        entry[IMAGE_FIELD].copy_from_slice(&sector.to_le_bytes());
        entry
    }

    fn found(catalog_sector: u32, entries: &[[u8; ENTRY_BYTES]]) -> Vec<u64> {
        let mut medium = vec![0; 30 * SECTOR_BYTES as usize];
        let record = (RECORD_SECTOR * SECTOR_BYTES) as usize;
        medium[record..record + RECORD_BEGINS.len()].copy_from_slice(RECORD_BEGINS);
        medium[record + 0x47..record + 0x4b].copy_from_slice(&catalog_sector.to_le_bytes());
        let entries = entries.concat();
        medium[20 * 2048..20 * 2048 + entries.len()].copy_from_slice(&entries);
        of(&medium)
    }

    fn of(medium: &[u8]) -> Vec<u64> {
        let mut read = |at: u64, into: &mut [u8]| {
            into.copy_from_slice(&medium[at as usize..at as usize + into.len()]);
            Ok(())
        };
        read_by_firmware(&mut read, medium.len() as u64).expect("read")
    }

    #[test]
    fn images_of_all_platforms_are_found() {
        // A BIOS, a section of UEFI with one image, and one that is not to be started.
        let entries = [entry(1, 0), entry(BOOTABLE, 25), entry(0x91, 0), entry(BOOTABLE, 27), entry(0, 29)];
        assert_eq!(found(20, &entries), [20, 25, 27].map(|sector| sector * 2048));
    }

    #[test]
    fn what_is_no_catalog_has_no_images() {
        assert!(found(20, &[entry(2, 0), entry(BOOTABLE, 25)]).is_empty());
        assert!(found(u32::MAX, &[entry(1, 0)]).is_empty());
        assert!(of(&vec![0x88; 30 * 2048]).is_empty());
        assert!(of(&[0; 100]).is_empty());
    }
}
