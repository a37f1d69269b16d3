//! W-TinyLFU: a small window for new entries, and behind it a cache that admits only entries that are asked
//! for more often than those that would leave for them.
//!
//! Einziger, Friedman, Manes: "TinyLFU: a highly efficient cache admission policy", ACM ToS 2017, section 4.
//! The window is an LRU queue of 1% of the cache. The rest is a segmented LRU (Karedla, Love, Wherry 1994):
//! an entry that is asked for a second time is *protected*, up to four fifths. An entry that drops out of the
//! window is admitted when the frequency sketch has a higher count for it than for the oldest on probation.
//!
//! Different from the paper: sizes are bytes, there is no doorkeeper (four-bit counters alone, as in the
//! later Caffeine), and counters age one word at a time.

use super::frequency::FrequencySketch;
use super::policy::{EXAMINED_AT_MOST, EvictionPolicy, PolicyKind};
use super::queue::{Nodes, Queue};

/// The window has this part of the cache (section 4: 1%).
const WINDOW_PART: u64 = 100;
/// Of the rest, four fifths are for those that were asked for again (section 4).
const PROTECTED_FIFTHS: u64 = 4;

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

/// W-TinyLFU.
#[derive(Debug, Default)]
pub(super) struct WTinyLfu {
    nodes: Nodes,
    window: Queue,
    probation: Queue,
    protected: Queue,
    sketch: FrequencySketch,
    entries: usize,
    window_bytes: u64,
    main_bytes: u64,
}

impl WTinyLfu {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let mut policy = Self::default();
        policy.set_capacity(capacity_bytes);
        policy
    }

    fn push(&mut self, slot: u32, place: u8) {
        self.nodes[slot].place = place;
        match place {
            WINDOW => self.window.push(&mut self.nodes, slot),
            PROBATION => self.probation.push(&mut self.nodes, slot),
            _ => self.protected.push(&mut self.nodes, slot),
        }
    }

    fn take(&mut self, slot: u32) {
        match self.nodes[slot].place {
            WINDOW => self.window.remove(&mut self.nodes, slot),
            PROBATION => self.probation.remove(&mut self.nodes, slot),
            _ => self.protected.remove(&mut self.nodes, slot),
        }
    }

    /// As long as there is room, what drops out of the window need not compete for it.
    fn fill_main(&mut self) {
        for _ in 0..EXAMINED_AT_MOST {
            let Some(slot) = self.window.oldest().filter(|_| self.window.weight() > self.window_bytes) else {
                return;
            };
            let main = self.probation.weight() + self.protected.weight();
            if main + self.nodes[slot].weight > self.main_bytes {
                return;
            }
            self.take(slot);
            self.push(slot, PROBATION);
        }
    }

    fn protect(&mut self, slot: u32) {
        self.take(slot);
        self.push(slot, PROTECTED);
        // Usually one leaves for one that comes; after the cache has shrunk there may be many.
        for _ in 0..EXAMINED_AT_MOST {
            let too_much = self.protected.weight() > self.main_bytes / 5 * PROTECTED_FIFTHS;
            let Some(oldest) = self.protected.oldest().filter(|oldest| too_much && *oldest != slot) else {
                return;
            };
            self.take(oldest);
            self.push(oldest, PROBATION);
        }
    }

    /// The entry that would leave the part behind the window.
    fn victim(&self) -> Option<u32> {
        self.probation.oldest().or_else(|| self.protected.oldest())
    }
}

impl EvictionPolicy for WTinyLfu {
    fn kind(&self) -> PolicyKind {
        PolicyKind::WTinyLfu
    }

    fn set_capacity(&mut self, bytes: u64) {
        self.window_bytes = bytes / WINDOW_PART;
        self.main_bytes = bytes - self.window_bytes;
    }

    fn inserted(&mut self, slot: u32, hash: u64, weight: u64) {
        self.nodes.set(slot, hash, weight);
        self.entries += 1;
        self.sketch.reserve(self.entries);
        self.sketch.increment(hash);
        self.push(slot, WINDOW);
        self.fill_main();
    }

    fn touched(&mut self, slot: u32) {
        self.sketch.increment(self.nodes[slot].hash);
        match self.nodes[slot].place {
            PROBATION => self.protect(slot),
            WINDOW => self.window.renew(&mut self.nodes, slot),
            _ => self.protected.renew(&mut self.nodes, slot),
        }
    }

    fn removed(&mut self, slot: u32) {
        self.take(slot);
        self.entries -= 1;
    }

    fn evict(&mut self) -> Option<u32> {
        // The new entry that needs room goes to the window, which is full already.
        let candidate = self.window.oldest().filter(|_| self.window.weight() >= self.window_bytes);
        let evicted = match (candidate, self.victim()) {
            (Some(candidate), Some(victim)) => {
                let frequency = |slot: u32| self.sketch.estimate(self.nodes[slot].hash);
                if frequency(candidate) > frequency(victim) {
                    self.take(candidate);
                    self.push(candidate, PROBATION);
                    victim
                } else {
                    candidate
                }
            }
            (_, Some(victim)) => victim,
            (_, None) => self.window.oldest()?,
        };
        self.removed(evicted);
        Some(evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_than_the_window_drops_out_of_it_while_there_is_room() {
        let mut policy = WTinyLfu::new(1_000);
        (0..20).for_each(|slot| policy.inserted(slot, u64::from(slot), 7));
        assert_eq!([&policy.window, &policy.probation].map(Queue::weight), [7, 133]);
    }

    #[test]
    fn four_fifths_behind_the_window_are_protected_at_most() {
        let mut policy = WTinyLfu::new(1_000);
        (0..1_000).for_each(|slot| policy.inserted(slot, u64::from(slot), 1));
        (0..990).for_each(|slot| policy.touched(slot));
        assert_eq!([&policy.window, &policy.probation, &policy.protected].map(Queue::weight), [10, 198, 792]);
        assert_eq!(policy.victim(), Some(0), "what was protected first is on probation again");
    }
}
