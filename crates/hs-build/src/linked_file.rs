//! The content of one file of an ext4 file system, as a boot loader finds it.

use std::fmt::Display;
use std::io;

use crate::ext4::{Ext4, Ext4Error, FileKind, Inode, MOST_DIRECTORY_BYTES, ROOT_INODE, ReadDisk};

/// No kernel or initial RAM disk is larger. A size is only what the disk claims.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Links that are followed before they count as a loop, as in Linux.
const MAX_LINKS: usize = 40;
/// Names that are still to be looked up after a link: a path has 4096 bytes.
const MAX_NAMES: usize = 2048;

/// The content of the file at the absolute `path`, links followed, in the ext4 file system of a disk; `None`
/// when there is no such file.
///
/// # Errors
/// When the disk cannot be read, or holds no whole ext4 file system.
pub fn read_linked_file(disk: &mut ReadDisk<'_>, path: &str) -> io::Result<Option<Vec<u8>>> {
    look(disk, |system| {
        let Some(file) = find_file(system, path)? else { return Ok(None) };
        system.content(&file, MAX_FILE_BYTES).map(Some)
    })
}

/// The first of these absolute paths at which there is a file, links followed.
///
/// # Errors
/// As [`read_linked_file`].
pub fn first_linked_file<'p>(disk: &mut ReadDisk<'_>, paths: &[&'p str]) -> io::Result<Option<&'p str>> {
    look(disk, |system| {
        for path in paths {
            if find_file(system, path)?.is_some() {
                return Ok(Some(*path));
            }
        }
        Ok(None)
    })
}

fn look<T>(
    disk: &mut ReadDisk<'_>,
    look: impl FnOnce(&mut Ext4<'_>) -> Result<T, Ext4Error>,
) -> io::Result<T> {
    let found = Ext4::open(disk.borrowed()).and_then(|mut system| look(&mut system));
    found.map_err(|error| match error {
        // What is said of a read that failed is less than what the read said.
        Ext4Error::Read { error, .. } => error,
        error => not_whole(error),
    })
}

fn not_whole(why: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its ext4 file system is not a whole one: {why}"))
}

/// The regular file that a path leads to.
fn find_file(system: &mut Ext4<'_>, path: &str) -> Result<Option<Inode>, Ext4Error> {
    let mut links = 0;
    // Names that are still to be looked up, the next one last; and the directories on the way, the topmost
    // first.
    let mut names: Vec<Vec<u8>> = names_of(path.as_bytes()).collect();
    let top = system.inode(ROOT_INODE)?;
    let mut way = vec![top];
    while let Some(name) = names.pop() {
        if name == b".." {
            way.truncate((way.len() - 1).max(1));
            continue;
        }
        let Some(directory) = way.last().filter(|inode| inode.size() <= MOST_DIRECTORY_BYTES) else { break };
        let Some(number) = system.find_name(directory, &name)? else { break };
        let inode = system.inode(number)?;
        match inode.kind() {
            FileKind::Link if links < MAX_LINKS && names.len() < MAX_NAMES => {
                let target = system.link_target(&inode)?;
                links += 1;
                if target.starts_with(b"/") {
                    way.truncate(1);
                }
                names.extend(names_of(&target));
            }
            FileKind::Directory => way.push(inode),
            FileKind::Regular if names.is_empty() => return Ok(Some(inode)),
            _ => break,
        }
    }
    Ok(None)
}

/// The names in a path, the first one last.
fn names_of(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let names = path.rsplit(|byte| *byte == b'/');
    names.filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt, symlink};
    use std::process::{Command, Stdio};

    use super::*;

    const DISK_BYTES: u64 = 8 << 20;

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
        fs::File::create(&path).and_then(|file| file.set_len(DISK_BYTES)).unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-d"])
            .args([&root, &path])
            .stdin(Stdio::null())
            .status();
        if !made.is_ok_and(|made| made.success()) {
            hs_testing::skip("mkfs.ext4 is missing");
            return None;
        }
        let file = fs::File::open(&path).unwrap();
        Some((folder, file, content))
    }

    #[test]
    fn links_are_followed_and_what_is_not_there_is_nothing() {
        let Some((_folder, disk, content)) = disk() else { return };
        let mut read = ReadDisk::new(DISK_BYTES, |offset, bytes| disk.read_exact_at(bytes, offset));
        for path in ["/vmlinuz", "/boot/vmlinuz-6", "/boot/deep/up", "/absolute", "/long", "/../vmlinuz"] {
            let found = read_linked_file(&mut read, path).unwrap();
            assert!(found.as_ref() == Some(&content), "{path}");
        }
        for path in ["/initrd.img", "/boot", "/", "/circle", "/dangling", "/vmlinuz/x", "/boot/deep"] {
            assert!(read_linked_file(&mut read, path).unwrap().is_none(), "{path}");
        }
        let mut first = |paths: &[&'static str]| first_linked_file(&mut read, paths).unwrap();
        assert_eq!(first(&["/sbin/init", "/dangling", "/long", "/vmlinuz"]), Some("/long"));
        assert_eq!(first(&["/sbin/init", "/boot"]), None);
    }

    #[test]
    fn errors_of_the_disk_are_told_as_they_are() {
        let Some((_folder, disk, _)) = disk() else { return };
        let mut reads: u32 = 0;
        while reads < 1000 {
            let mut left: u32 = reads;
            let mut read = ReadDisk::new(DISK_BYTES, |offset, bytes| {
                left = left.checked_sub(1).ok_or_else(|| io::Error::other("the disc is scratched"))?;
                disk.read_exact_at(bytes, offset)
            });
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
            let mut read = ReadDisk::new(noise.len() as u64, |offset, bytes: &mut [u8]| {
                let from = usize::try_from(offset).map_err(io::Error::other)?;
                let found = noise.get(from..).and_then(|rest| rest.get(..bytes.len()));
                bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            });
            read_linked_file(&mut read, "/vmlinuz").unwrap_err();
        }
    }
}
