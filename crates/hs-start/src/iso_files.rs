//! Where the files of an ISO 9660 file system lie (ECMA-119), by the names of Rock Ridge where it has them.
//!
//! The bytes may be hostile: what is read of them is bounded, and nothing follows a directory twice.

use std::collections::HashSet;
use std::io;

use hs_units::ByteRange;

/// A sector.
pub(crate) const SECTOR_BYTES: u64 = 2048;
/// The sector of the primary volume descriptor, and the root's directory record in it (8.4).
const DESCRIPTOR_SECTOR: u64 = 16;
const ROOT_RECORD: std::ops::Range<usize> = 156..190;
/// The flag of a directory (9.1.6).
const IS_DIRECTORY: u8 = 2;
/// Bytes of a record in front of its name (9.1).
const RECORD_BYTES: usize = 33;
/// A medium has fewer files; of one that has more, the rest have no names.
const MOST_FILES: usize = 100_000;
const MOST_DIRECTORY_BYTES: u64 = 4 << 20;
/// Bytes of all directories that are read.
const MOST_BYTES: u64 = 64 << 20;
/// A file whose path is longer has no name. Linux has none either.
const MOST_PATH_BYTES: usize = 4096;

/// A part of a file: files of 4 GiB and more have several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Absolute.
    pub path: String,
    /// Where they lie on the medium.
    pub bytes: ByteRange,
}

/// The files of a medium that `read` reads, by their places. Empty where it has no such file system.
///
/// # Errors
/// When it cannot be read.
pub fn files(
    read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
    medium_bytes: u64,
) -> io::Result<Vec<FileExtent>> {
    let mut descriptor = vec![0; SECTOR_BYTES as usize];
    read(DESCRIPTOR_SECTOR * SECTOR_BYTES, &mut descriptor)?;
    if &descriptor[..6] != b"\x01CD001" {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    let (mut seen, mut left) = (HashSet::new(), MOST_BYTES);
    let mut directories: Vec<FileExtent> =
        Record::of(&descriptor[ROOT_RECORD]).map(|root| root.at("")).into_iter().collect();
    while let Some(directory) = directories.pop() {
        let ByteRange { offset, len } = directory.bytes;
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= medium_bytes);
        if len > MOST_DIRECTORY_BYTES || !is_inside || !seen.insert(offset) {
            continue;
        }
        // An empty directory costs a step too.
        left = match left.checked_sub(len.max(SECTOR_BYTES)) {
            Some(left) if files.len() < MOST_FILES => left,
            _ => break,
        };
        let mut bytes = vec![0; len as usize];
        read(offset, &mut bytes)?;
        for record in bytes.chunks(SECTOR_BYTES as usize).flat_map(records) {
            let Some(record) = Record::of(record) else { continue };
            let entry = record.at(&directory.path);
            match record.is_directory {
                _ if record.is_self_or_parent() || entry.path.len() > MOST_PATH_BYTES => {}
                _ if files.len() + directories.len() >= MOST_FILES => break,
                true => directories.push(entry),
                false if entry.bytes.len > 0 => files.push(entry),
                false => {}
            }
        }
    }
    files.sort_by_key(|file| file.bytes.offset);
    Ok(files)
}

/// The records of one sector of a directory: none crosses its end.
fn records(sector: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = sector;
    std::iter::from_fn(move || {
        let len = usize::from(*rest.first()?);
        if len == 0 || len > rest.len() {
            return None;
        }
        let (record, later) = rest.split_at(len);
        rest = later;
        Some(record)
    })
}

/// What a directory says of a file.
struct Record {
    sector: u32,
    len: u32,
    is_directory: bool,
    name: Vec<u8>,
}

impl Record {
    fn of(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let name_bytes = usize::from(*bytes.get(RECORD_BYTES - 1)?);
        let name = bytes.get(RECORD_BYTES..RECORD_BYTES + name_bytes)?;
        let behind = (RECORD_BYTES + name_bytes).next_multiple_of(2);
        let own_name = rock_ridge_name(bytes.get(behind..).unwrap_or_default());
        Some(Self {
            sector: number(2)?,
            len: number(10)?,
            is_directory: bytes.get(25)? & IS_DIRECTORY != 0,
            name: own_name.unwrap_or_else(|| plain_name(name)),
        })
    }

    /// The first two of a directory.
    fn is_self_or_parent(&self) -> bool {
        matches!(&self.name[..], [0] | [1])
    }

    fn at(&self, folder: &str) -> FileExtent {
        let path = match self.is_self_or_parent() {
            true => folder.to_owned(),
            false => format!("{folder}/{}", shown(&self.name)),
        };
        FileExtent { path, bytes: ByteRange::new(u64::from(self.sector) * SECTOR_BYTES, u64::from(self.len)) }
    }
}

/// A name without control characters, which no table takes.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace(char::is_control, "\u{fffd}")
}

/// `BOOT.CAT;1` is the first version of a file.
fn plain_name(name: &[u8]) -> Vec<u8> {
    let end = name.iter().position(|byte| *byte == b';').unwrap_or(name.len());
    name[..end].to_ascii_lowercase()
}

/// The entries `NM` of the System Use Sharing Protocol (RRIP 1.12, 4.1.4) in this record. One that continues
/// elsewhere is left as it is.
fn rock_ridge_name(mut entries: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    while let [signature, second, len, _, ..] = *entries {
        let entry = entries.get(..usize::from(len)).filter(|entry| entry.len() >= 4)?;
        // A flag says that it is this directory, or the one above.
        if [signature, second] == *b"NM" && entry.get(4).is_some_and(|flags| flags & 0b110 == 0) {
            name.extend_from_slice(&entry[5..]);
        }
        entries = &entries[entry.len()..];
    }
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sector: u32, len: u32, flags: u8, name: &[u8], entries: &[u8]) -> Vec<u8> {
        let mut record = vec![0; RECORD_BYTES];
        record[2..6].copy_from_slice(&sector.to_le_bytes());
        record[10..14].copy_from_slice(&len.to_le_bytes());
        record[25] = flags;
        record[32] = name.len() as u8;
        record.extend_from_slice(name);
        record.resize(record.len().next_multiple_of(2), 0);
        record.extend_from_slice(entries);
        record[0] = record.len() as u8;
        record
    }

    fn medium(directory: &[Vec<u8>]) -> Vec<u8> {
        let mut medium = vec![0; 40 * SECTOR_BYTES as usize];
        let descriptor = (DESCRIPTOR_SECTOR * SECTOR_BYTES) as usize;
        medium[descriptor..descriptor + 6].copy_from_slice(b"\x01CD001");
        let root = record(20, 2048, IS_DIRECTORY, &[0], &[]);
        medium[descriptor + 156..descriptor + 156 + root.len()].copy_from_slice(&root);
        let directory = directory.concat();
        let at = 20 * SECTOR_BYTES as usize;
        medium[at..at + directory.len()].copy_from_slice(&directory);
        medium
    }

    fn listed(medium: &[u8]) -> io::Result<Vec<(String, u64, u64)>> {
        let mut read = |at: u64, into: &mut [u8]| {
            let from =
                medium.get(at as usize..at as usize + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            into.copy_from_slice(from);
            Ok(())
        };
        let found = files(&mut read, medium.len() as u64)?;
        Ok(found.into_iter().map(|file| (file.path, file.bytes.offset, file.bytes.len)).collect())
    }

    #[test]
    fn files_have_the_names_that_linux_shows() {
        let own = b"PX\x04\x01NM\x0c\x01\x00initrd.".map(|byte| byte);
        let entries = [&own[..], b"NM\x08\x01\x00img"].concat();
        let found = listed(&medium(&[
            record(20, 2048, IS_DIRECTORY, &[0], b"NM\x05\x01\x02"),
            record(20, 2048, IS_DIRECTORY, &[1], &[]),
            record(30, 5000, 0, b"INITRD.IMG;1", &entries),
            record(25, 10, 0, b"VMLINUZ.;1", &[]),
            record(35, 0, 0, b"EMPTY", &[]),
        ]));
        let [kernel, initrd] = &found.expect("read")[..] else { panic!("two files") };
        assert_eq!(*kernel, ("/vmlinuz.".to_owned(), 25 * 2048, 10));
        assert_eq!(*initrd, ("/initrd.img".to_owned(), 30 * 2048, 5000));
    }

    #[test]
    fn directories_that_lead_nowhere_are_passed_over() {
        let found = listed(&medium(&[
            record(20, 2048, IS_DIRECTORY, b"AGAIN", &[]),
            record(u32::MAX, 2048, IS_DIRECTORY, b"BEYOND", &[]),
            record(20, u32::MAX, IS_DIRECTORY, b"LARGE", &[]),
            record(30, 1, 0, b"A;1", b"NM\x00\x01"),
        ]));
        assert_eq!(found.expect("read"), [("/a".to_owned(), 30 * 2048, 1)]);
        assert!(listed(&[0; 40 * 2048]).expect("read").is_empty());
        assert!(listed(&[0; 2048]).is_err());
    }

    /// Each directory has one that overlaps it, deeper and deeper.
    #[test]
    fn paths_and_all_directories_together_are_bounded() {
        let sectors = 60_000;
        let mut medium = medium(&[]);
        medium.resize(sectors * SECTOR_BYTES as usize, 0);
        for sector in 20..sectors as u32 - 600 {
            let deeper = record(sector + 1, 1 << 20, IS_DIRECTORY, &[b'D'; 100], &[]);
            let file = record(sector, 1, 0, b"F;1", &[]);
            let at = sector as usize * SECTOR_BYTES as usize;
            medium[at..at + deeper.len() + file.len()].copy_from_slice(&[deeper, file].concat());
        }
        let mut bytes_read = 0;
        let mut read = |at: u64, into: &mut [u8]| {
            bytes_read += into.len() as u64;
            into.copy_from_slice(&medium[at as usize..at as usize + into.len()]);
            Ok(())
        };
        let found = files(&mut read, medium.len() as u64).expect("read");
        assert!(
            found.len() <= MOST_FILES + 2048 && found.iter().all(|file| file.path.len() <= MOST_PATH_BYTES)
        );
        assert!(bytes_read <= MOST_BYTES + 2048, "{bytes_read}");
    }

    #[test]
    fn any_bytes_of_a_directory_are_bounded() {
        let mut random = hs_units::Prng::new(7);
        for _ in 0..200 {
            let mut bytes = vec![0; 2048];
            random.fill(&mut bytes);
            let _ = listed(&medium(&[bytes]));
        }
    }
}
