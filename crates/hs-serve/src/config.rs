//! How an image is served, by any front end.

use std::sync::Arc;

use hs_disk::{DiskOptions, ReadOptions, ServedDisk, Watch};
use hs_engine::PrefetchConfig;
use hs_image::{ImageError, OpenOptions};
use hs_store::Store;

use crate::FileAccess;

/// Where prefetched blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Prefetching {
    /// Nothing is prefetched.
    Off,
    /// They wait in this process's memory until they are read; the caches of a mounted file system are warmed
    /// from there.
    #[default]
    Hold,
    /// They are pushed into the page cache of `disk.img`, for programs that read it without direct I/O.
    Push,
}

/// How an image is served.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The name that the image must have, and the cache on disk.
    pub image: OpenOptions,
    /// Where prefetched blocks go.
    pub prefetching: Prefetching,
    /// Limits of the prefetch.
    pub prefetch: PrefetchConfig,
    /// Where the kernel keeps delivered blocks, a block of some hot chunks is left out, so that use of them
    /// is seen. docs/ENGINE.md says what that costs a start.
    pub tripwires: bool,
    /// Threads and caches. The front end sets whether readers keep what they are given.
    pub read: ReadOptions,
    /// How far the kernel reads ahead in `disk.img`, in KiB; at most 1024.
    pub disk_read_ahead_kib: u32,
    /// The same where the image has a hot region that is prefetched.
    pub hot_disk_read_ahead_kib: u32,
    /// What `mount` shows as the source.
    pub source_name: String,
    /// Who may read `disk.img`.
    pub access: FileAccess,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            image: OpenOptions::default(),
            prefetching: Prefetching::default(),
            prefetch: PrefetchConfig::default(),
            tripwires: true,
            read: ReadOptions::default(),
            disk_read_ahead_kib: 128,
            hot_disk_read_ahead_kib: 128,
            source_name: "headstart".to_owned(),
            access: FileAccess::default(),
        }
    }
}

impl ServeConfig {
    /// How the image is opened and read.
    #[must_use]
    pub fn disk_options(&self) -> DiskOptions {
        DiskOptions {
            image: self.image.clone(),
            prefetch: (self.prefetching != Prefetching::Off).then_some(self.prefetch),
            tripwires: self.tripwires,
            read: self.read,
        }
    }

    /// Opens the image in `store` and begins its prefetch into this process's memory: there is no kernel
    /// cache to push to.
    ///
    /// # Errors
    /// When the image is not one, or a thread cannot be started.
    pub fn open(
        &self,
        store: Arc<dyn Store>,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Arc<ServedDisk>, ImageError> {
        let disk = ServedDisk::open(store, &self.disk_options(), watch)?;
        disk.begin_prefetch(None)?;
        Ok(disk)
    }
}
