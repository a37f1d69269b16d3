//! File systems in which bytes were changed: every one of the superblock, the descriptors, the inodes that
//! are in use, their extents and directories.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use hs_build::ext4::{Ext4, Ext4Error, FileKind, ROOT_INODE, ReadDisk};
use hs_build::source::{Source, SourceOptions};
use hs_build::{BuildOptions, list_files};
use hs_image::Image;
use hs_store::FileStore;

use crate::{heap, turn};

const DISK_BYTES: usize = 4 << 20;
/// All that reading may take: a file that claims to be as large as the disk, and a few blocks.
const MOST_HEAP_BYTES: usize = DISK_BYTES + (2 << 20);
/// Directories within directories that are looked into; those that were changed may go round in circles.
const MOST_DEPTH: usize = 3;

/// The disk; what is read of its metadata is noted where that is wanted.
fn reads<'d>(disk: &'d [u8], read: Option<&'d RefCell<BTreeSet<usize>>>) -> ReadDisk<'d> {
    ReadDisk::new(disk.len() as u64, move |offset, bytes: &mut [u8]| {
        let from = offset as usize;
        let found = disk.get(from..from + bytes.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(found);
        // Content is of no matter: metadata is read a block at a time, or less.
        if let Some(read) = read.filter(|_| bytes.len() <= 1024) {
            read.borrow_mut().extend(from..from + bytes.len());
        }
        Ok(())
    })
}

/// Reads all that there is; gives how much it was.
fn read_all(disk: ReadDisk<'_>) -> Result<usize, Ext4Error> {
    let mut ext4 = Ext4::open(disk)?;
    for group in 0..ext4.groups() {
        ext4.inode_table(group)?;
    }
    let mut bytes = 0;
    read_directory(&mut ext4, ROOT_INODE, MOST_DEPTH, &mut bytes)?;
    Ok(bytes)
}

fn read_directory(
    ext4: &mut Ext4<'_>,
    number: u32,
    depth: usize,
    bytes: &mut usize,
) -> Result<(), Ext4Error> {
    let inode = ext4.inode(number)?;
    let mut numbers = BTreeSet::new();
    ext4.names(&inode, &mut |name, number| {
        if name != b"." && name != b".." {
            numbers.insert(number);
        }
        numbers.len() < 1000
    })?;
    for number in numbers {
        let inode = ext4.inode(number)?;
        match inode.kind() {
            FileKind::Directory if depth > 0 => read_directory(ext4, number, depth - 1, bytes)?,
            FileKind::Link => *bytes += ext4.link_target(&inode)?.len(),
            FileKind::Regular => {
                ext4.walk(&inode)?;
                *bytes += ext4.content(&inode, u64::MAX)?.len();
            }
            _ => {}
        }
    }
    Ok(())
}

/// A small file system of this kind; nothing where `mkfs.ext4` is missing.
fn make(options: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("deep/er")).expect("folders");
    fs::write(root.join("deep/er/large"), vec![7; 30_000]).expect("a file");
    fs::write(root.join("small"), [b's'; 100]).expect("a file");
    symlink("deep/er/large", root.join("short")).expect("a link");
    symlink("deep/../".repeat(20), root.join("long")).expect("a link");
    let disk = mkfs(&root, &[&["-N", "32"], options].concat())?;
    Some(fs::read(&disk).expect("read"))
}

/// A file beside `root` with a file system that has what lies there; nothing where `mkfs.ext4` is missing.
fn mkfs(root: &Path, options: &[&str]) -> Option<PathBuf> {
    let disk = root.with_file_name("disk");
    let file = File::create(&disk).expect("a file");
    file.set_len(DISK_BYTES as u64).expect("made long");
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "1024"])
        .args(options)
        .arg("-d")
        .args([root, &disk])
        .stdin(Stdio::null())
        .status();
    if !made.is_ok_and(|made| made.success()) {
        assert!(std::env::var_os("CI").is_none(), "mkfs.ext4 is missing");
        eprintln!("SKIPPED: mkfs.ext4 is missing");
        return None;
    }
    Some(disk)
}

/// In several ways, and all is read again each time.
#[test]
fn every_changed_byte_is_survived() {
    let _turn = turn();
    let kinds: [&[&str]; 3] = [&[], &["-O", "^extent,^64bit"], &["-O", "inline_data,meta_bg,^resize_inode"]];
    for options in kinds {
        let Some(mut disk) = make(options) else { return };
        let read = RefCell::default();
        let whole = read_all(reads(&disk, Some(&read))).expect("whole");
        assert!(whole > 30_000, "{whole}");
        let metadata = read.take();
        assert!(metadata.len() > 3000 && metadata.len() < 64 << 10, "{}", metadata.len());
        let before = heap::reset_peak();
        let mut refused = 0;
        for &at in &metadata {
            let was = disk[at];
            // Bytes of a directory's empty rest and of an index say nothing; two changes tell that too.
            let ways: &[u8] = if was == 0 { &[0xff, 0x01] } else { &[0xff, 0x01, 0x80, was] };
            for way in ways {
                disk[at] = was ^ way;
                refused += usize::from(read_all(reads(&disk, None)).is_err());
            }
            disk[at] = was;
        }
        let took = heap::peak().saturating_sub(before);
        assert!(took < MOST_HEAP_BYTES, "{options:?}: {took} bytes");
        assert!(refused > 300, "{options:?}: {refused}");
    }
}

/// The superblock that made another reader ask for 64 GiB.
#[test]
fn a_superblock_of_countless_groups_is_refused() {
    let _turn = turn();
    let Some(mut disk) = make(&["-O", "^metadata_csum"]) else { return };
    disk[1024 + 0x4..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    disk[1024 + 0x20..][..4].copy_from_slice(&1_u32.to_le_bytes());
    let before = heap::reset_peak();
    let error = read_all(reads(&disk, None)).expect_err("no such disk");
    assert!(error.to_string().contains("number of blocks"), "{error}");
    disk[1024 + 0x4..][..4].copy_from_slice(&4096_u32.to_le_bytes());
    let error = read_all(reads(&disk, None)).expect_err("no such groups");
    assert!(error.to_string().contains("blocks in a group"), "{error}");
    assert!(heap::peak().saturating_sub(before) < 1 << 20);
}

/// Each level makes paths longer, and all that are listed are remembered: none that no program can open.
#[test]
fn deep_directories_are_listed_as_far_as_paths_reach() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a folder");
    let mut here = File::open(&root).expect("open");
    for _ in 0..200 {
        let inside = format!("/proc/self/fd/{}/{}", here.as_raw_fd(), "d".repeat(255));
        fs::create_dir(&inside).expect("a folder");
        here = File::open(inside).expect("open");
    }
    let Some(disk) = mkfs(&root, &["-N", "256"]) else { return };
    let source = Source::open(&disk, &SourceOptions::default(), &|_| {}).expect("a disk");
    let output = folder.path().join("deep.hsi");
    hs_build::build(&source, &output, &BuildOptions::default(), &|_| {}).expect("built");
    let image = Image::open(Arc::new(FileStore::open(&output).expect("open"))).expect("an image");
    let before = heap::reset_peak();
    let listed = list_files(&image, 1000).expect("a file system");
    assert!(heap::peak().saturating_sub(before) < 1 << 20);
    // The root, lost+found, and what lies within 4,096 bytes of a path.
    assert_eq!(listed.len(), 2 + 16);
    assert!(listed.iter().all(|file| file.path.len() <= 4096));
}
