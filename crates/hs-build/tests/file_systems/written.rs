//! A laid-out plan in a file, what `e2fsck` and this crate's reader say of it, and its mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use hs_build::ext4::{Ext4, FileKind, Inode, ROOT_INODE, ReadDisk};
use hs_ext4::{Layout, LayoutOptions, NodeId, RunContent};
use tempfile::NamedTempFile;

pub(crate) fn options() -> LayoutOptions {
    let (uuid, label) = ([7; 16], *b"a label\0\0\0\0\0\0\0\0\0");
    LayoutOptions { uuid, label, free_bytes: 0, free_inodes: 0, chunk_blocks: 32 }
}

/// Writes a file system; `data` fills a buffer with what a file has at an offset.
pub(crate) fn write(layout: &Layout, mut data: impl FnMut(NodeId, u64, &mut [u8])) -> NamedTempFile {
    let disk = NamedTempFile::new().unwrap();
    disk.as_file().set_len(layout.blocks() * 4096).unwrap();
    let mut block = [0; 4096];
    let mut next = 0;
    for run in layout.runs() {
        assert_eq!(run.first, next, "runs ascend without a gap");
        next += run.blocks;
        for number in run.first..next {
            match run.content {
                RunContent::Zeros | RunContent::Earlier => break,
                RunContent::Metadata => layout.write_metadata(number, &mut block),
                RunContent::Data { file, offset } => {
                    block.fill(0);
                    data(file, offset + (number - run.first) * 4096, &mut block);
                }
            }
            if block != [0; 4096] {
                disk.as_file().write_all_at(&block, number * 4096).unwrap();
            }
        }
    }
    assert_eq!(next, layout.blocks());
    disk
}

/// All paths and their inodes, as this crate's reader finds them.
pub(crate) fn read_back(disk: &File) -> BTreeMap<PathBuf, Inode> {
    let bytes = disk.metadata().unwrap().len();
    let disk = ReadDisk::new(bytes, |offset, bytes| disk.read_exact_at(bytes, offset));
    let mut system = Ext4::open(disk).unwrap().trusted();
    let mut found = BTreeMap::new();
    let mut pending = vec![(PathBuf::new(), ROOT_INODE)];
    while let Some((path, number)) = pending.pop() {
        let inode = system.inode(number).unwrap();
        if inode.kind() == FileKind::Directory {
            let add = &mut |name: &[u8], number| {
                if name != b"." && name != b".." {
                    pending.push((path.join(OsStr::from_bytes(name)), number));
                }
                true
            };
            system.names(&inode, add).unwrap();
        }
        found.insert(path, inode);
    }
    found
}

/// Fails with what `e2fsck` finds. Without `e2fsck` the test is skipped.
pub(crate) fn is_clean(disk: &Path) -> bool {
    let Ok(output) = Command::new("e2fsck").arg("-fn").arg(disk).output() else {
        hs_testing::skip("e2fsck is missing");
        return false;
    };
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    true
}

/// A mount for reading, which ends with the value.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Mounts a disk, where the user may.
    pub(crate) fn new(disk: &Path, at: &Path) -> Option<Self> {
        Self::with(disk, at, "loop,ro")
    }

    /// The same with these options.
    pub(crate) fn with(disk: &Path, at: &Path, options: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            hs_testing::skip_part("mounting needs root");
            return None;
        }
        let arguments = ["-t", "ext4", "-o", options].map(OsStr::new);
        let status = Command::new("mount").args(arguments).args([disk, at]).status().expect("mount starts");
        assert!(status.success());
        Some(Self(at.to_owned()))
    }

    /// Blocks of 4 KiB that the kernel has read of the disk, by its own count
    /// (Documentation/block/stat.rst).
    pub(crate) fn blocks_read(&self) -> u64 {
        let device = std::fs::metadata(&self.0).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let counts = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap();
        let sectors: u64 = counts.split_whitespace().nth(2).unwrap().parse().unwrap();
        sectors.div_ceil(8)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The bytes that lie at a place of a file.
pub(crate) fn bytes_at(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}
