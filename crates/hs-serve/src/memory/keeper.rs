//! A reader's cache that grows into free memory and gives it back.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use hs_engine::MemoryBudgetConfig;
use hs_image::Reader;

use super::watch::MemoryWatch;
use crate::{ServeError, allocator};

/// How often it looks. Page cache is the system's cushion meanwhile: it goes before anybody waits.
const PAUSE: Duration = Duration::from_secs(1);
/// The least that the cache keeps: two sequential readers' windows and a few chunks.
const MIN_BYTES: u64 = 8 << 20;
/// Freed bytes after which the heap is trimmed.
const TRIM_BYTES: u64 = 16 << 20;

/// The thread that looks after the cache. Dropping it ends it.
///
/// A thread of its own, because those who serve wait for their clients alone, perhaps for hours.
#[derive(Debug)]
pub(crate) struct CacheKeeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CacheKeeper {
    /// Begins to look after the cache of `reader`, which has `initial_bytes` now.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(reader: &Arc<Reader>, initial_bytes: u64) -> Result<Self, ServeError> {
        let (stop, stopped) = bounded(0);
        let reader = Arc::clone(reader);
        let bounds = MemoryBudgetConfig { min_bytes: MIN_BYTES, max_bytes: u64::MAX };
        let mut watch = MemoryWatch::new(bounds, initial_bytes, Duration::ZERO);
        let keep = move || {
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                tick(&reader, &mut watch);
            }
        };
        let thread =
            std::thread::Builder::new().name("hs-memory".to_owned()).spawn(keep).map_err(|source| {
                ServeError::Io { action: "start a thread for", path: "the cache".into(), source }
            })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// Brings the cache to the size that is right now.
fn tick(reader: &Reader, watch: &mut MemoryWatch) {
    let before = reader.cache_usage();
    let target = watch.look(before.bytes).target_bytes();
    if target == before.budget_bytes {
        return;
    }
    log::debug!(
        "the cache may hold {} instead of {} from now on",
        hs_units::ByteSize(target),
        hs_units::ByteSize(before.budget_bytes)
    );
    reader.set_cache_budget(target);
    if before.bytes.saturating_sub(target) >= TRIM_BYTES {
        allocator::give_back();
    }
}

impl Drop for CacheKeeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
