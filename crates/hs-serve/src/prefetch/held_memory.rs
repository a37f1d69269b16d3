//! Memory for what the stream brings: how much there is, and when it goes back to the system.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hs_engine::{MemoryBudgetConfig, Prefetch};
use parking_lot::{Mutex, MutexGuard};

use super::running::spawn;
use crate::allocator;
use crate::memory::watch::MemoryWatch;

/// How often the stream looks at the system's memory, at most. On media where it matters a request takes at
/// least as long.
const PAUSE: Duration = Duration::from_millis(100);
/// However little memory there is, so much may wait for its readers: a few chunks. With less the stream would
/// stall.
const MIN_BYTES: u64 = 1 << 20;
/// How much may still wait for its readers when memory is given back to the system: some chunks are never
/// read completely.
const LEFT_BYTES: u64 = 4 << 20;

/// The memory of one prefetch.
pub(super) struct HeldMemory {
    watch: Mutex<MemoryWatch>,
    gave_back: AtomicBool,
}

impl HeldMemory {
    /// With a budget of so many bytes.
    pub(super) fn new(budget_bytes: u64) -> Self {
        let bounds = MemoryBudgetConfig { min_bytes: MIN_BYTES.min(budget_bytes), max_bytes: budget_bytes };
        let watch = Mutex::new(MemoryWatch::new(bounds, budget_bytes, PAUSE));
        Self { watch, gave_back: AtomicBool::new(false) }
    }

    /// Tells the engine how much memory there is for prefetched chunks. The engine is unlocked meanwhile.
    pub(super) fn observe(&self, engine: &mut MutexGuard<'_, Prefetch>) {
        let held = engine.held_bytes();
        let (target, is_short) = MutexGuard::unlocked(engine, || {
            let mut watch = self.watch.lock();
            let budget = watch.look(held);
            (budget.target_bytes(), budget.is_short())
        });
        engine.handle_budget(target);
        if is_short {
            engine.handle_short_memory();
        }
    }

    /// When nearly all that the stream brought has left, the holes in the heap are given back to the system,
    /// once. A thread of its own does it, because the thread that releases a chunk is answering a reader.
    pub(super) fn give_back_when_over(&self, engine: &Prefetch) {
        let is_over = engine.ended().is_some() && engine.held_bytes() <= LEFT_BYTES;
        if is_over && !self.gave_back.swap(true, Relaxed) {
            // If no thread can start, the memory stays with this process and is reused.
            let _ = spawn("hs-give-back".to_owned(), allocator::give_back);
        }
    }
}
