//! How much the rings of one connection may have under way: asked of the disk and not answered yet.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Bytes that are asked for and not answered yet, for each connection: as for a client of NBD.
const ROOM_BYTES: u64 = 8 << 20;

/// Bytes under way.
#[derive(Default)]
pub(crate) struct Room {
    held_bytes: Mutex<u64>,
    changed: Condvar,
}

impl Room {
    /// Waits for room for so many bytes, behind `rest`; false when they are not wanted any more.
    pub(crate) fn take(&self, bytes: u64, gives_up: &AtomicBool, rest: impl FnOnce()) -> bool {
        let mut held = self.held_bytes.lock();
        if *held + bytes > ROOM_BYTES {
            MutexGuard::unlocked(&mut held, rest);
        }
        while *held + bytes > ROOM_BYTES && !gives_up.load(Relaxed) {
            self.changed.wait(&mut held);
        }
        if gives_up.load(Relaxed) {
            return false;
        }
        *held += bytes;
        true
    }

    /// So many bytes are answered.
    pub(crate) fn give(&self, bytes: u64) {
        *self.held_bytes.lock() -= bytes;
        self.changed.notify_all();
    }

    /// All that wait look again.
    pub(crate) fn nudge(&self) {
        let _held = self.held_bytes.lock();
        self.changed.notify_all();
    }
}
