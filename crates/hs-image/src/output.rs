//! A file that gets its name only when it is complete.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::ImageError;

/// How far a long operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, such as "compressing".
    pub stage: &'static str,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// A temporary file beside `path` that replaces it, or vanishes.
pub(crate) struct Output {
    path: PathBuf,
    file: NamedTempFile,
    at: u64,
}

impl Output {
    pub(crate) fn create(path: &Path) -> Result<Self, ImageError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".headstart-")
            .suffix(".part")
            .permissions(std::fs::Permissions::from_mode(0o644))
            .tempfile_in(folder)
            .map_err(ImageError::io(path, "create a file beside it"))?;
        Ok(Self { path: path.to_owned(), file, at: 0 })
    }

    /// Where the next bytes go.
    pub(crate) const fn position(&self) -> u64 {
        self.at
    }

    /// The name that the file will get.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        self.file.as_file_mut().write_all(bytes).map_err(ImageError::io(&self.path, "write"))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn seek(&mut self, offset: u64) -> Result<(), ImageError> {
        let seeked = self.file.as_file_mut().seek(SeekFrom::Start(offset));
        seeked.map_err(ImageError::io(&self.path, "seek"))?;
        self.at = offset;
        Ok(())
    }

    /// Copies `len` bytes of `from` to the current position, without passing them through this
    /// process where the file systems allow it.
    pub(crate) fn copy_from(&mut self, from: &File, offset: u64, len: u64) -> Result<(), ImageError> {
        let mut cursor = from;
        cursor.seek(SeekFrom::Start(offset)).map_err(ImageError::io(&self.path, "seek"))?;
        let mut limited = io::Read::take(from, len);
        let copied = io::copy(&mut limited, self.file.as_file_mut())
            .map_err(ImageError::io(&self.path, "copy the cold region"))?;
        if copied != len {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(ImageError::io(&self.path, "copy the cold region")(short));
        }
        self.at += len;
        Ok(())
    }

    /// Makes the file durable and gives it its name.
    pub(crate) fn finish(self) -> Result<(), ImageError> {
        self.file.as_file().sync_all().map_err(ImageError::io(&self.path, "write to disk"))?;
        let persisted = self.file.persist(&self.path).map_err(|error| error.error);
        persisted.map(drop).map_err(ImageError::io(&self.path, "rename"))
    }
}
