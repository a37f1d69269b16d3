//! Bytes as an ISO 9660 file system whose files are looked up. Most of them change a small one that is right,
//! since the fuzzer would rarely find one: the first byte chooses.

use hs_start::iso_files::files;

const SECTOR: usize = 2048;
const ISO_BYTES: usize = 24 * SECTOR;
const ROOT: u32 = 20;
const DIRECTORY: u32 = 21;

/// Whether a file was found; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((&choice, bytes)) = data.split_first() else { return false };
    let iso = if choice % 4 == 0 { bytes.to_vec() } else { changed(bytes) };
    let mut requests = 0;
    let found = files(
        &mut |offset, buffer| {
            requests += 1;
            let from = usize::try_from(offset).ok();
            let bytes = from.and_then(|from| iso.get(from..)?.get(..buffer.len()));
            buffer.copy_from_slice(bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?);
            Ok(())
        },
        iso.len() as u64,
    );
    // No place is a directory twice, and none is outside. An empty one may begin at the end.
    assert!(requests <= 2 + iso.len() / SECTOR, "{requests} requests");
    let found = found.unwrap_or_default();
    assert!(found.is_sorted_by_key(|file| file.bytes.offset));
    let is_path =
        |path: &str| path.starts_with('/') && path.len() <= 4096 && !path.contains(char::is_control);
    assert!(found.iter().all(|file| is_path(&file.path)));
    !found.is_empty()
}

/// A file system with bytes changed: three of `changes` are a place of 16 bits and what is there.
fn changed(changes: &[u8]) -> Vec<u8> {
    let mut iso = whole();
    for change in changes.chunks_exact(3) {
        iso[usize::from(u16::from_le_bytes([change[0], change[1]])) % ISO_BYTES] = change[2];
    }
    iso
}

/// A file, and a directory with another that has a name of Rock Ridge's.
fn whole() -> Vec<u8> {
    let mut iso = vec![0; ISO_BYTES];
    let mut put = |at: usize, bytes: &[u8]| iso[at..at + bytes.len()].copy_from_slice(bytes);
    let (root, directory) = (ROOT as usize * SECTOR, DIRECTORY as usize * SECTOR);
    put(16 * SECTOR, b"\x01CD001");
    put(16 * SECTOR + 156, &record(ROOT, 2048, 2, b"\0", b""));
    let mut at = root;
    for entry in [
        record(ROOT, 2048, 2, b"\0", b""),
        record(ROOT, 2048, 2, b"\x01", b""),
        record(DIRECTORY, 2048, 2, b"BOOT", b""),
        record(22, 100, 0, b"FILE.;1", b""),
    ] {
        put(at, &entry);
        at += entry.len();
    }
    put(directory, &record(DIRECTORY, 2048, 2, b"\0", b""));
    put(directory + 34, &record(23, 3000, 0, b"VMLINUZ.;1", b"NM\x0c\x01\0vmlinuz"));
    iso
}

/// A directory's record (ECMA-119, 9.1).
fn record(sector: u32, bytes: u32, flags: u8, name: &[u8], system_use: &[u8]) -> Vec<u8> {
    let padding = (name.len() + 1) % 2;
    let mut record = vec![0; 33 + name.len() + padding];
    record[2..6].copy_from_slice(&sector.to_le_bytes());
    record[10..14].copy_from_slice(&bytes.to_le_bytes());
    record[25] = flags;
    record[32] = name.len() as u8;
    record[33..33 + name.len()].copy_from_slice(name);
    record.extend_from_slice(system_use);
    record[0] = record.len() as u8;
    record
}
