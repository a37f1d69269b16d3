//! Where a warmer of page caches is; chunks wait for it a moment.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A chunk is given to its readers when the warmer has asked for the pages of this many chunks after
/// it, so that a reader finds every page that it touches next on its way.
const LEAD_CHUNKS: u32 = 2;
/// But no longer than this: the warmer may itself wait for what the chunk holds.
const PATIENCE: Duration = Duration::from_millis(3);

/// Where a warmer of page caches is in its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmerPlace {
    /// There is none, or it has ended, or it waits for the stream: no chunk needs to wait for it.
    #[default]
    Idle,
    /// It has asked for the pages of every chunk before this one.
    Before(u32),
}

/// Where the warmer was last seen, and the threads that wait for it.
#[derive(Debug, Default)]
pub(super) struct WarmerSeen {
    place: Mutex<WarmerPlace>,
    moved: Condvar,
    is_over: AtomicBool,
}

impl WarmerSeen {
    /// It is here now.
    pub(super) fn set(&self, place: WarmerPlace) {
        *self.place.lock() = place;
        self.moved.notify_all();
    }

    /// It is to end.
    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Whether it is to end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Waits until it is far enough ahead of this chunk, but not for long.
    pub(super) fn wait(&self, chunk: u32) {
        let behind =
            |place: &mut WarmerPlace| matches!(place, WarmerPlace::Before(at) if *at <= chunk + LEAD_CHUNKS);
        let mut place = self.place.lock();
        let _ = self.moved.wait_while_for(&mut place, behind, PATIENCE);
    }
}
