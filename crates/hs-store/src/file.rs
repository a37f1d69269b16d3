//! A regular file or a block device.
//!
//! [`FileStore`] reads with `pread`, so threads do not disturb each other, through the kernel's page
//! cache. Streams have an open file of their own: the advice that a stream is sequential
//! (`POSIX_FADV_SEQUENTIAL` doubles Linux's read-ahead) belongs to the open file, whatever
//! range is given, and random reads should not inherit it.

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use hs_units::ByteRange;
use rustix::io::Errno;

use crate::open_file::{OpenFile, describe, measure};
use crate::{Sink, Store, StoreError};

/// A file or a block device, opened for reading.
#[derive(Debug)]
pub struct FileStore {
    name: String,
    file: OpenFile,
}

impl FileStore {
    /// Bytes of a stream read and handed out at once: two of Linux's default read-ahead windows,
    /// so that the kernel reads one while the sink works on the other, and little enough to
    /// stay in a core's second-level cache.
    const PIECE_BYTES: usize = 256 << 10;

    /// Opens the file or block device at `path`. Its length is what it is now; a file that grows
    /// later does not grow the store.
    ///
    /// # Errors
    /// [`StoreError::Open`] when it cannot be opened or measured, [`StoreError::NotAFile`] when it
    /// is something else than a regular file or a block device.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let failed = |source| StoreError::Open { path: path.display().to_string(), source };

        // Asked before opening: to open a named pipe would wait for a writer.
        let kind = fs::metadata(path).map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(StoreError::NotAFile { path: name, kind: describe(kind) });
        }
        let file = OpenFile::open(path).map_err(failed)?;
        Ok(Self { name, file })
    }

    /// Fills `buf` by one of the open files; when that fails, with how many bytes have come before.
    fn fill(&self, sequential: bool, offset: u64, buf: &mut [u8]) -> Result<(), (usize, StoreError)> {
        let range = ByteRange::new(offset, buf.len() as u64);
        let mut filled = 0;
        let mut handles = self.file.handles();
        while filled < buf.len() {
            let file = if sequential { &handles.sequential } else { &handles.random };
            let source = match file.read_at(&mut buf[filled..], offset + filled as u64) {
                // A block device that is gone has no bytes.
                Ok(0) if handles.is_gone() => Errno::NXIO.into(),
                // The file was longer when it was opened: another program truncated it.
                Ok(0) => {
                    let available = measure(file).unwrap_or(offset);
                    return Err((filled, StoreError::short(&self.name, range, available)));
                }
                Ok(bytes) => {
                    filled += bytes;
                    continue;
                }
                Err(source) if source.kind() == ErrorKind::Interrupted => continue,
                Err(source) => source,
            };
            let errno = Errno::from_io_error(&source);
            if !errno.is_some_and(|errno| self.file.is_back(&handles, errno)) {
                return Err((filled, StoreError::read(&self.name, range, source)));
            }
            handles = self.file.handles();
        }
        Ok(())
    }
}

impl Store for FileStore {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn close(&self) {
        self.file.close();
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        StoreError::check_range(self, ByteRange::new(offset, buf.len() as u64))?;
        self.fill(false, offset, buf).map_err(|(_, error)| error)
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        StoreError::check_range(self, range)?;
        let mut buf = vec![0; range.len.min(Self::PIECE_BYTES as u64) as usize];
        let mut offset = range.offset;
        while offset < range.end() {
            let piece_bytes = (range.end() - offset).min(buf.len() as u64);
            let piece = &mut buf[..piece_bytes as usize];
            if let Err((filled, error)) = self.fill(true, offset, piece) {
                // What lies before an unreadable sector is whole.
                let broken = filled > 0 && sink(&piece[..filled]).is_break();
                return if broken { Ok(()) } else { Err(error) };
            }
            if let ControlFlow::Break(()) = sink(piece) {
                break;
            }
            offset += piece_bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), bytes).expect("written");
        file
    }

    #[test]
    fn a_file_keeps_the_contract() {
        let make = |bytes: Vec<u8>| {
            let file = file_of(&bytes);
            // The open files outlive the name.
            FileStore::open(file.path()).expect("opened")
        };
        crate::contract::check(make, FileStore::PIECE_BYTES * 3 + 17);
    }

    #[test]
    fn what_is_no_file_is_refused_by_name() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let error = FileStore::open(directory.path()).expect_err("a directory");
        assert!(matches!(error, StoreError::NotAFile { kind: "a directory", .. }), "{error}");

        let missing = directory.path().join("missing.hsi");
        let error = FileStore::open(&missing).expect_err("missing");
        assert!(error.to_string().contains("missing.hsi"), "{error}");
        let StoreError::Open { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.kind(), ErrorKind::NotFound);

        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("a pipe");
        let error = FileStore::open(&pipe).expect_err("a pipe");
        assert!(matches!(error, StoreError::NotAFile { kind: "a named pipe", .. }), "{error}");
    }

    #[test]
    fn a_file_cut_after_opening_is_short_where_it_was_cut() {
        let file = file_of(&[7; 4096]);
        let store = FileStore::open(file.path()).expect("opened");
        file.as_file().set_len(1000).expect("cut");
        let error = store.read_at(900, &mut [0; 200]).expect_err("cut");
        assert!(matches!(error, StoreError::Short { offset: 900, len: 200, available: 1000, .. }), "{error}");
        let error = store.stream(ByteRange::new(0, 4096), &mut |_| ControlFlow::Continue(()));
        assert!(matches!(error, Err(StoreError::Short { available: 1000, .. })));
        assert_eq!(store.len(), 4096);
    }
}
