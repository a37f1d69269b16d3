//! The files of a disk, one behind the other: one for most, several where a text names them.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hs_units::{ByteRange, to_usize};
use rustix::io::Errno;

use super::blocks::{BlockDisk, Blocks, MOST_BLOCKS, read_table};
use super::descriptor::{self, Descriptor, ExtentContent};
use super::fault::VirtualDiskFault;
use super::{Format, vmdk};
use crate::source::SourceError;
use crate::source::contents::FileStamp;
use crate::source::in_folder::{folder_of, open_beneath};
use crate::source::qcow2::file::Bytes;

/// A part of the disk that a file has; what no part has is zeros.
struct Part {
    range: ByteRange,
    disk: BlockDisk<File>,
}

/// All parts, ascending.
pub(super) struct Parts {
    parts: Vec<Part>,
    disk_bytes: u64,
}

/// Files that were opened, to see whether they change.
pub(super) type Stamps = Vec<(PathBuf, File, FileStamp)>;

impl Parts {
    /// The disk of a file, and of those that it names.
    pub(super) fn open(path: &Path, file: File, format: Format) -> Result<(Self, Stamps), SourceError> {
        let failed = |fault| super::virtual_error(path, fault);
        let mut stamps = Stamps::new();
        if format != Format::VmdkText {
            let blocks = format.blocks(&file).map_err(failed)?;
            stamp(&mut stamps, path, &file)?;
            let disk_bytes = blocks.disk_bytes;
            let disk = BlockDisk::new(file, blocks).map_err(failed)?;
            let part = Part { range: ByteRange::new(0, disk_bytes), disk };
            return Ok((Self { parts: vec![part], disk_bytes }, stamps));
        }
        stamp(&mut stamps, path, &file)?;
        let (mut parts, mut disk_bytes, mut blocks_left) = (Vec::new(), 0, MOST_BLOCKS);
        let mut known = HashSet::from([identity(&file).map_err(|error| unreadable(path, error))?]);
        for extent in text(&file).and_then(|text| text.extents()).map_err(failed)? {
            let range = ByteRange::new(disk_bytes, extent.bytes);
            disk_bytes += extent.bytes;
            let Some(name) = extent.name() else { continue };
            let file = open_part(path, name, &mut known).map_err(failed)?;
            let blocks = blocks_of(&file, &extent.content, extent.bytes, &mut blocks_left);
            let of_part = |fault| VirtualDiskFault::Part { name: name.to_owned(), fault: Box::new(fault) };
            let blocks = blocks.map_err(|fault| failed(of_part(fault)))?;
            stamp(&mut stamps, &folder_of(path).join(name), &file)?;
            let disk = BlockDisk::new(file, blocks).map_err(|fault| failed(of_part(fault)))?;
            parts.push(Part { range, disk });
        }
        Ok((Self { parts, disk_bytes }, stamps))
    }

    pub(super) const fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Fills `buf` from `offset`; what no part has, and what is behind the end, is zeros.
    pub(super) fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), VirtualDiskFault> {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        let first = self.parts.partition_point(|part| part.range.end() <= offset);
        for part in self.parts[first..].iter_mut().take_while(|part| part.range.offset < end) {
            let (from, to) = (part.range.offset.max(offset), part.range.end().min(end));
            let piece = &mut buf[to_usize(from - offset)..to_usize(to - offset)];
            part.disk.read_at(from - part.range.offset, piece)?;
        }
        Ok(())
    }

    /// Where the disk may hold anything but zeros.
    pub(super) fn ranges(&self) -> Vec<ByteRange> {
        let of_part = |part: &Part| {
            let (offset, len) = (part.range.offset, part.range.len);
            let ranges = part.disk.blocks().ranges().into_iter().filter(move |range| range.offset < len);
            ranges.map(move |range| ByteRange::new(offset + range.offset, range.len.min(len - range.offset)))
        };
        self.parts.iter().flat_map(of_part).collect()
    }
}

/// The text in a file.
pub(super) fn text<B: Bytes>(from: &B) -> Result<Descriptor, VirtualDiskFault> {
    let bytes = from.len();
    if bytes > descriptor::MOST_BYTES {
        return Err(VirtualDiskFault::Damaged("descriptor"));
    }
    let text = Descriptor::new(&read_table(from, "its descriptor", 0, bytes)?);
    text.check_whole()?;
    Ok(text)
}

/// Opens a file that the text names: one that lies beside it, and that no other part has.
fn open_part(text: &Path, name: &str, known: &mut HashSet<(u64, u64)>) -> Result<File, VirtualDiskFault> {
    let refused = |reason| VirtualDiskFault::PartName { name: name.to_owned(), reason };
    if name.is_empty() || name.contains(['/', '\\', '\0']) || name == "." || name == ".." {
        return Err(refused("is no name of a file in its folder"));
    }
    let failed = |error: Errno| match error {
        Errno::XDEV => refused("does not lie in its folder"),
        error => VirtualDiskFault::PartFile { name: name.to_owned(), error: error.into() },
    };
    let file = open_beneath(text, Path::new(name)).map_err(failed)?;
    let in_part = |error| VirtualDiskFault::PartFile { name: name.to_owned(), error };
    if !file.metadata().map_err(in_part)?.is_file() {
        return Err(refused("is no regular file"));
    }
    if !known.insert(identity(&file).map_err(in_part)?) {
        return Err(refused("has another one too"));
    }
    Ok(file)
}

/// Where the blocks of a part lie. All parts together have `blocks_left` at most.
fn blocks_of(
    file: &File,
    content: &ExtentContent,
    bytes: u64,
    blocks_left: &mut u64,
) -> Result<Blocks, VirtualDiskFault> {
    if let ExtentContent::Flat { offset, .. } = content {
        if offset.checked_add(bytes).is_none_or(|end| end > Bytes::len(file)) {
            return Err(VirtualDiskFault::OutOfFile {
                what: "its end",
                offset: offset.saturating_add(bytes),
            });
        }
        return Ok(Blocks::plain(bytes, *offset));
    }
    let blocks = vmdk::blocks_of_part(file)?;
    let (disk_bytes, block_bytes) = (blocks.disk_bytes, blocks.block_bytes());
    if disk_bytes < bytes {
        return Err(VirtualDiskFault::Damaged("size"));
    }
    let left = blocks_left.checked_sub(blocks.len() as u64);
    *blocks_left = left.ok_or(VirtualDiskFault::LargeDisk { bytes: disk_bytes, block_bytes })?;
    Ok(blocks)
}

fn identity(file: &File) -> std::io::Result<(u64, u64)> {
    file.metadata().map(|found| (found.dev(), found.ino()))
}

fn unreadable(path: &Path, error: std::io::Error) -> SourceError {
    SourceError::Unreadable { path: path.to_owned(), error }
}

fn stamp(stamps: &mut Stamps, path: &Path, file: &File) -> Result<(), SourceError> {
    let failed = |error| unreadable(path, error);
    let stamp = FileStamp::of(file).map_err(failed)?;
    stamps.push((path.to_owned(), file.try_clone().map_err(failed)?, stamp));
    Ok(())
}
