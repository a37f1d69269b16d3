//! The content of one file of an ext4 file system, as a boot loader finds it.

use std::fmt::Display;
use std::io::{self, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ext4::{Checksums, Enhanced, Inode, Options, SuperBlock};
use parking_lot::Mutex;
use positioned_io::ReadAt;

/// No kernel or initial RAM disk is larger. A size is only what the disk claims.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Links that are followed before somebody is taken to walk in circles, as Linux does.
const MAX_LINKS: usize = 40;
/// Names that are still to be looked up after a link: a path has 4096 bytes.
const MAX_NAMES: usize = 2048;
/// A directory with more bytes is not looked into.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;
/// The inode of the topmost directory.
const ROOT: u32 = 2;
/// Bytes that are asked for at once.
const PIECE_BYTES: usize = 1 << 20;

/// Reads a disk: fills the buffer with what lies from the offset on.
pub type ReadDisk<'a> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a;

/// The content of the file at the absolute `path`, links followed, in the ext4 file system of a disk; `None` when there is
/// no such file.
///
/// # Errors
/// When the disk cannot be read, or holds no whole ext4 file system.
pub fn read_linked_file(read_disk: &mut ReadDisk<'_>, path: &str) -> io::Result<Option<Vec<u8>>> {
    let disk = Disk { read: Mutex::new(read_disk), error: Mutex::new(None) };
    // The library is made for whole file systems, and this one may be anything.
    let found = catch_unwind(AssertUnwindSafe(|| read_file(&disk, path)));
    // What the library says of a read that failed is less than what the read said.
    if let Some(error) = disk.error.lock().take() {
        return Err(error);
    }
    found.unwrap_or_else(|_| Err(not_whole("it makes no sense")))
}

fn not_whole(why: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its ext4 file system is not a whole one: {why}"))
}

fn read_file(disk: &Disk<'_>, path: &str) -> io::Result<Option<Vec<u8>>> {
    let options = Options { checksums: Checksums::Enabled };
    let system = whole(SuperBlock::new_with_options(disk, &options))?;
    let Some(inode) = find_file(&system, path)? else { return Ok(None) };
    let bytes = inode.stat.size;
    if bytes > MAX_FILE_BYTES {
        return Err(not_whole(format_args!("{path} has {bytes} bytes")));
    }
    let mut content = Vec::new();
    io::copy(&mut BufReader::with_capacity(PIECE_BYTES, whole(system.open(&inode))?), &mut content)?;
    if content.len() as u64 == bytes { Ok(Some(content)) } else { Err(not_whole("a file is too short")) }
}

/// The regular file that a path leads to.
fn find_file(system: &SuperBlock<&Disk<'_>>, path: &str) -> io::Result<Option<Inode>> {
    let mut links = 0;
    // Names that are still to be looked up, the next one last; and the directories on the way, the topmost first.
    let mut names: Vec<String> = names_of(path).collect();
    let mut way = vec![whole(system.load_inode(ROOT))?];
    while let Some(name) = names.pop() {
        if name == ".." {
            way.truncate((way.len() - 1).max(1));
            continue;
        }
        let Some(directory) = way.last().filter(|inode| inode.stat.size <= MAX_DIRECTORY_BYTES) else {
            break;
        };
        let Enhanced::Directory(entries) = whole(system.enhance(directory))? else { break };
        let Some(entry) = entries.into_iter().find(|entry| entry.name == name) else { break };
        let inode = whole(system.load_inode(entry.inode))?;
        match whole(system.enhance(&inode))? {
            Enhanced::SymbolicLink(target) if links < MAX_LINKS && names.len() < MAX_NAMES => {
                links += 1;
                if target.starts_with('/') {
                    way.truncate(1);
                }
                names.extend(names_of(&target));
            }
            Enhanced::Directory(_) => way.push(inode),
            Enhanced::RegularFile if names.is_empty() => return Ok(Some(inode)),
            _ => break,
        }
    }
    Ok(None)
}

fn whole<T, E: Display>(result: Result<T, E>) -> io::Result<T> {
    result.map_err(|error| not_whole(format_args!("{error:#}")))
}

/// The names in a path, the first one last.
fn names_of(path: &str) -> impl Iterator<Item = String> {
    path.rsplit('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned)
}

/// The disk as the library reads it.
struct Disk<'a> {
    read: Mutex<&'a mut ReadDisk<'a>>,
    /// What the first read that failed said.
    error: Mutex<Option<io::Error>>,
}

impl ReadAt for &Disk<'_> {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        match (self.read.lock())(at, into) {
            Ok(()) => Ok(into.len()),
            Err(error) => {
                let kind = error.kind();
                self.error.lock().get_or_insert(error);
                Err(kind.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt, symlink};
    use std::process::{Command, Stdio};

    use super::*;

    /// An ext4 made by mkfs.ext4, or nothing where that is missing.
    fn disk() -> Option<(tempfile::TempDir, fs::File, Vec<u8>)> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("boot/deep")).unwrap();
        let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(root.join("boot/vmlinuz-6"), &content).unwrap();
        symlink("boot/vmlinuz-6", root.join("vmlinuz")).unwrap();
        symlink("../../vmlinuz", root.join("boot/deep/up")).unwrap();
        symlink("/boot/deep/up", root.join("absolute")).unwrap();
        symlink(format!("/boot/{}deep/up", "deep/../".repeat(20)), root.join("long")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        let path = folder.path().join("disk");
        fs::File::create(&path).and_then(|file| file.set_len(8 << 20)).unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-d"])
            .args([&root, &path])
            .stdin(Stdio::null())
            .status();
        if !made.is_ok_and(|made| made.success()) {
            assert!(std::env::var_os("CI").is_none(), "mkfs.ext4 is missing");
            return None;
        }
        let file = fs::File::open(&path).unwrap();
        Some((folder, file, content))
    }

    #[test]
    fn links_are_followed_and_what_is_not_there_is_nothing() {
        let Some((_folder, disk, content)) = disk() else { return };
        let mut read = |offset: u64, bytes: &mut [u8]| FileExt::read_exact_at(&disk, bytes, offset);
        for path in ["/vmlinuz", "/boot/vmlinuz-6", "/boot/deep/up", "/absolute", "/long", "/../vmlinuz"] {
            let found = read_linked_file(&mut read, path).unwrap();
            assert!(found.as_ref() == Some(&content), "{path}");
        }
        for path in ["/initrd.img", "/boot", "/", "/circle", "/dangling", "/vmlinuz/x", "/boot/deep"] {
            assert!(read_linked_file(&mut read, path).unwrap().is_none(), "{path}");
        }
    }

    #[test]
    fn errors_of_the_disk_are_told_as_they_are() {
        let Some((_folder, disk, _)) = disk() else { return };
        let mut reads: u32 = 0;
        while reads < 1000 {
            let mut left: u32 = reads;
            let mut read = |offset: u64, bytes: &mut [u8]| {
                left = left.checked_sub(1).ok_or_else(|| io::Error::other("the disc is scratched"))?;
                FileExt::read_exact_at(&disk, bytes, offset)
            };
            match read_linked_file(&mut read, "/vmlinuz") {
                Ok(found) => return assert!(found.is_some() && reads > 3),
                Err(error) => assert_eq!(error.to_string(), "the disc is scratched"),
            }
            reads += 1;
        }
        panic!("it never stops reading");
    }

    #[test]
    fn noise_is_no_file_system() {
        let mut noise = vec![0; 1 << 20];
        hs_units::Prng::new(5).fill(&mut noise);
        for magic in [false, true] {
            if magic {
                noise[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
            }
            let mut read = |offset: u64, bytes: &mut [u8]| {
                let from = usize::try_from(offset).map_err(io::Error::other)?;
                let found = noise.get(from..).and_then(|rest| rest.get(..bytes.len()));
                bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            };
            read_linked_file(&mut read, "/vmlinuz").unwrap_err();
        }
    }
}
