//! A reader's cache that has the size that memory has room for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_engine::MemoryBudgetConfig;
use hs_units::ByteSize;

use super::heap::HeapTrim;
use super::watch::MemoryWatch;
use crate::config::CacheSizing;
use crate::disk::Shared;

/// How often it looks. In between, the system gives up page cache before a program has to wait for memory.
const PAUSE: Duration = Duration::from_secs(1);
/// How often it looks where memory has no room for the initial size of the cache: there a program that starts
/// takes all of it within a second.
const SHORT_PAUSE: Duration = Duration::from_millis(100);
/// The least that the cache keeps: two sequential readers' windows and a few chunks.
const MIN_BYTES: u64 = 8 << 20;
/// Freed bytes after which the heap is trimmed, which looks at all of it.
const TRIM_BYTES: u64 = 16 << 20;
/// The same where memory is short. A cache that shrinks step by step would keep the freed memory in its heap,
/// while the kernel drops and rereads the code of programs.
const SHORT_TRIM_BYTES: u64 = 1 << 20;

/// Between which sizes a cache may be; `None` when it has but one.
fn bounds(initial_bytes: u64, sizing: CacheSizing) -> Option<MemoryBudgetConfig> {
    let max_bytes = match sizing {
        CacheSizing::Fixed => return None,
        CacheSizing::AtMost => initial_bytes,
        CacheSizing::Grows => u64::MAX,
    };
    Some(MemoryBudgetConfig { min_bytes: MIN_BYTES.min(max_bytes), max_bytes })
}

/// What keeps a cache at the right size.
pub(crate) struct Keeping {
    watch: MemoryWatch,
    initial_bytes: u64,
    /// What the cache has freed since the heap was trimmed.
    freed_bytes: u64,
    heap: HeapTrim,
}

impl Keeping {
    /// For a cache of `initial_bytes`; none when its size is fixed.
    pub(crate) fn new(initial_bytes: u64, sizing: CacheSizing) -> Option<Self> {
        let watch = MemoryWatch::new(bounds(initial_bytes, sizing)?, initial_bytes, Duration::ZERO);
        Some(Self { watch, initial_bytes, freed_bytes: 0, heap: HeapTrim::new(Instant::now()) })
    }

    /// Brings the cache to the size that is right now, and returns how long that may stand.
    pub(crate) fn tick(&mut self, disk: &Arc<Shared>) -> Duration {
        let (before, answered_reads) = {
            let state = disk.lock();
            (state.engine.usage().cache, state.engine.stats().answered_reads)
        };
        self.heap.tick(Instant::now(), answered_reads);
        let budget = self.watch.look(before.bytes);
        let target = budget.target_bytes();
        let is_tight = budget.room_bytes() < self.initial_bytes;
        if target != before.budget_bytes {
            let (now, then) = (ByteSize(target), ByteSize(before.budget_bytes));
            log::debug!("the cache may hold {now} instead of {then} from now on");
            disk.change(|state, _| state.engine.set_cache_budget(target));
        }
        if self.is_to_trim(before.bytes.saturating_sub(target), is_tight) {
            hs_linux::give_back();
        }
        if is_tight { SHORT_PAUSE } else { PAUSE }
    }

    /// Counts what the cache has freed; whether the heap should be trimmed now.
    fn is_to_trim(&mut self, freed_bytes: u64, is_tight: bool) -> bool {
        self.freed_bytes += freed_bytes;
        let enough = if is_tight { SHORT_TRIM_BYTES } else { TRIM_BYTES };
        let trims = self.freed_bytes >= enough;
        if trims {
            self.freed_bytes = 0;
        }
        trims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_freed_step_by_step_goes_back_to_the_system_too() {
        let bounds = bounds(40 * MIB, CacheSizing::AtMost).expect("it changes");
        let watch = MemoryWatch::new(bounds, 40 * MIB, Duration::ZERO);
        let heap = HeapTrim::new(Instant::now());
        let mut keeping = Keeping { watch, initial_bytes: 40 * MIB, freed_bytes: 0, heap };
        let roomy: Vec<bool> = (0..8).map(|_| keeping.is_to_trim(5 * MIB, false)).collect();
        assert_eq!(roomy, [false, false, false, true, false, false, false, true]);
        assert!(!keeping.is_to_trim(MIB / 2, true));
        assert!(keeping.is_to_trim(MIB / 2, true), "where memory is short little is much");
        assert!(!keeping.is_to_trim(0, true), "it is trimmed once");
    }

    #[test]
    fn a_size_that_was_asked_for_stays_and_the_others_have_bounds() {
        assert_eq!(bounds(40 * MIB, CacheSizing::Fixed), None);
        let config = |min_bytes, max_bytes| Some(MemoryBudgetConfig { min_bytes, max_bytes });
        assert_eq!(bounds(40 * MIB, CacheSizing::AtMost), config(8 * MIB, 40 * MIB));
        assert_eq!(bounds(MIB, CacheSizing::AtMost), config(MIB, MIB), "a small one is left alone");
        assert_eq!(bounds(MIB, CacheSizing::Grows), config(8 * MIB, u64::MAX));
    }
}
