//! A raw disk: a regular file or a block device, read as it is whatever it holds.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hs_units::{BLOCK_BYTES, ByteRange, to_usize};
use rustix::fs::SeekFrom as RawSeek;

use super::{SourceError, SourceKind};

/// An opened file read as a disk whose size is rounded up to whole blocks; the missing bytes are zeros.
#[derive(Debug)]
pub(super) struct RawDisk {
    file: File,
    path: PathBuf,
    file_bytes: u64,
    stamp: Option<Stamp>,
}

/// What changes when a regular file is written to.
#[derive(PartialEq, Eq, Debug)]
struct Stamp {
    bytes: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.size(),
            modified_ns: (metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl RawDisk {
    /// Opens the file or block device at `path` and says which of the two it is.
    ///
    /// # Errors
    /// [`SourceError::Unreadable`], [`SourceError::NotASource`], [`SourceError::Empty`].
    pub(super) fn open(path: &Path) -> Result<(Self, SourceKind), SourceError> {
        let unreadable = |error| SourceError::Unreadable { path: path.to_owned(), error };
        // Opening a FIFO would wait for a writer without end, so the kind is asked for first; O_NONBLOCK
        // covers the path being replaced in between.
        refuse_other_kinds(path, &std::fs::metadata(path).map_err(unreadable)?)?;
        let mut file = File::options()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        refuse_other_kinds(path, &metadata)?;
        let (kind, file_bytes, stamp) = if metadata.file_type().is_block_device() {
            (SourceKind::BlockDevice, file.seek(SeekFrom::End(0)).map_err(unreadable)?, None)
        } else {
            (SourceKind::RawFile, metadata.len(), Some(Stamp::of(&metadata)))
        };
        if file_bytes == 0 {
            return Err(SourceError::Empty { path: path.to_owned() });
        }
        Ok((Self { file, path: path.to_owned(), file_bytes, stamp }, kind))
    }

    /// Logical size in bytes, a multiple of [`BLOCK_BYTES`].
    pub(super) fn bytes(&self) -> u64 {
        self.file_bytes.next_multiple_of(BLOCK_BYTES)
    }

    /// Bytes of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Fills `buf` from `offset`.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let len = buf.len() as u64;
        if !ByteRange::new(offset, len).fits_in(self.bytes()) {
            return Err(SourceError::OutOfRange {
                path: self.path.clone(),
                offset,
                len,
                bytes: self.bytes(),
            });
        }
        let stored = to_usize(self.file_bytes.saturating_sub(offset).min(len));
        let (stored, padding) = buf.split_at_mut(stored);
        padding.fill(0);
        self.file.read_exact_at(stored, offset).map_err(|error| match error.kind() {
            // The size was known when it was opened: an end before it means that the file was truncated.
            io::ErrorKind::UnexpectedEof => SourceError::Changed { path: self.path.clone() },
            _ => SourceError::Read { path: self.path.clone(), offset, len, error },
        })
    }

    /// The ranges that are not holes, ascending, disjoint, widened to whole blocks. One range that is the
    /// whole disk where the file system or device cannot tell.
    pub(super) fn data_ranges(&self) -> Result<Vec<ByteRange>, SourceError> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        let mut position = 0;
        while position < self.file_bytes {
            let start = match rustix::fs::seek(&self.file, RawSeek::Data(position)) {
                Ok(start) if start < self.file_bytes => start,
                // No data from here to the end.
                Ok(_) | Err(rustix::io::Errno::NXIO) => break,
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
                    return Ok(vec![ByteRange::new(0, self.bytes())]);
                }
                Err(error) => return Err(self.read_error(position, error)),
            };
            let end = rustix::fs::seek(&self.file, RawSeek::Hole(start))
                .map_err(|error| self.read_error(start, error))?
                .clamp(start + 1, self.file_bytes);
            push_widened(&mut ranges, start, end);
            position = end;
        }
        Ok(ranges)
    }

    /// Fails if a raw file was written to since it was opened. A block device cannot be checked so.
    pub(super) fn verify_unchanged(&self) -> Result<(), SourceError> {
        let Some(stamp) = &self.stamp else { return Ok(()) };
        let metadata = self
            .file
            .metadata()
            .map_err(|error| SourceError::Unreadable { path: self.path.clone(), error })?;
        if Stamp::of(&metadata) == *stamp {
            Ok(())
        } else {
            Err(SourceError::Changed { path: self.path.clone() })
        }
    }

    fn read_error(&self, offset: u64, error: rustix::io::Errno) -> SourceError {
        SourceError::Read { path: self.path.clone(), offset, len: 0, error: error.into() }
    }
}

/// Adds `start..end` widened to whole blocks, joined to the last range where they touch.
fn push_widened(ranges: &mut Vec<ByteRange>, start: u64, end: u64) {
    let start = start - start % BLOCK_BYTES;
    let end = end.next_multiple_of(BLOCK_BYTES);
    match ranges.last_mut() {
        Some(last) if last.end() >= start => last.len = end - last.offset,
        _ => ranges.push(ByteRange::new(start, end - start)),
    }
}

fn refuse_other_kinds(path: &Path, metadata: &Metadata) -> Result<(), SourceError> {
    let file_type = metadata.file_type();
    if file_type.is_file() || file_type.is_block_device() {
        return Ok(());
    }
    let kind = if file_type.is_char_device() {
        "character device"
    } else if file_type.is_fifo() {
        "FIFO"
    } else if file_type.is_socket() {
        "socket"
    } else {
        "directory"
    };
    Err(SourceError::NotASource { path: path.to_owned(), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_after_widening_are_joined() {
        let mut ranges = Vec::new();
        push_widened(&mut ranges, 512, 1024);
        push_widened(&mut ranges, 3584, 4608);
        push_widened(&mut ranges, 20_480, 20_481);
        assert_eq!(ranges, [ByteRange::new(0, 8192), ByteRange::new(20_480, 4096)]);
    }
}
