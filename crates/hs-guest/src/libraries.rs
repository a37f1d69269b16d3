//! The libraries that a program is linked to, as the system's own loader finds them: ld.so(8). The loader is
//! not asked, since it would be run with a file of which nothing is known, as root and outside any jail.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::elf::{Elf, text};

/// The list that ldconfig(8) makes of what lies in the system's folders.
const LIST: &str = "/etc/ld.so.cache";
const LIST_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const LIST_HEADER_BYTES: usize = 48;
const LIST_ENTRY_BYTES: usize = 24;
const MOST_LIST_BYTES: u64 = 64 << 20;
/// Where libraries lie that are on no list: glibc's own folders, those of Debian's processors, and musl's.
const FOLDERS: [&str; 9] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];
/// A program has no more libraries; QEMU has 150.
const MOST_LIBRARIES: usize = 1024;

/// The loader of `program` and everything that it would load; nothing of a program without one. What is not
/// found is left out: the program says so when it is started. The program does not run.
pub(crate) fn of(program: &Path) -> Vec<PathBuf> {
    let Some(elf) = Elf::read(program) else { return Vec::new() };
    let Some(loader) = elf.loader.clone() else { return Vec::new() };
    let list = read_list(Path::new(LIST));
    let mut found = vec![loader.clone()];
    let mut names: BTreeSet<String> = BTreeSet::new();
    let machine = elf.machine;
    // Each with the folders that those who need it have named for all.
    let mut waiting = vec![(program.to_owned(), elf, Vec::new())];
    while let Some((path, elf, inherited)) = waiting.pop() {
        let mut for_all = if elf.runpath.is_empty() { expand(&elf.rpath, &path) } else { Vec::new() };
        for_all.extend(inherited);
        let own = if elf.runpath.is_empty() { for_all.clone() } else { expand(&elf.runpath, &path) };
        for name in elf.needed {
            let is_loader = loader.file_name().is_some_and(|loader| *loader == *name);
            if is_loader || names.len() >= MOST_LIBRARIES || !names.insert(name.clone()) {
                continue;
            }
            let places = candidates(&name, &own, &list);
            let of_machine = |place: PathBuf| {
                let elf = Elf::read(&place).filter(|elf| elf.machine == machine)?;
                Some((place, elf))
            };
            if let Some((place, elf)) = places.into_iter().find_map(of_machine) {
                found.push(place.clone());
                waiting.push((place, elf, for_all.clone()));
            }
        }
    }
    found
}

/// Where a library may be, the likeliest first.
fn candidates(name: &str, folders: &[PathBuf], list: &HashMap<String, Vec<PathBuf>>) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![name.into()];
    }
    let listed = list.get(name).into_iter().flatten().cloned();
    let usual = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    folders.iter().map(|folder| folder.join(name)).chain(listed).chain(usual).collect()
}

/// Folders that a file names, of which some are beside itself.
fn expand(folders: &[String], of: &Path) -> Vec<PathBuf> {
    let real = of.canonicalize().unwrap_or_else(|_| of.to_owned());
    let origin = real.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let expanded =
        folders.iter().map(|folder| folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
    // Relative ones would be those of whatever folder this process is in.
    expanded.map(PathBuf::from).filter(|folder| folder.is_absolute()).collect()
}

/// Libraries of the list by their names; none where there is no list, or another form of one.
fn read_list(path: &Path) -> HashMap<String, Vec<PathBuf>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_LIST_BYTES).read_to_end(&mut bytes));
    read.ok().and_then(|_| parse_list(&bytes)).unwrap_or_default()
}

/// The header, entries of 24 bytes, and strings at offsets from the header: glibc's `struct cache_file_new`.
fn parse_list(bytes: &[u8]) -> Option<HashMap<String, Vec<PathBuf>>> {
    // An older form may come before it.
    let start = bytes.windows(LIST_MAGIC.len()).position(|found| found == LIST_MAGIC)?;
    let list = &bytes[start..];
    let number = |at: usize| Some(u32::from_le_bytes(list.get(at..at + 4)?.try_into().ok()?));
    let count = number(LIST_MAGIC.len())? as usize;
    let entries = list.get(LIST_HEADER_BYTES..)?.chunks_exact(LIST_ENTRY_BYTES).take(count);
    let mut found: HashMap<String, Vec<PathBuf>> = HashMap::new();
    for entry in entries {
        let part = |at: usize| Some(u32::from_le_bytes(entry.get(at..at + 4)?.try_into().ok()?));
        // Those with a mark are for some processors only; there is always one without.
        if entry[16..24] != [0; 8] {
            continue;
        }
        let (name, place) = (text(list, part(4)?.into())?, text(list, part(8)?.into())?);
        found.entry(name.to_owned()).or_default().push(place.into());
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_libraries_of_this_very_program_are_found() {
        let found = of(&std::env::current_exe().unwrap());
        assert!(found.iter().all(|path| path.is_file()), "{found:?}");
        assert!(found.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{found:?}");
    }

    /// The loader's own word, of programs that are known.
    #[test]
    fn what_is_found_is_what_the_loader_loads() {
        for program in ["/bin/ls", "/usr/bin/qemu-system-x86_64", "/usr/bin/linux.uml", "/usr/bin/python3"] {
            let Some(loader) = Elf::read(Path::new(program)).and_then(|elf| elf.loader) else { continue };
            let said = Command::new(loader).arg("--list").arg(program).env_clear().output().unwrap();
            let real = |path: &Path| path.canonicalize().ok();
            let path_in = |line: &str| {
                let (line, _) = line.rsplit_once(" (0x")?;
                let path = line.rsplit_once("=> ").map_or(line, |(_, path)| path).trim();
                real(Path::new(path))
            };
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            let expected: BTreeSet<PathBuf> = text.lines().filter_map(path_in).collect();
            let found: BTreeSet<PathBuf> =
                of(Path::new(program)).iter().filter_map(|path| real(path)).collect();
            assert!(!expected.is_empty() && found == expected, "{program}: {found:?}\n{expected:?}");
        }
    }

    /// A file that names a loader of its own has nothing run.
    #[test]
    fn the_loader_that_a_program_names_is_not_run() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (loader, ran) = (folder.path().join("l"), folder.path().join("ran"));
        std::fs::write(&loader, format!("#!/bin/sh\necho >{}\n", ran.display())).unwrap();
        std::fs::set_permissions(&loader, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut program = vec![0; 64 + 56];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[32..40].copy_from_slice(&64_u64.to_le_bytes());
        program[56..58].copy_from_slice(&1_u16.to_le_bytes());
        program[64..68].copy_from_slice(&3_u32.to_le_bytes());
        program[72..80].copy_from_slice(&120_u64.to_le_bytes());
        let name = loader.to_str().unwrap();
        program[96..104].copy_from_slice(&(name.len() as u64 + 1).to_le_bytes());
        program.extend(name.bytes().chain([0]));
        let path = folder.path().join("program");
        std::fs::write(&path, program).unwrap();
        assert_eq!(of(&path), [loader]);
        assert!(!ran.exists(), "it ran");
    }

    #[test]
    fn folders_beside_a_program_are_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("p");
        std::fs::write(&program, "").unwrap();
        let real = program.canonicalize().unwrap();
        let words = ["$ORIGIN/../lib", "${ORIGIN}", "/opt/lib", "relative", ""].map(str::to_owned);
        let beside = real.parent().unwrap();
        assert_eq!(expand(&words, &program), [beside.join("../lib"), beside.to_owned(), "/opt/lib".into()]);
    }

    #[test]
    fn lists_are_read_within_bounds() {
        let whole = std::fs::read(LIST).unwrap_or_default();
        for end in (0..whole.len()).step_by(499) {
            let _ = parse_list(&whole[..end]);
        }
        for at in 0..(LIST_HEADER_BYTES + LIST_ENTRY_BYTES).min(whole.len()) {
            let mut changed = whole.clone();
            changed[at] = 0xff;
            let _ = parse_list(&changed);
        }
        assert!(parse_list(b"").is_none());
    }
}
