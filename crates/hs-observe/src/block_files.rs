//! Which file pages the blocks of a recording are.
//!
//! The tree is walked once and every regular file is asked where it lies ([`file_extents`]). That reads the
//! inode of every file: it is meant for the time after a recording, never for a start.
//!
//! What is not found: directories, symbolic links and other metadata (their pages belong to the block
//! device), data in the inode itself, and data that is compressed or shifted against the page grid.

use std::collections::HashSet;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use hs_linux::{FileExtent, LinuxError, file_extents, without_descriptors};
use hs_trace::{BlockSet, FileRun, FileUse, limits};
use hs_units::{BLOCK_BYTES, BlockRange, Lba};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

/// Bytes of directory entries that one call may bring.
const DIRECTORY_BYTES: usize = 32 << 10;

/// The files of the file system mounted at `mount_point` that hold at least one of `blocks`, ordered by
/// path, each with all of its pages, those included whose blocks are not in the set: how long a file is,
/// and where the rest of it lies, decides what the kernel reads ahead in it. `blocks` are those of the
/// device that is mounted, counted from its beginning. Every inode comes once, by one of its names; file
/// systems mounted on top are left out. A name that is not UTF-8 is shown with replacement characters.
///
/// A file system without block addresses (`FIEMAP` is refused, or the addresses are not those of the one
/// device, as on Btrfs) gives an empty list.
///
/// # Errors
/// [`LinuxError::Io`] when the mount point or a directory cannot be read.
pub fn map(mount_point: &Path, blocks: &BlockSet) -> Result<Vec<FileUse>, LinuxError> {
    // The disk may be one that this process serves.
    let (found, unopened) = without_descriptors("walking", || walk(mount_point, blocks))??;
    for (path, errno) in unopened {
        log::debug!("{path} is not mapped: {errno}");
    }
    Ok(found)
}

/// Also gives the files that could not be opened.
fn walk(mount_point: &Path, blocks: &BlockSet) -> Result<(Vec<FileUse>, Vec<Unopened>), LinuxError> {
    let failed = |action| LinuxError::io(action, mount_point);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(mount_point, flags, Mode::empty()).map_err(failed("open"))?;
    let device = rustix::fs::fstat(&root).map_err(failed("look at"))?.st_dev;
    let kind = rustix::fs::fstatfs(&root).map_err(failed("look at"))?.f_type;
    if blocks.is_empty() || kind == libc::BTRFS_SUPER_MAGIC {
        return Ok(Default::default());
    }
    let mut walk = Walk {
        device,
        blocks,
        seen: HashSet::new(),
        directories: vec![Vec::new()],
        found: Vec::new(),
        unopened: Vec::new(),
    };
    let mut buffer = Vec::with_capacity(DIRECTORY_BYTES);
    while let Some(path) = walk.directories.pop() {
        let Some(directory) = open_directory(root.as_fd(), &path).map_err(failed("walk"))? else { continue };
        match walk.directory(directory, &path, buffer.spare_capacity_mut()) {
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => return Ok(Default::default()),
            other => other.map_err(failed("read a directory of"))?,
        }
    }
    walk.found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok((walk.found, walk.unopened))
}

/// Opens a directory of the walk; `None` when it is another file system's or its path too long.
fn open_directory(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let relative: &[u8] = if path.is_empty() { b"." } else { path };
    match rustix::fs::openat2(root, relative, flags, Mode::empty(), resolve) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::XDEV | Errno::NAMETOOLONG) => Ok(None),
        Err(errno) => Err(errno),
    }
}

struct Walk<'a> {
    device: u64,
    blocks: &'a BlockSet,
    /// Inodes that were asked; a file with several names is asked once.
    seen: HashSet<u64>,
    /// Directories still to be read, without the slash in front.
    directories: Vec<Vec<u8>>,
    found: Vec<FileUse>,
    unopened: Vec<Unopened>,
}

/// A file that could not be opened, and why.
type Unopened = (String, Errno);

impl Walk<'_> {
    fn is_used(&self, blocks: BlockRange) -> bool {
        let mut used = false;
        self.blocks.split(blocks, |_, inside| used |= inside);
        used
    }

    fn directory(
        &mut self,
        directory: OwnedFd,
        path: &[u8],
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<(), Errno> {
        let mut entries = RawDir::new(&directory, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let (mut kind, inode) = (entry.file_type(), entry.ino());
            if kind == FileType::Unknown {
                let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                kind = FileType::from_raw_mode(stat.st_mode);
            }
            let path = || {
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                [path, slash, name.to_bytes()].concat()
            };
            if kind == FileType::Directory {
                self.directories.push(path());
            } else if kind == FileType::RegularFile && self.seen.insert(inode) {
                self.file(directory.as_fd(), name, path)?;
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        path: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // A file that cannot be opened (a mount on top of it, a damaged inode) is no reason to lose the
        // rest.
        let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(errno) => {
                self.unopened.push((String::from_utf8_lossy(&path()).into_owned(), errno));
                return Ok(());
            }
        };
        let runs = match file_extents(&file, false) {
            Ok(extents) => runs_of(&pieces(&extents)),
            // A broken extent tree, which the file system has already complained about.
            Err(Errno::IO | Errno::UCLEAN) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if !runs.iter().any(|run| self.is_used(run.blocks)) {
            return Ok(());
        }
        let stat = rustix::fs::fstat(&file)?;
        let path = format!("/{}", String::from_utf8_lossy(&path()));
        // A file may have another one mounted on top of it.
        if stat.st_dev == self.device && path.len() as u64 <= limits::MAX_PATH_BYTES {
            self.found.push(FileUse { path, inode: stat.st_ino, runs });
        }
        Ok(())
    }
}

/// Bytes of a file that lie in one piece on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    logical: u64,
    physical: u64,
    length: u64,
    /// Nothing of the file comes behind it.
    last: bool,
}

/// Every extent that can be read at its address, neighbours joined, ascending.
fn pieces(extents: &[FileExtent]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for extent in extents.iter().filter(|extent| extent.is_in_place()) {
        let FileExtent { logical, physical, length, .. } = *extent;
        let piece = Piece { logical, physical, length, last: extent.is_last() };
        match pieces.last_mut().filter(|before| continues(before, &piece)) {
            Some(before) => (before.length, before.last) = (before.length + piece.length, piece.last),
            None => pieces.push(piece),
        }
    }
    pieces
}

fn continues(before: &Piece, piece: &Piece) -> bool {
    before.logical.checked_add(before.length) == Some(piece.logical)
        && before.physical.checked_add(before.length) == Some(piece.physical)
}

/// Pages of a file, and near which block of the device they lie.
pub type PagePlaces = FileRun;

/// Where the pages of an open file lie on its device: the block that has the first byte of each. Those that
/// have no place of their own, such as small files in their inodes, are left out. With file system blocks
/// smaller than a page it says in which order pages lie, and not that they are blocks of the device.
///
/// # Errors
/// The kernel's: the file system may not know (`EOPNOTSUPP`, `ENOTTY`).
pub fn places(file: impl AsFd) -> Result<Vec<PagePlaces>, Errno> {
    file_extents(file, false).map(|extents| places_of(&pieces(&extents)))
}

fn places_of(pieces: &[Piece]) -> Vec<PagePlaces> {
    let place = |piece: &Piece| {
        // The page in whose middle a piece begins lies where the piece before it does.
        let skip = piece.logical.wrapping_neg() % BLOCK_BYTES;
        let count = piece.length.checked_sub(skip)?.div_ceil(BLOCK_BYTES);
        let (logical, physical) = (piece.logical.checked_add(skip)?, piece.physical.checked_add(skip)?);
        physical.checked_add(piece.length)?;
        let blocks = BlockRange::new(Lba::containing(physical), count);
        (count > 0).then_some(FileRun { page: logical / BLOCK_BYTES, blocks })
    };
    pieces.iter().filter_map(place).collect()
}

/// The pages that are blocks of the device.
fn runs_of(pieces: &[Piece]) -> Vec<FileRun> {
    let mut runs = Vec::new();
    for piece in pieces {
        // With file system blocks smaller than a page, an extent may begin or end inside of one. Such a
        // page is no single block of the device, save the file's last one, which just ends early.
        let skip = piece.logical.wrapping_neg() % BLOCK_BYTES;
        let Some(length) = piece.length.checked_sub(skip) else { continue };
        let count = if piece.last { length.div_ceil(BLOCK_BYTES) } else { length / BLOCK_BYTES };
        let (logical, physical) = (piece.logical + skip, piece.physical.saturating_add(skip));
        if count == 0 || !physical.is_multiple_of(BLOCK_BYTES) || physical.checked_add(piece.length).is_none()
        {
            continue;
        }
        let blocks = BlockRange::new(Lba::containing(physical), count);
        runs.push(FileRun { page: logical / BLOCK_BYTES, blocks });
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(logical: u64, physical: u64, length: u64, last: bool) -> Piece {
        Piece { logical, physical, length, last }
    }

    fn runs(pieces: &[Piece]) -> Vec<(u64, u64, u64)> {
        let runs = runs_of(pieces);
        runs.iter().map(|run| (run.page, run.blocks.start.0, run.blocks.count)).collect()
    }

    #[test]
    fn small_blocks_count_only_where_a_page_is_a_block() {
        assert_eq!(runs(&[piece(0, 8192, 1024, true)]), [(0, 2, 1)], "the last page ends early");
        assert_eq!(runs(&[piece(0, 8192, 5120, false)]), [(0, 2, 1)], "the second page goes on elsewhere");
        assert_eq!(
            runs(&[piece(1024, 8192 + 1024, 7168, false)]),
            [(1, 3, 1)],
            "the first page is not whole"
        );
        assert_eq!(runs(&[piece(0, 1024, 8192, true)]), [], "shifted against the page grid");
        assert_eq!(runs(&[piece(1024, 1024, 1024, true)]), []);
    }

    #[test]
    fn each_page_lies_where_its_first_byte_does() {
        let places = |pieces: &[Piece]| -> Vec<_> {
            let places = places_of(pieces);
            places.iter().map(|run| (run.page, run.blocks.start.0, run.blocks.count)).collect()
        };
        assert_eq!(places(&[piece(0, 8192, 8192, true)]), [(0, 2, 2)]);
        assert_eq!(places(&[piece(0, 5120, 9216, true)]), [(0, 1, 3)], "shifted against the page grid");
        // The second page begins in the first piece, and ends in the second.
        let two = [piece(0, 40_960, 5120, false), piece(5120, 1024, 7168, true)];
        assert_eq!(places(&two), [(0, 10, 2), (2, 1, 1)]);
        assert_eq!(places(&[piece(1024, 8192, 1024, true)]), [], "no page begins there");
        assert_eq!(places(&[piece(u64::MAX - 1, 0, 1, false), piece(0, u64::MAX - 5, 8192, true)]), []);
    }

    #[test]
    fn whole_blocks_lie_where_their_pages_do() {
        let pieces = [piece(0, 40_960, 12_288, false), piece(16_384, 8192, 4096, true)];
        assert_eq!(places_of(&pieces), runs_of(&pieces));
    }

    #[test]
    fn absurd_addresses_are_left_out() {
        assert_eq!(runs(&[piece(0, u64::MAX - 4095, 8192, true)]), []);
        assert_eq!(runs(&[piece(u64::MAX - 1, 0, 1, false)]), []);
    }
}
