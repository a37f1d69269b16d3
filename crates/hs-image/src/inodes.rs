//! Inode numbers of paths, in the ext4 file system that an image's disk holds.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ext4::{Checksums, Enhanced, Options, SuperBlock};
use hs_units::{BLOCK_BYTES, Lba};
use parking_lot::Mutex;
use positioned_io::ReadAt;

use crate::{Blocks, Image};

/// A directory with more bytes is not looked into: its size is the image's claim, and it is read as a whole.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;
/// The inode of the topmost directory.
const ROOT: u32 = 2;

/// The inode number of each of these absolute paths that the disk has; links are not followed. Nothing when the disk holds
/// no ext4 file system, or one that cannot be read: whoever asks can do without.
#[must_use]
pub fn find_inodes<'p>(image: &Image, paths: impl IntoIterator<Item = &'p str>) -> HashMap<&'p str, u64> {
    let disk = Disk { blocks: Mutex::new(Blocks::new(image)), bytes: image.disk_bytes() };
    // The library is made for whole file systems, and this one may be anything: a digest proves who made
    // it, not that it is right.
    let found = catch_unwind(AssertUnwindSafe(|| {
        let options = Options { checksums: Checksums::Enabled };
        let mut tree = match SuperBlock::new_with_options(disk, &options) {
            Ok(system) => Tree { system, directories: HashMap::new() },
            Err(error) => {
                log::info!("{}: no files are looked up: {error:#}", image.name());
                return HashMap::new();
            }
        };
        let with_inode = |path: &'p str| tree.resolve(path).map(|inode| (path, u64::from(inode)));
        paths.into_iter().filter_map(with_inode).collect()
    }));
    found.unwrap_or_else(|_| {
        log::warn!("{}: its file system is not a whole one: no files are looked up", image.name());
        HashMap::new()
    })
}

struct Tree<'a> {
    system: SuperBlock<Disk<'a>>,
    /// What is in the directories that were looked into; nothing in those that are none.
    directories: HashMap<u32, HashMap<String, u32>>,
}

impl Tree<'_> {
    fn resolve(&mut self, path: &str) -> Option<u32> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(ROOT, |inode, name| self.entry(inode, name))
    }

    fn entry(&mut self, directory: u32, name: &str) -> Option<u32> {
        if !self.directories.contains_key(&directory) {
            let entries = self.list(directory).unwrap_or_default();
            self.directories.insert(directory, entries);
        }
        self.directories[&directory].get(name).copied()
    }

    fn list(&self, directory: u32) -> Option<HashMap<String, u32>> {
        let inode = self.system.load_inode(directory).ok()?;
        if inode.stat.size > MAX_DIRECTORY_BYTES {
            return None;
        }
        match self.system.enhance(&inode).ok()? {
            Enhanced::Directory(entries) => {
                Some(entries.into_iter().map(|entry| (entry.name, entry.inode)).collect())
            }
            _ => None,
        }
    }
}

/// The disk as the library reads it.
struct Disk<'a> {
    blocks: Mutex<Blocks<'a>>,
    bytes: u64,
}

impl ReadAt for Disk<'_> {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        if at >= self.bytes || into.is_empty() {
            return Ok(0);
        }
        let lba = Lba::containing(at);
        let mut blocks = self.blocks.lock();
        let block = blocks.block(lba).map_err(io::Error::other)?;
        let from = (at - lba.byte_offset()) as usize;
        let len = into.len().min(BLOCK_BYTES as usize - from).min((self.bytes - at) as usize);
        into[..len].copy_from_slice(&block[from..from + len]);
        Ok(len)
    }
}
