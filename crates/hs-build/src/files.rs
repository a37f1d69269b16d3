//! Files by their paths, in the ext4 file system that an image's disk holds.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::mem::take;
use std::sync::Arc;

use hs_image::{Blocks, Image};
use hs_trace::{BlockDigest, FoundFile};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, to_usize};
use parking_lot::Mutex;

use crate::ext4::{Ext4, Ext4Error, FileKind, ROOT_INODE, ReadDisk};

/// Blocks that were read since the last lookup: what the kernel will read for it too.
type BlocksRead = Arc<Mutex<Vec<(Lba, BlockDigest)>>>;

/// What the disk has under each of these absolute paths, looked up in this order; links are not followed.
/// Nothing when the disk holds no ext4 file system, or one that cannot be read: callers can do without.
#[must_use]
pub fn find_files<'p>(
    image: &Image,
    paths: impl IntoIterator<Item = &'p str>,
) -> HashMap<&'p str, FoundFile> {
    let paths: Vec<&str> = paths.into_iter().collect();
    let read = BlocksRead::default();
    let system = match Ext4::open(disk(image, Arc::clone(&read))) {
        Ok(system) => system,
        Err(error) => {
            log::info!("{}: no files are looked up: {error}", image.name());
            return HashMap::new();
        }
    };
    let wanted = paths.iter().copied().flat_map(names_of).collect();
    let mut tree = Tree { system, wanted, directories: HashMap::new() };
    let mut look_up = |path: &'p str| {
        let inode = tree.resolve(path);
        let lookup = take(&mut *read.lock());
        match inode {
            Ok(inode) => inode.map(|inode| (path, FoundFile { inode: u64::from(inode), lookup })),
            Err(error) => {
                log::info!("{}: {path} is not looked up: {error}", image.name());
                None
            }
        }
    };
    paths.into_iter().filter_map(&mut look_up).collect()
}

/// A file or directory on the disk of an image, and the blocks of the disk that hold it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFile {
    /// Its absolute path; bytes that are no UTF-8 are replaced.
    pub path: String,
    /// Its runs, in the order of the file.
    pub runs: Vec<BlockRange>,
}

/// Bytes of one listed path (`PATH_MAX`), and of all together.
const MOST_PATH_BYTES: usize = 4096;
const MOST_PATHS_BYTES: usize = 64 << 20;
/// Runs of all listed files together.
const MOST_LISTED_RUNS: usize = 4 << 20;

/// The first `most` files and directories that have blocks, by breadth; each inode under its first name.
/// What is damaged is left out, and what has no room: longer paths, and runs beyond four million.
///
/// # Errors
/// When the disk holds no ext4 file system, or its root cannot be read.
pub fn list_files(image: &Image, most: usize) -> Result<Vec<ListedFile>, Ext4Error> {
    let mut blocks = Blocks::new(image);
    let disk = ReadDisk::new(image.disk_bytes(), move |at, bytes| blocks.read_at(at, bytes));
    let mut system = Ext4::open(disk)?;
    let (mut found, mut seen) = (Vec::new(), HashSet::from([ROOT_INODE]));
    let mut open = VecDeque::from([(String::new(), ROOT_INODE)]);
    let (mut path_bytes_left, mut runs_left) = (MOST_PATHS_BYTES, MOST_LISTED_RUNS);
    // The root must be readable, so that a foreign disk is not shown as an empty one.
    system.inode(ROOT_INODE)?;
    while let Some((path, number)) = open.pop_front() {
        if found.len() >= most {
            break;
        }
        let Ok(inode) = system.inode(number) else { continue };
        if inode.kind() == FileKind::Directory {
            let mut names = Vec::new();
            let listed = system.names(&inode, &mut |name, number| {
                names.push((String::from_utf8_lossy(name).into_owned(), number));
                names.len() < most
            });
            if let Err(error) = listed {
                log::info!("{}: {path} is not listed in full: {error}", image.name());
            }
            names.retain(|(name, number)| name != "." && name != ".." && seen.insert(*number));
            for (name, number) in names {
                let bytes = path.len() + 1 + name.len();
                if bytes <= path_bytes_left.min(MOST_PATH_BYTES) {
                    path_bytes_left -= bytes;
                    open.push_back((format!("{path}/{name}"), number));
                }
            }
        }
        let runs = system.runs(&inode).unwrap_or_default();
        if runs.len() > runs_left {
            continue;
        }
        runs_left -= runs.len();
        let range = |(first, count): (u64, u64)| {
            let at = first * system.block_bytes();
            let end = (at + count * system.block_bytes()).div_ceil(BLOCK_BYTES);
            BlockRange::new(Lba::containing(at), end - Lba::containing(at).0)
        };
        let runs: Vec<BlockRange> = runs.into_iter().map(range).collect();
        if !runs.is_empty() {
            let path = if path.is_empty() { "/".to_owned() } else { path };
            found.push(ListedFile { path, runs });
        }
    }
    Ok(found)
}

fn names_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

struct Tree<'a, 'p> {
    system: Ext4<'a>,
    /// The names in all paths: no others are kept.
    wanted: HashSet<&'p str>,
    /// What is in the directories that were looked into; nothing in those that are none.
    directories: HashMap<u32, HashMap<&'p str, u32>>,
}

impl<'p> Tree<'_, 'p> {
    fn resolve(&mut self, path: &str) -> Result<Option<u32>, Ext4Error> {
        let mut number = ROOT_INODE;
        for name in names_of(path) {
            match self.entry(number, name)? {
                Some(entry) => number = entry,
                None => return Ok(None),
            }
        }
        // A program that opens the file reads its inode, and where its blocks are.
        let inode = self.system.inode(number)?;
        let _ = self.system.walk(&inode);
        Ok(Some(number))
    }

    fn entry(&mut self, directory: u32, name: &str) -> Result<Option<u32>, Ext4Error> {
        if !self.directories.contains_key(&directory) {
            // One that cannot be read is not tried again for the next path.
            self.directories.insert(directory, HashMap::new());
            let entries = self.list(directory)?;
            self.directories.insert(directory, entries);
        }
        Ok(self.directories[&directory].get(name).copied())
    }

    fn list(&mut self, directory: u32) -> Result<HashMap<&'p str, u32>, Ext4Error> {
        let inode = self.system.inode(directory)?;
        let (mut entries, wanted) = (HashMap::new(), &self.wanted);
        self.system.names(&inode, &mut |name, number| {
            let name = str::from_utf8(name).ok().and_then(|name| wanted.get(name));
            entries.extend(name.map(|name| (*name, number)));
            true
        })?;
        Ok(entries)
    }
}

/// The disk as a file system is read from it, block by block.
fn disk(image: &Image, read: BlocksRead) -> ReadDisk<'_> {
    let (mut blocks, disk_bytes) = (Blocks::new(image), image.disk_bytes());
    ReadDisk::new(disk_bytes, move |mut at, mut rest| {
        if at.checked_add(rest.len() as u64).is_none_or(|end| end > disk_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !rest.is_empty() {
            let lba = Lba::containing(at);
            let block = blocks.block(lba).map_err(io::Error::other)?;
            let from = to_usize(at - lba.byte_offset());
            let (now, later) = rest.split_at_mut(rest.len().min(to_usize(BLOCK_BYTES) - from));
            now.copy_from_slice(&block[from..from + now.len()]);
            read.lock().push((lba, BlockDigest::of(block)));
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    })
}
