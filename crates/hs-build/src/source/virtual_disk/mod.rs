//! A file that holds a disk of another virtual machine (VMDK, VDI, VHD or VHDX), or names those that do, read
//! as that disk.

mod blocks;
mod descriptor;
mod fault;
mod parts;
mod vdi;
mod vhd;
mod vhdx;
mod vmdk;

use std::fs::File;
use std::path::{Path, PathBuf};

use blocks::{BlockDisk, Blocks, read};
pub use fault::VirtualDiskFault;
use hs_units::{BLOCK_BYTES, ByteRange, to_usize};
use parking_lot::Mutex;
use parts::{Parts, Stamps};

use super::SourceError;
use super::contents::FileStamp;
use super::qcow2::file::Bytes;
use super::qcow2::in_blocks;

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Vmdk,
    /// The text of a VMDK disk, which lies in other files.
    VmdkText,
    Vdi,
    Vhd,
    Vhdx,
}

impl Format {
    /// What a file is, by its first bytes; of a fixed VHD, by its last.
    fn of<B: Bytes>(from: &B) -> Option<Self> {
        let mut start = [0; vdi::MAGIC_AT + vdi::MAGIC.len()];
        let there = to_usize(from.len().min(start.len() as u64));
        read(from, 0, &mut start[..there]).ok()?;
        match () {
            () if start.starts_with(vmdk::MAGIC) => Some(Self::Vmdk),
            () if start.starts_with(descriptor::MAGIC) => Some(Self::VmdkText),
            () if start.starts_with(vhdx::MAGIC) => Some(Self::Vhdx),
            () if start[vdi::MAGIC_AT..] == *vdi::MAGIC => Some(Self::Vdi),
            () if start.starts_with(vhd::MAGIC) || vhd::footer(from).is_some() => Some(Self::Vhd),
            () => None,
        }
    }

    /// Where the blocks of a disk lie that is in one file.
    fn blocks<B: Bytes>(self, from: &B) -> Result<Blocks, VirtualDiskFault> {
        match self {
            Self::Vmdk => vmdk::blocks(from),
            Self::VmdkText => Err(VirtualDiskFault::Unread("is in other files")),
            Self::Vdi => vdi::blocks(from),
            Self::Vhd => vhd::blocks(from),
            Self::Vhdx => vhdx::blocks(from),
        }
    }
}

/// A disk, and the files that it lies in.
pub(super) struct VirtualDisk {
    path: PathBuf,
    disk_bytes: u64,
    parts: Mutex<Parts>,
    files: Stamps,
}

impl std::fmt::Debug for VirtualDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtualDisk")
            .field("path", &self.path)
            .field("disk_bytes", &self.disk_bytes)
            .finish_non_exhaustive()
    }
}

impl VirtualDisk {
    /// Opens the disk in a file; nothing when it is of none of the formats.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, SourceError> {
        let file =
            File::open(path).map_err(|error| SourceError::Unreadable { path: path.to_owned(), error })?;
        let Some(format) = Format::of(&file) else { return Ok(None) };
        let (parts, files) = Parts::open(path, file, format)?;
        let disk_bytes = parts.disk_bytes();
        if disk_bytes == 0 {
            return Err(SourceError::Empty { path: path.to_owned() });
        }
        Ok(Some(Self { path: path.to_owned(), disk_bytes, parts: Mutex::new(parts), files }))
    }

    /// Size of the disk.
    pub(super) const fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Fills `buf` from `offset`.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let (len, bytes) = (buf.len() as u64, self.disk_bytes.next_multiple_of(BLOCK_BYTES));
        if !ByteRange::new(offset, len).fits_in(bytes) {
            return Err(SourceError::OutOfRange { path: self.path.clone(), offset, len, bytes });
        }
        self.parts.lock().read_at(offset, buf).map_err(|fault| virtual_error(&self.path, fault))
    }

    /// What may hold anything but zeros, in whole blocks.
    pub(super) fn data_ranges(&self) -> Vec<ByteRange> {
        in_blocks(self.parts.lock().ranges())
    }

    /// Fails if a file was written to since it was opened.
    pub(super) fn verify_unchanged(&self) -> Result<(), SourceError> {
        for (path, file, stamp) in &self.files {
            let now = FileStamp::of(file);
            let now = now.map_err(|error| SourceError::Unreadable { path: path.clone(), error })?;
            if now != *stamp {
                return Err(SourceError::Changed { path: path.clone() });
            }
        }
        Ok(())
    }
}

fn virtual_error(path: &Path, fault: VirtualDiskFault) -> SourceError {
    SourceError::VirtualDisk { path: path.to_owned(), fault: Box::new(fault) }
}

/// Reads the beginning of the disk in a file in memory. For the fuzz target.
///
/// # Errors
/// When it is damaged, or of no known format.
#[doc(hidden)]
pub fn read_in_memory(file: &[u8], most_bytes: u64) -> Result<Vec<u8>, VirtualDiskFault> {
    let format = Format::of(&file).ok_or(VirtualDiskFault::Damaged("beginning"))?;
    if format == Format::VmdkText {
        return parts::text(&file)?.extents().map(|_| Vec::new());
    }
    let blocks = format.blocks(&file)?;
    let (disk_bytes, ranges) = (blocks.disk_bytes, blocks.ranges());
    let is_ascending = ranges.windows(2).all(|pair| pair[0].end() < pair[1].offset);
    assert!(is_ascending && ranges.last().is_none_or(|last| last.end() <= disk_bytes), "ranges");
    let mut disk = vec![0; to_usize(disk_bytes.min(most_bytes))];
    BlockDisk::new(file, blocks)?.read_at(0, &mut disk)?;
    Ok(disk)
}
