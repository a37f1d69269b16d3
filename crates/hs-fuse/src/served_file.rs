//! A plain disk file, shown as `DIR/disk.img`.

use std::path::Path;
use std::sync::Arc;

use hs_linux::LinuxError;
use hs_serve::{FileAccess, FileDisk, FileReads, MountFsOptions, MountedFs};
use hs_store::Store;

use crate::served_image::Shown;
use crate::{Disk, FuseError, Session, SessionOptions};

/// A plain disk file shown as `DIR/disk.img`, for foreign systems on an emulated medium.
pub struct ServedFile {
    session: Session,
    store: Arc<dyn Store>,
    reads: Arc<FileReads>,
}

impl ServedFile {
    /// Shows the file in `store` in `directory`.
    ///
    /// # Errors
    /// When FUSE cannot be used.
    pub fn start(
        store: Arc<dyn Store>,
        directory: &Path,
        file_name: &str,
        access: FileAccess,
    ) -> Result<Self, FuseError> {
        let options = SessionOptions { access, ..SessionOptions::default() };
        Self::with_options(store, directory, file_name, options)
    }

    /// The same for a reader that reads ahead itself: the kernel does not read ahead below it as well.
    ///
    /// # Errors
    /// When FUSE cannot be used.
    pub fn without_read_ahead(
        store: Arc<dyn Store>,
        directory: &Path,
        file_name: &str,
        access: FileAccess,
    ) -> Result<Self, FuseError> {
        let options = SessionOptions { max_readahead_bytes: 0, access, ..SessionOptions::default() };
        Self::with_options(store, directory, file_name, options)
    }

    fn with_options(
        store: Arc<dyn Store>,
        directory: &Path,
        file_name: &str,
        options: SessionOptions,
    ) -> Result<Self, FuseError> {
        let options = SessionOptions {
            source_name: store.name().to_owned(),
            file_name: file_name.to_owned(),
            ..options
        };
        let disk = FileDisk::new(Arc::clone(&store))?;
        let reads = disk.reads();
        let disk: Arc<dyn Disk> = Arc::new(disk);
        Ok(Self { session: Session::mount(directory, disk, options)?, store, reads })
    }

    /// Mounts the file system in the file at `target`; see [`MountedFs::mount`].
    ///
    /// # Errors
    /// As there.
    pub fn mount_fs(&self, target: &Path, options: &MountFsOptions) -> Result<MountedFs, LinuxError> {
        let read_at =
            |offset: u64, bytes: &mut [u8]| self.store.read_at(offset, bytes).map_err(std::io::Error::other);
        let disk = (Path::new(self.store.name()), self.store.len());
        let shown = Shown { session: &self.session, hold: &|_| Ok(()) };
        MountedFs::mount(disk, read_at, &shown, target, options)
    }

    /// The reads of the file that wait now.
    #[must_use]
    pub const fn reads(&self) -> &Arc<FileReads> {
        &self.reads
    }

    /// As [`ServedDisk::close`](hs_disk::ServedDisk::close).
    pub fn close(&self) {
        self.store.close();
    }

    /// The FUSE session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }
}
