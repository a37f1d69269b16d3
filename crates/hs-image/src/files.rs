//! Files by their paths, in the ext4 file system that an image's disk holds.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ext4::{Checksums, Enhanced, Options, SuperBlock};
use hs_trace::{BlockDigest, FoundFile};
use hs_units::{BLOCK_BYTES, Lba};
use parking_lot::Mutex;
use positioned_io::ReadAt;

use crate::{Blocks, Image};

/// A directory with more bytes is not looked into: its size is the image's claim, and it is read as a whole.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;
/// The inode of the topmost directory.
const ROOT: u32 = 2;

/// What the disk has under each of these absolute paths, looked up in this order; links are not followed. Nothing when the
/// disk holds no ext4 file system, or one that cannot be read: whoever asks can do without.
#[must_use]
pub fn find_files<'p>(
    image: &Image,
    paths: impl IntoIterator<Item = &'p str>,
) -> HashMap<&'p str, FoundFile> {
    let read = Mutex::default();
    let disk = Disk { blocks: Mutex::new(Blocks::new(image)), bytes: image.disk_bytes(), read: &read };
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
        let mut look_up = |path: &'p str| {
            let inode = tree.resolve(path);
            let lookup = std::mem::take(&mut *read.lock());
            inode.map(|inode| (path, FoundFile { inode: u64::from(inode), lookup }))
        };
        paths.into_iter().filter_map(&mut look_up).collect()
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
        let number = names.try_fold(ROOT, |inode, name| self.entry(inode, name))?;
        // Whoever opens the file reads its inode, and where its blocks are.
        let inode = self.system.load_inode(number).ok()?;
        let _ = self.system.open(&inode);
        Some(number)
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
    /// Blocks that were read since the last lookup: what the kernel will read for it too.
    read: &'a Mutex<Vec<(Lba, BlockDigest)>>,
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
        self.read.lock().push((lba, BlockDigest::of(block)));
        let len = into.len().min(BLOCK_BYTES as usize - from).min((self.bytes - at) as usize);
        into[..len].copy_from_slice(&block[from..from + len]);
        Ok(len)
    }
}
