//! The files of a list: found by their handles, or by their paths beneath the mount point, without trust in
//! the list.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path};

use hs_accelerate::{FileIdentity, FileRun};
use hs_linux::{FileExtent, FileHandle, file_extents};
use hs_units::BLOCK_BYTES;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use serde::Serialize;

use crate::layout::{FileLayout, PageRun, Piece};
use crate::plan::{PlannedFile, Wanted};
use crate::volume::Volume;

/// Why the blocks of a file stay where they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftBecause {
    /// The path leads to no file of this file system, or over a symbolic link.
    Missing,
    /// Another file has the path now, or none has the handle.
    Changed,
    /// It is a directory, a device or something else.
    NotAFile,
    /// It is a program that runs, or swap space.
    Running,
    /// It is immutable, append-only or sealed (verity).
    Immutable,
    /// The file system encrypts it.
    Encrypted,
    /// Its data is in its inode.
    InInode,
    /// The recorded pages are holes, were never written, or lie behind its end.
    Empty,
    /// Its recorded pages alone would leave it in too many fragments.
    WouldFragment,
    /// The free space is in pieces too small for it.
    NoRoom,
    /// The kernel refuses: data that is journalled, a file without extents, a bad sector.
    Refused,
}

/// A file of the list.
pub(crate) struct Listed {
    path: String,
    identity: Option<FileIdentity>,
    inode: u64,
    pub(crate) left: Option<LeftBecause>,
}

/// The files of a list, each once, and the runs by their numbers.
pub(crate) struct List {
    pub(crate) files: Vec<Listed>,
    pub(crate) wanted: Vec<Wanted>,
}

impl List {
    /// Files with several names are one file.
    pub(crate) fn new(runs: &[FileRun]) -> Self {
        let mut numbers = HashMap::new();
        let mut list = Self { files: Vec::new(), wanted: Vec::with_capacity(runs.len()) };
        for run in runs {
            let file = *numbers.entry(run.inode).or_insert_with(|| {
                let (path, identity) = (run.path.clone(), run.identity.clone());
                list.files.push(Listed { path, identity, inode: run.inode, left: None });
                list.files.len() - 1
            });
            let pages = PageRun { first: run.first_page, pages: run.pages };
            list.wanted.push(Wanted { file, pages });
        }
        list
    }

    /// Where the files lie now. A file that cannot move says why.
    pub(crate) fn look(&mut self, volume: &Volume) -> Vec<PlannedFile> {
        let look = |file: &mut Listed| {
            let (layout, left) = file.look(volume);
            file.left = left;
            PlannedFile { layout, can_move: left.is_none() }
        };
        let mut files: Vec<_> = self.files.iter_mut().map(look).collect();
        self.note_empty(&mut files);
        files
    }

    /// Notes files none of whose recorded pages has a place.
    fn note_empty(&mut self, files: &mut [PlannedFile]) {
        let mut has_place = vec![false; files.len()];
        for run in &self.wanted {
            has_place[run.file] |= files[run.file].layout.inside(run.pages).next().is_some();
        }
        for ((listed, file), has_place) in self.files.iter_mut().zip(files).zip(has_place) {
            if !has_place && listed.left.is_none() {
                (listed.left, file.can_move) = (Some(LeftBecause::Empty), false);
            }
        }
    }
}

impl Listed {
    /// For people.
    pub(crate) fn name(&self) -> String {
        // The kernel has no path of a file whose names it has forgotten.
        let is_known = self.path.len() > 1;
        if is_known { self.path.clone() } else { format!("inode {}", self.inode) }
    }

    fn look(&self, volume: &Volume) -> (FileLayout, Option<LeftBecause>) {
        let nowhere = |because| (FileLayout::default(), Some(because));
        let found = match self.find(volume) {
            Ok(found) => found,
            Err(because) => return nowhere(because),
        };
        let (file, why_not) = match open_for_writing(&found) {
            Ok(file) => (file, None),
            Err(errno) => match reopen(&found, OFlags::RDONLY) {
                Ok(file) => (file, Some(why_not_writable(&found, errno))),
                Err(_) => return nowhere(LeftBecause::Refused),
            },
        };
        let Ok(extents) = file_extents(&file, true) else { return nowhere(LeftBecause::Refused) };
        let left = match extents.first() {
            Some(first) if first.is_inline() => Some(LeftBecause::InInode),
            Some(first) if first.is_encrypted() => Some(LeftBecause::Encrypted),
            _ => why_not,
        };
        (layout_of(&extents), left)
    }

    /// The file without opening it: a device could do something when it is opened.
    fn find(&self, volume: &Volume) -> Result<OwnedFd, LeftBecause> {
        let found = match &self.identity {
            Some(FileIdentity { kind, handle }) => {
                let handle = FileHandle { kind: *kind, bytes: handle.clone() };
                hs_linux::find_by_handle(&volume.root, &handle).map_err(|_| LeftBecause::Changed)?
            }
            None => self.find_by_path(volume).ok_or(LeftBecause::Missing)?,
        };
        let stat = rustix::fs::fstat(&found).map_err(|_| LeftBecause::Missing)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(LeftBecause::NotAFile);
        }
        if stat.st_ino != self.inode {
            return Err(LeftBecause::Changed);
        }
        Ok(found)
    }

    fn find_by_path(&self, volume: &Volume) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        rustix::fs::openat2(&volume.root, beneath(&self.path)?, flags, Mode::empty(), resolve).ok()
    }

    /// The file, open for what moves its blocks.
    pub(crate) fn open(&self, volume: &Volume) -> Result<File, LeftBecause> {
        let found = self.find(volume)?;
        open_for_writing(&found).map_err(|errno| why_not_writable(&found, errno))
    }
}

/// A path of a list, from the root of the file system.
fn beneath(path: &str) -> Option<&Path> {
    let path = Path::new(path).strip_prefix("/").ok()?;
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (is_plain && !path.as_os_str().is_empty()).then_some(path)
}

/// The very file that was found, whatever its path means by now.
fn reopen(found: &OwnedFd, flags: OFlags) -> Result<File, Errno> {
    let path = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOATIME;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}

fn open_for_writing(found: &OwnedFd) -> Result<File, Errno> {
    reopen(found, OFlags::RDWR)
}

fn why_not_writable(found: &OwnedFd, errno: Errno) -> LeftBecause {
    let said = statx(found, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let attributes = said.map_or(StatxAttributes::empty(), |said| said.stx_attributes);
    match errno {
        Errno::TXTBSY => LeftBecause::Running,
        _ if attributes.contains(StatxAttributes::ENCRYPTED) => LeftBecause::Encrypted,
        Errno::PERM | Errno::ACCESS => LeftBecause::Immutable,
        _ => LeftBecause::Refused,
    }
}

/// Where pages lie that have a place. With blocks smaller than a page, a page belongs to the extent that
/// has its first byte.
pub(crate) fn layout_of(extents: &[FileExtent]) -> FileLayout {
    let in_place = extents.iter().filter(|extent| extent.is_in_place());
    FileLayout::new(in_place.filter_map(|extent| piece_of(extent, u64::div_ceil)))
}

/// The pages of an extent; `count` says what of a page at its end counts. `None` when no page begins in it.
pub(crate) fn piece_of(extent: &FileExtent, count: fn(u64, u64) -> u64) -> Option<Piece> {
    let skip = extent.logical.wrapping_neg() % BLOCK_BYTES;
    let pages = count(extent.length.checked_sub(skip)?, BLOCK_BYTES);
    let first = extent.logical.checked_add(skip)? / BLOCK_BYTES;
    let place = extent.physical.checked_add(skip)?;
    (pages > 0).then_some(Piece { pages: PageRun { first, pages }, place })
}
