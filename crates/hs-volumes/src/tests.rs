//! Hostile tables; real ones are in `tests/tools.rs`.

use hs_units::{ByteRange, Prng};

use crate::{Contents, FsKind, MOST_LOGICAL, PartitionType, Reader, Scheme, examine, gpt};

fn look(disk: &[u8]) -> Contents {
    let mut read = |offset: u64, bytes: &mut [u8]| -> Result<(), ()> {
        let range = ByteRange::new(offset, bytes.len() as u64);
        assert!(range.fits_in(disk.len() as u64) && bytes.len() <= 1 << 20, "{range:?}");
        bytes.copy_from_slice(&disk[offset as usize..range.end() as usize]);
        Ok(())
    };
    examine(&mut Reader::new(disk.len() as u64, &mut read)).unwrap()
}

fn put(disk: &mut [u8], at: usize, bytes: &[u8]) {
    disk[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Entries of an MBR: type, first sector, sectors.
fn put_entries(disk: &mut [u8], sector: usize, entries: &[(u8, u32, u32)]) {
    for (number, (kind, first, sectors)) in entries.iter().enumerate() {
        let at = sector * 512 + 446 + 16 * number;
        disk[at + 4] = *kind;
        put(disk, at + 8, &first.to_le_bytes());
        put(disk, at + 12, &sectors.to_le_bytes());
    }
    put(disk, sector * 512 + 510, &[0x55, 0xaa]);
}

fn gpt_disk(count: u32, size: u32) -> Vec<u8> {
    gpt_of_sectors(512, count, size)
}

/// A GPT with one partition; `count` and `size` of its entries are what the header claims.
fn gpt_of_sectors(sector: usize, count: u32, size: u32) -> Vec<u8> {
    let mut disk = vec![0; 2 << 20];
    put_entries(&mut disk, 0, &[(0xee, 1, 511)]);
    let entry = 2 * sector;
    put(&mut disk, entry, &[0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79]);
    put(&mut disk, entry + 10, &[0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4]);
    put(&mut disk, entry + 32, &100_u64.to_le_bytes());
    put(&mut disk, entry + 40, &200_u64.to_le_bytes());
    put(&mut disk, entry + 56, b"r\0o\0o\0t\0");
    let table = (u64::from(count) * u64::from(size)).min(128 * 128) as usize;
    let sum = gpt::crc32(&disk[entry..entry + table]);
    let header = sector;
    put(&mut disk, header, b"EFI PART\0\0\x01\0\x5c\0\0\0");
    put(&mut disk, header + 24, &1_u64.to_le_bytes());
    put(&mut disk, header + 72, &2_u64.to_le_bytes());
    put(&mut disk, header + 80, &count.to_le_bytes());
    put(&mut disk, header + 84, &size.to_le_bytes());
    put(&mut disk, header + 88, &sum.to_le_bytes());
    let sum = gpt::crc32(&disk[header..header + 92]);
    put(&mut disk, header + 16, &sum.to_le_bytes());
    disk
}

#[test]
fn the_checksum_is_that_of_zip() {
    assert_eq!(gpt::crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn a_gpt_that_claims_too_much_is_none() {
    let table = look(&gpt_disk(128, 128)).table.unwrap();
    assert_eq!((table.scheme, table.partitions.len()), (Scheme::Gpt, 1));
    let root = &table.partitions[0];
    assert_eq!((root.label.as_deref(), root.range), (Some("root"), ByteRange::new(51_200, 101 * 512)));
    assert!(root.kind.is_called("linux filesystem"), "{}", root.kind);
    let table = look(&gpt_of_sectors(4096, 128, 128)).table.unwrap();
    assert_eq!((table.sector_bytes, table.partitions[0].range.offset), (4096, 409_600));
    // The MBR's one partition is the whole disk.
    for (count, size) in [(u32::MAX, u32::MAX), (u32::MAX, 128), (8193, 128), (128, 64), (128, 0)] {
        assert_eq!(look(&gpt_disk(count, size)).table, None, "{count} of {size}");
    }
}

#[test]
fn logical_partitions_that_lead_back_end() {
    let mut disk = vec![0; 1 << 20];
    put_entries(&mut disk, 0, &[(0x83, 8, 8), (0x05, 64, 1024)]);
    // The second record leads to the first.
    put_entries(&mut disk, 64, &[(0x83, 1, 8), (0x05, 32, 32)]);
    put_entries(&mut disk, 96, &[(0x83, 1, 8), (0x05, 0, 32)]);
    let table = look(&disk).table.unwrap();
    let numbers: Vec<u32> = table.partitions.iter().map(|partition| partition.number).collect();
    assert_eq!(numbers, [1, 2, 5, 6]);
    // A chain that goes on and on.
    for number in 0..1000_u32 {
        let next = (0x05, number + 1, 1);
        put_entries(&mut disk, 64 + number as usize, &[(0x83, 1, 1), next]);
    }
    assert_eq!(look(&disk).table.unwrap().partitions.len(), 2 + MOST_LOGICAL as usize);
}

#[test]
fn numbers_beyond_the_disk_are_no_places() {
    let mut disk = vec![0; 64 << 10];
    put_entries(&mut disk, 0, &[(0x83, 1, u32::MAX), (0x05, 2, u32::MAX), (0x83, u32::MAX, u32::MAX)]);
    put_entries(&mut disk, 2, &[(0x83, u32::MAX, u32::MAX), (0x05, u32::MAX, 1)]);
    let table = look(&disk).table.unwrap();
    assert_eq!(table.partitions.len(), 2, "{table}");
    assert!(table.to_string().contains("beyond the end of the disk"), "{table}");
}

#[test]
fn a_boot_sector_of_fat_is_no_table() {
    let mut disk = vec![0; 64 << 10];
    put(&mut disk, 0, b"\xeb\x3c\x90mkfs.fat\0\x02\x04\x01\0\x02\0\x02\0\x80\xf8\x20\0");
    put(&mut disk, 38, b"\x29\x78\x56\x34\x12BOOT       ");
    // The program of a boot sector, where the entries would be.
    disk[446..510].fill(0x80);
    put(&mut disk, 510, &[0x55, 0xaa]);
    let found = look(&disk);
    let fat = found.file_system.unwrap();
    assert_eq!(
        (fat.kind, fat.label.as_deref(), fat.uuid.as_deref()),
        (FsKind::Fat, Some("BOOT"), Some("1234-5678"))
    );
    assert_eq!((fat.sector_bytes, found.table), (512, None));
}

/// Sectors of 4096 bytes are believed where a file system proves them; a copy of a superblock is no proof.
#[test]
fn sectors_of_an_mbr_are_those_that_lead_to_a_file_system() {
    let mut disk = vec![0; 2 << 20];
    put_entries(&mut disk, 0, &[(0x83, 16, 64)]);
    put(&mut disk, 16 * 4096 + 0x438, &[0x53, 0xef]);
    let table = look(&disk).table.unwrap();
    assert_eq!((table.sector_bytes, table.partitions[0].range), (4096, ByteRange::new(65_536, 262_144)));
    put(&mut disk, 16 * 4096 + 0x45a, &[1]);
    assert_eq!(look(&disk).table.unwrap().sector_bytes, 512, "a copy");
}

#[test]
fn what_a_person_says_names_one_partition() {
    let mut disk = vec![0; 1 << 20];
    put_entries(&mut disk, 0, &[(0xef, 8, 8), (0x83, 64, 512), (0x83, 600, 64)]);
    put(&mut disk, 64 * 512 + 0x438, &[0x53, 0xef]);
    put(&mut disk, 64 * 512 + 0x478, b"data");
    let table = look(&disk).table.unwrap();
    let number =
        |word| table.choose(word).map(|partition| partition.number).map_err(|error| error.to_string());
    assert_eq!(number("2"), Ok(2));
    assert_eq!(number("data"), Ok(2));
    assert_eq!(number("label=data"), Ok(2));
    assert_eq!(number("esp"), Ok(1));
    assert_eq!(number("TYPE=0xEF"), Ok(1));
    assert!(number("0x83").unwrap_err().contains("2, 3"), "{:?}", number("0x83"));
    assert!(number("UUID=data").unwrap_err().contains("no partition"));
    assert!(number("9").unwrap_err().contains("'9'"));
    assert_eq!(table.likely().map(|partition| partition.number), Some(2));
    assert_eq!(table.partitions[0].kind, PartitionType::Mbr(0xef));
}

#[test]
fn no_bytes_make_it_panic() {
    let mut prng = Prng::new(7);
    let whole = gpt_disk(128, 128);
    for _ in 0..20_000 {
        let mut disk = whole[..prng.below(8 << 10) as usize].to_vec();
        for _ in 0..prng.below(8) {
            let at = prng.below(disk.len().max(1) as u64) as usize;
            if let Some(byte) = disk.get_mut(at) {
                *byte = prng.next_u64() as u8;
            }
        }
        if prng.below(2) == 0 {
            put_if(&mut disk, 0, &[b"XFSB", &prng.next_u64().to_be_bytes()[..]].concat());
            for at in [48, 84, 96, 100, 120] {
                put_if(&mut disk, at, &(prng.next_u64() >> prng.below(64)).to_be_bytes());
            }
        }
        look(&disk);
    }
}

fn put_if(disk: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = disk.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
