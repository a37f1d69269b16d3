//! A qcow2 file, with its backing files, read as the disk that it holds.

mod fault;
pub(super) mod file;
mod header;
mod own_parts;
mod served;

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub use fault::Qcow2Fault;
use file::{Bytes, Qcow2File, Run, push};
use hs_units::{BLOCK_BYTES, ByteRange, to_usize};
pub use own_parts::{OwnPart, own_parts};
use parking_lot::Mutex;
use rustix::fs::{CWD, Mode};
pub(super) use served::{BackingName, Qcow2Store, in_blocks};

use super::SourceError;
use super::contents::FileStamp;
use super::in_folder::{FLAGS, folder_of, open_beneath};

/// The most backing files behind one another.
pub(super) const MOST_BACKING: usize = hs_format::limits::MAX_PACK_BACKING as usize;

/// A disk, and what it is made of.
pub(super) struct Qcow2Disk {
    path: PathBuf,
    disk_bytes: u64,
    files: Mutex<Vec<Layer>>,
    stamps: Vec<(PathBuf, File, FileStamp)>,
}

/// A file of the chain: the first is the disk, each has what the one before leaves out.
enum Layer {
    Qcow2(Box<Qcow2File<File>>),
    Raw(File, u64),
}

/// Whether a file begins as a qcow2 file.
pub(super) fn is_qcow2(path: &Path) -> bool {
    let mut start = [0; 4];
    File::open(path)
        .is_ok_and(|file| Bytes::read_exact_at(&file, &mut start, 0).is_ok() && start == header::MAGIC)
}

impl std::fmt::Debug for Qcow2Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qcow2Disk").field("path", &self.path).field("disk_bytes", &self.disk_bytes).finish()
    }
}

impl Qcow2Disk {
    /// Opens the disk and all that lies behind it. Backing files outside of the folder only if that is
    /// allowed.
    pub(super) fn open(path: &Path, follows_backing: bool) -> Result<Self, SourceError> {
        let mut chain = Chain { layers: Vec::new(), stamps: Vec::new(), follows_backing };
        let unreadable = |error| SourceError::Unreadable { path: path.to_owned(), error };
        let file = File::open(path).map_err(unreadable)?;
        chain.add(path, file)?;
        let Some(Layer::Qcow2(top)) = chain.layers.first() else { unreachable!("the first is qcow2") };
        let disk_bytes = top.header().disk_bytes;
        if disk_bytes == 0 {
            return Err(SourceError::Empty { path: path.to_owned() });
        }
        let Chain { layers, stamps, .. } = chain;
        Ok(Self { path: path.to_owned(), disk_bytes, files: Mutex::new(layers), stamps })
    }

    /// Size of the disk, rounded up to whole blocks; the missing bytes are zeros.
    pub(super) fn bytes(&self) -> u64 {
        self.disk_bytes.next_multiple_of(BLOCK_BYTES)
    }

    /// Size of the disk.
    pub(super) const fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Fills `buf` from `offset`.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let (len, bytes) = (buf.len() as u64, self.bytes());
        if !ByteRange::new(offset, len).fits_in(bytes) {
            return Err(SourceError::OutOfRange { path: self.path.clone(), offset, len, bytes });
        }
        read_chain(&mut self.files.lock(), offset, buf).map_err(|fault| self.failed(fault))
    }

    /// What may hold anything but zeros, in whole blocks.
    pub(super) fn data_ranges(&self) -> Result<Vec<ByteRange>, SourceError> {
        let ranges = chain_ranges(&mut self.files.lock()).map_err(|fault| self.failed(fault))?;
        Ok(in_blocks(ranges))
    }

    /// Fails if a file was written to since it was opened.
    pub(super) fn verify_unchanged(&self) -> Result<(), SourceError> {
        for (path, file, stamp) in &self.stamps {
            let now = FileStamp::of(file);
            let now = now.map_err(|error| SourceError::Unreadable { path: path.clone(), error })?;
            if now != *stamp {
                return Err(SourceError::Changed { path: path.clone() });
            }
        }
        Ok(())
    }

    fn failed(&self, fault: Qcow2Fault) -> SourceError {
        qcow2_error(&self.path, fault)
    }
}

fn qcow2_error(path: &Path, fault: Qcow2Fault) -> SourceError {
    SourceError::Qcow2 { path: path.to_owned(), fault: Box::new(fault) }
}

fn read_chain(layers: &mut [Layer], offset: u64, buf: &mut [u8]) -> Result<(), Qcow2Fault> {
    let Some((layer, behind)) = layers.split_first_mut() else {
        buf.fill(0);
        return Ok(());
    };
    let bytes = layer.bytes();
    let there = to_usize(bytes.saturating_sub(offset).min(buf.len() as u64));
    let (mut rest, missing) = buf.split_at_mut(there);
    // A backing file may be shorter than what lies on it.
    missing.fill(0);
    let mut at = offset;
    while !rest.is_empty() {
        let (run, len) = match layer {
            Layer::Qcow2(file) => file.run_at(at)?,
            Layer::Raw(..) => (Run::Stored(at), rest.len() as u64),
        };
        let (piece, later) = rest.split_at_mut(to_usize(len.min(rest.len() as u64)));
        match layer {
            Layer::Qcow2(_) if run == Run::OfBacking => read_chain(behind, at, piece)?,
            Layer::Qcow2(file) => file.read_run(run, piece)?,
            Layer::Raw(file, _) => {
                let bytes = piece.len() as u64;
                let read = Bytes::read_exact_at(file, piece, at);
                read.map_err(|error| Qcow2Fault::Read { offset: at, bytes, error })?;
            }
        }
        at += piece.len() as u64;
        rest = later;
    }
    Ok(())
}

/// Where a chain has data.
fn chain_ranges(layers: &mut [Layer]) -> Result<Vec<ByteRange>, Qcow2Fault> {
    let Some((layer, behind)) = layers.split_first_mut() else { return Ok(Vec::new()) };
    let (own, of_backing) = match layer {
        Layer::Raw(_, 0) => return Ok(Vec::new()),
        Layer::Raw(_, bytes) => return Ok(vec![ByteRange::new(0, *bytes)]),
        Layer::Qcow2(file) => file.ranges()?,
    };
    let below = chain_ranges(behind)?;
    Ok(merged(own, common(&of_backing, &below)))
}

/// What lies in both lists, which ascend.
fn common(one: &[ByteRange], other: &[ByteRange]) -> Vec<ByteRange> {
    let (mut common, mut next) = (Vec::new(), 0);
    for range in one {
        while other.get(next).is_some_and(|other| other.end() <= range.offset) {
            next += 1;
        }
        for other in other[next..].iter().take_while(|other| other.offset < range.end()) {
            let (start, end) = (range.offset.max(other.offset), range.end().min(other.end()));
            push(&mut common, start, end - start);
        }
    }
    common
}

/// Two lists without common parts as one.
fn merged(one: Vec<ByteRange>, other: Vec<ByteRange>) -> Vec<ByteRange> {
    let mut all = [one, other].concat();
    all.sort_unstable_by_key(|range| range.offset);
    let mut merged = Vec::new();
    for range in all {
        push(&mut merged, range.offset, range.len);
    }
    merged
}

impl Layer {
    fn bytes(&self) -> u64 {
        match self {
            Self::Qcow2(file) => file.header().disk_bytes,
            Self::Raw(_, bytes) => *bytes,
        }
    }
}

/// Files that are opened one after the other.
struct Chain {
    layers: Vec<Layer>,
    stamps: Vec<(PathBuf, File, FileStamp)>,
    follows_backing: bool,
}

impl Chain {
    /// Adds a qcow2 file and what lies behind it.
    fn add(&mut self, path: &Path, file: File) -> Result<(), SourceError> {
        let (mut path, mut file) = (path.to_owned(), file);
        loop {
            self.stamp(&path, &file)?;
            let opened = Qcow2File::open(file).map_err(|fault| qcow2_error(&path, fault))?;
            let backing = opened.header().backing.clone();
            self.layers.push(Layer::Qcow2(Box::new(opened)));
            let Some((name, format)) = backing else { return Ok(()) };
            let failed = |fault| qcow2_error(&path, fault);
            let (next, behind) = self.open_backing(&path, &name).map_err(failed)?;
            match self.kind(&name, format.as_deref(), &behind).map_err(failed)? {
                BackingKind::Qcow2 => (path, file) = (next, behind),
                BackingKind::Raw => {
                    self.stamp(&next, &behind)?;
                    let bytes = Bytes::len(&behind);
                    self.layers.push(Layer::Raw(behind, bytes));
                    return Ok(());
                }
            }
        }
    }

    fn stamp(&mut self, path: &Path, file: &File) -> Result<(), SourceError> {
        let unreadable = |error| SourceError::Unreadable { path: path.to_owned(), error };
        let stamp = FileStamp::of(file).map_err(unreadable)?;
        self.stamps.push((path.to_owned(), file.try_clone().map_err(unreadable)?, stamp));
        Ok(())
    }

    /// Opens the file that a header names. A stranger's header may name anything, so only what lies in the
    /// folder is opened, unless more is allowed.
    fn open_backing(&self, of: &Path, name: &[u8]) -> Result<(PathBuf, File), Qcow2Fault> {
        let shown = || String::from_utf8_lossy(name).into_owned();
        if self.layers.len() > MOST_BACKING {
            return Err(Qcow2Fault::Depth { most: MOST_BACKING });
        }
        let relative = Path::new(std::ffi::OsStr::from_bytes(name));
        // "json:…", "nbd://…" and other words of QEMU for what is no file.
        let is_word = name.split(|&byte| byte == b'/').next().is_some_and(|first| first.contains(&b':'));
        if is_word || name.contains(&0) {
            return Err(Qcow2Fault::BackingKind { name: shown(), kind: "no file".to_owned() });
        }
        let folder = folder_of(of);
        let failed = |error: rustix::io::Errno| match error {
            rustix::io::Errno::XDEV => Qcow2Fault::Outside { name: shown() },
            error => Qcow2Fault::Backing { name: shown(), error: error.into() },
        };
        let opened = if self.follows_backing {
            rustix::fs::openat(CWD, folder.join(relative), FLAGS, Mode::empty()).map(File::from)
        } else {
            open_beneath(of, relative)
        };
        let file = opened.map_err(failed)?;
        let identity = |file: &File| file.metadata().map(|found| (found.dev(), found.ino(), found.is_file()));
        let backing = |error| Qcow2Fault::Backing { name: shown(), error };
        let (device, inode, is_file) = identity(&file).map_err(backing)?;
        if !is_file {
            return Err(Qcow2Fault::BackingKind { name: shown(), kind: "no regular file".to_owned() });
        }
        let is_known = |(_, known, _): &(PathBuf, File, FileStamp)| {
            identity(known)
                .is_ok_and(|(known_device, known_inode, _)| (known_device, known_inode) == (device, inode))
        };
        if self.stamps.iter().any(is_known) {
            return Err(Qcow2Fault::Cycle { name: shown() });
        }
        Ok((folder.join(relative), file))
    }

    /// What a backing file is: what the header says, or else its first bytes.
    fn kind(&self, name: &[u8], format: Option<&[u8]>, file: &File) -> Result<BackingKind, Qcow2Fault> {
        let kind =
            |kind: String| Qcow2Fault::BackingKind { name: String::from_utf8_lossy(name).into_owned(), kind };
        match format {
            Some(b"qcow2") => Ok(BackingKind::Qcow2),
            Some(b"raw") => Ok(BackingKind::Raw),
            Some(other) => Err(kind(format!("of the format {}", String::from_utf8_lossy(other)))),
            None => {
                let mut start =
                    vec![0; to_usize(Bytes::len(file).min(hs_format::FileKind::NEEDED_BYTES as u64))];
                let read = Bytes::read_exact_at(file, &mut start, 0);
                read.map_err(|error| Qcow2Fault::Read { offset: 0, bytes: start.len() as u64, error })?;
                match hs_format::FileKind::of(&start) {
                    hs_format::FileKind::Qcow2 => Ok(BackingKind::Qcow2),
                    other @ (hs_format::FileKind::VirtualDisk | hs_format::FileKind::Cloop) => {
                        Err(kind(other.to_string()))
                    }
                    _ => Ok(BackingKind::Raw),
                }
            }
        }
    }
}

enum BackingKind {
    Qcow2,
    Raw,
}

/// Reads all of a qcow2 file in memory, backing files apart; gives the bytes of its disk. For the fuzz
/// target.
///
/// # Errors
/// When it is damaged.
#[doc(hidden)]
pub fn read_in_memory(file: &[u8], most_bytes: u64) -> Result<Vec<u8>, Qcow2Fault> {
    let mut opened = Qcow2File::open(file)?;
    let disk_bytes = opened.header().disk_bytes.min(most_bytes);
    let mut disk = vec![0; to_usize(disk_bytes)];
    let mut at = 0;
    while at < disk_bytes {
        let (run, len) = opened.run_at(at)?;
        assert!(len > 0 && at + len <= opened.header().disk_bytes, "a run of {len} bytes at {at}");
        let len = len.min(disk_bytes - at);
        opened.read_run(run, &mut disk[to_usize(at)..][..to_usize(len)])?;
        at += len;
    }
    Ok(disk)
}

impl Bytes for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        let part = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)?.get(..buf.len()));
        buf.copy_from_slice(part.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_and_joined() {
        let range = |(offset, len): (u64, u64)| ByteRange::new(offset, len);
        let ranges = |all: &[(u64, u64)]| all.iter().copied().map(range).collect::<Vec<_>>();
        let common = common(&ranges(&[(0, 10), (20, 10), (40, 5)]), &ranges(&[(5, 20), (27, 1), (29, 30)]));
        assert_eq!(common, ranges(&[(5, 5), (20, 5), (27, 1), (29, 1), (40, 5)]));
        let merged = merged(ranges(&[(10, 10), (45, 5)]), common);
        assert_eq!(merged, ranges(&[(5, 20), (27, 1), (29, 1), (40, 10)]));
    }
}
