//! The disk in an image, opened and prefetched; each front end shows it in its own way.

use std::sync::Arc;
use std::time::Instant;

use hs_engine::PrefetchConfig;
use hs_image::{Head, Image, Reader, Watch};
use hs_store::Store;

use crate::ServeError;
use crate::memory::keeper::CacheKeeper;
use crate::prefetch::{Deliver, Driver, Running};
use crate::served::{Prefetching, ServeConfig, ServedError};

/// A disk that answers reads and prefetches its hot region.
///
/// The fields are dropped in order: the stream ends before its reader does.
pub struct ServedDisk {
    running: Option<Running>,
    _keeper: Option<CacheKeeper>,
    /// The rest of the request that opened the image, until the prefetch goes on from there.
    head: Option<Head>,
    reader: Arc<Reader>,
    driver: Arc<Driver>,
}

impl ServedDisk {
    /// Opens the image in `store` and begins its prefetch into this process's memory: there is no kernel
    /// cache to push to.
    ///
    /// # Errors
    /// When the image is not one, or a thread cannot be started.
    pub fn start(
        store: Arc<dyn Store>,
        config: &ServeConfig,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Self, ServedError> {
        let mut disk = Self::open(store, config, watch)?;
        disk.start_prefetch(None)?;
        Ok(disk)
    }

    /// Opens the image. With a prefetch, the first request brings the beginning of the hot region too, which
    /// waits for the prefetch.
    pub(crate) fn open(
        store: Arc<dyn Store>,
        config: &ServeConfig,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Self, ServedError> {
        let enabled = config.prefetching != Prefetching::Off;
        let (image, head) = if enabled {
            let (image, head) =
                Image::open_streaming(store, 2 * config.prefetch.first_request_bytes, &config.image)?;
            (image, Some(head))
        } else {
            (Image::open_as(store, &config.image)?, None)
        };
        let image = Arc::new(image);
        let began = head.as_ref().map_or_else(Instant::now, |head| head.asked);
        // A kernel that keeps what it is given answers later reads itself, also when the warmer asked for the
        // block first. Markers show such use.
        let sees_use = !config.reader.readers_keep || config.markers;
        let prefetch = PrefetchConfig { sees_use, ..config.prefetch };
        let driver = Driver::new(&image, prefetch, enabled, began);
        if config.reader.readers_keep && config.markers {
            driver.sees_by_markers();
        }
        let reader = Arc::new(Reader::new(Arc::clone(&image), config.reader, driver.clone(), watch)?);
        let keeper = CacheKeeper::start(&reader, config.reader.cache_bytes, config.cache_sizing)?;
        Ok(Self { running: None, _keeper: keeper, head, reader, driver })
    }

    /// Begins the prefetch; `deliver` is where its blocks go beyond this process's memory.
    pub(crate) fn start_prefetch(&mut self, deliver: Option<Arc<dyn Deliver>>) -> Result<(), ServeError> {
        self.running = Some(self.driver.start(&self.reader, self.head.take(), deliver)?);
        Ok(())
    }

    /// The reader, which answers reads and has the figures.
    #[must_use]
    pub const fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// The prefetch.
    #[must_use]
    pub const fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// The disk is no longer needed: the prefetch stops, and reads that wait for the medium, or come later,
    /// fail. Call it before anything is taken down that may wait for a read.
    pub fn close(&self) {
        self.driver.stop();
        self.reader.image().store().close();
        self.reader.wake_stream();
    }

    /// Waits until the prefetch has ended.
    pub fn wait_prefetch(&mut self) {
        if let Some(running) = &mut self.running {
            running.wait();
        }
    }
}
