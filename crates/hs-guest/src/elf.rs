//! What a program or a library says of what it is linked to: elf(5). Nothing is run, and nothing that the
//! file says makes us read or keep more than a bounded part of it.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Of the header of a file for 64 bits, and of the entries of its tables.
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const DYNAMIC_BYTES: usize = 16;
/// 64 bits, little-endian.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
/// Kinds of segments.
const LOADED: u32 = 1;
const DYNAMIC: u32 = 2;
const LOADER: u32 = 3;
/// Kinds of entries of the dynamic section.
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;
const STRINGS_BYTES: u64 = 10;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;
/// The path of a file has no more bytes.
const LONGEST_PATH_BYTES: u64 = 4096;
/// The largest dynamic section and the largest table of strings that are looked at. A library with a hundred
/// thousand symbols has 10 MiB of these.
const MOST_DYNAMIC_BYTES: u64 = 64 << 10;
const MOST_STRINGS_BYTES: u64 = 64 << 20;
const MOST_SEGMENTS: u16 = 512;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// The processor that it is for.
    pub(crate) machine: u16,
    /// The program that loads it.
    pub(crate) loader: Option<PathBuf>,
    /// Names of the libraries that it needs.
    pub(crate) needed: Vec<String>,
    /// Folders in which these are looked for, and those that they need as well: an older way.
    pub(crate) rpath: Vec<String>,
    /// Folders in which these are looked for.
    pub(crate) runpath: Vec<String>,
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

impl Elf {
    /// Reads it; nothing of what is no such file.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        // A pipe of that name would not hold us.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let file = Some(file).filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).ok()?;
        if !header.starts_with(MAGIC) {
            return None;
        }
        let machine = u16::from_le_bytes([header[18], header[19]]);
        let count = u16::from_le_bytes([header[56], header[57]]).min(MOST_SEGMENTS);
        let segments = segments(&file, word(&header, 32)?, count)?;
        let of_kind = |kind| segments.iter().find(|segment| segment.kind == kind);
        let loader = of_kind(LOADER).and_then(|segment| {
            let path = part(&file, segment.offset, segment.bytes.min(LONGEST_PATH_BYTES))?;
            Some(text(&path, 0)?.into())
        });
        let mut elf = Self { machine, loader, ..Self::default() };
        if let Some(dynamic) = of_kind(DYNAMIC) {
            elf.read_dynamic(&file, &segments, dynamic)?;
        }
        Some(elf)
    }

    fn read_dynamic(&mut self, file: &File, segments: &[Segment], dynamic: &Segment) -> Option<()> {
        let section = part(file, dynamic.offset, dynamic.bytes.min(MOST_DYNAMIC_BYTES))?;
        let entries: Vec<(u64, u64)> = section
            .chunks_exact(DYNAMIC_BYTES)
            .map_while(|entry| Some((word(entry, 0)?, word(entry, 8)?)))
            .take_while(|(kind, _)| *kind != 0)
            .collect();
        let of_kind = |wanted| entries.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value);
        let (Some(address), Some(bytes)) = (of_kind(STRINGS), of_kind(STRINGS_BYTES)) else {
            return Some(());
        };
        // The section speaks of addresses in memory.
        let offset = segments.iter().filter(|segment| segment.kind == LOADED).find_map(|segment| {
            let within = address.checked_sub(segment.address).filter(|within| *within < segment.bytes)?;
            segment.offset.checked_add(within)
        })?;
        let strings = part(file, offset, bytes.min(MOST_STRINGS_BYTES))?;
        for (kind, at) in entries {
            let folders = || Some(text(&strings, at)?.split(':').map(str::to_owned).collect());
            match kind {
                NEEDED => self.needed.push(text(&strings, at)?.to_owned()),
                RPATH => self.rpath = folders()?,
                RUNPATH => self.runpath = folders()?,
                _ => {}
            }
        }
        Some(())
    }
}

fn segments(file: &File, table: u64, count: u16) -> Option<Vec<Segment>> {
    let bytes = part(file, table, u64::from(count) * SEGMENT_BYTES as u64)?;
    let segment = |entry: &[u8]| {
        let kind = u32::from_le_bytes(entry.get(..4)?.try_into().ok()?);
        Some(Segment { kind, offset: word(entry, 8)?, address: word(entry, 16)?, bytes: word(entry, 32)? })
    };
    bytes.chunks_exact(SEGMENT_BYTES).map(segment).collect()
}

/// A part of a file that is there: no more is asked of memory than the file has.
fn part(file: &File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    let end = offset.checked_add(bytes)?;
    if end > file.metadata().ok()?.len() {
        return None;
    }
    let mut part = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut part, offset).ok()?;
    Some(part)
}

/// The string that begins there.
pub(crate) fn text(strings: &[u8], at: u64) -> Option<&str> {
    let from = strings.get(usize::try_from(at).ok()?..)?;
    let end = from.iter().take(LONGEST_PATH_BYTES as usize).position(|byte| *byte == 0)?;
    std::str::from_utf8(&from[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_program_says_what_it_needs() {
        let elf = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(elf.loader.is_some_and(|loader| loader.is_file()));
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", elf.needed);
    }

    /// Whatever a file says: an answer or none, and no more memory than the file is long.
    #[test]
    fn files_that_are_cut_or_changed_are_read_within_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let whole = std::fs::read("/bin/true").unwrap();
        let good = Elf::read(Path::new("/bin/true")).unwrap();
        for end in (0..whole.len()).step_by(997) {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert!(Elf::read(&path).is_none_or(|elf| elf == good || elf.needed.len() <= good.needed.len()));
        }
        for at in 0..HEADER_BYTES + 13 * SEGMENT_BYTES {
            for value in [0, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                std::fs::write(&path, &changed).unwrap();
                let _ = Elf::read(&path);
            }
        }
    }

    #[test]
    fn what_is_no_program_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for content in
            [&b"#!/bin/sh\n"[..], b"", b"\x7fELF\x02\x01", &[b"\x7fELF\x02\x01", &[0xff; 200][..]].concat()]
        {
            std::fs::write(&path, content).unwrap();
            assert_eq!(Elf::read(&path), None);
        }
        assert_eq!(Elf::read(folder.path()), None);
    }
}
