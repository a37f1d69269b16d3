//! The libraries that a program is linked to, as the system's own loader finds them.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Of the header of an ELF file for 64 bits (elf(5)), and of the entries of its table of segments.
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 56;
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
/// The kind of the segment that holds the path of the program's loader.
const LOADER: u32 = 3;
/// A path has no more bytes.
const LONGEST_PATH_BYTES: u64 = 4096;

/// The loader of `program` and everything that it would load; nothing of a program without one. The program
/// does not run.
pub(crate) fn of(program: &Path) -> Vec<PathBuf> {
    let Some(loader) = loader(program) else { return Vec::new() };
    let asked = Command::new(&loader)
        .arg("--list")
        .arg(program)
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = asked.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    let mut found: Vec<PathBuf> = text.lines().filter_map(path_in).collect();
    if !found.contains(&loader) {
        found.push(loader);
    }
    found
}

/// The path in a line such as `libc.so.6 => /lib/libc.so.6 (0x00007f…)`, or without the first two words.
fn path_in(line: &str) -> Option<PathBuf> {
    let (line, _) = line.rsplit_once(" (0x")?;
    let path = line.rsplit_once("=> ").map_or(line, |(_, path)| path).trim();
    path.starts_with('/').then(|| path.into())
}

fn loader(program: &Path) -> Option<PathBuf> {
    let file = File::open(program).ok()?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(MAGIC) {
        return None;
    }
    let table = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let entries = u16::from_le_bytes(header[56..58].try_into().ok()?);
    for number in 0..u64::from(entries) {
        let mut entry = [0; ENTRY_BYTES];
        file.read_exact_at(&mut entry, table.checked_add(number * ENTRY_BYTES as u64)?).ok()?;
        if u32::from_le_bytes(entry[..4].try_into().ok()?) == LOADER {
            let offset = u64::from_le_bytes(entry[8..16].try_into().ok()?);
            let len = u64::from_le_bytes(entry[32..40].try_into().ok()?).min(LONGEST_PATH_BYTES);
            let mut path = vec![0; len as usize];
            file.read_exact_at(&mut path, offset).ok()?;
            let path = path.split(|byte| *byte == 0).next()?;
            return Some(std::ffi::OsStr::from_bytes(path).into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_this_very_program_are_found() {
        let found = of(&std::env::current_exe().unwrap());
        assert!(found.iter().all(|path| path.is_file()), "{found:?}");
        assert!(found.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{found:?}");
    }

    #[test]
    fn what_is_no_program_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for content in
            [&b"#!/bin/sh\n"[..], b"", b"\x7fELF\x02\x01", &[b"\x7fELF\x02\x01", &[0xff; 200][..]].concat()]
        {
            std::fs::write(&path, content).unwrap();
            assert_eq!(of(&path), Vec::<PathBuf>::new());
        }
    }

    #[test]
    fn lines_of_loaders_are_understood() {
        for (line, path) in [
            ("\tlibc.so.6 => /lib/libc.so.6 (0x00007f3a17ca7000)", Some("/lib/libc.so.6")),
            ("\t/lib64/ld-linux-x86-64.so.2 (0x00007f3a17e9d000)", Some("/lib64/ld-linux-x86-64.so.2")),
            ("\tlinux-vdso.so.1 (0x00007f3a17e9b000)", None),
            ("\tlibgone.so => not found", None),
            ("statically linked", None),
        ] {
            assert_eq!(path_in(line), path.map(PathBuf::from));
        }
    }
}
