//! How much memory a cache may take, from what the system reports.
//!
//! The 1991 paper let its buffer cache have nearly all of memory, and found that it must give it back as the
//! load demands (seeds 002, section 2, point c). So does this: the goal is half of the memory that is
//! available besides a reserve. The budget shrinks at once. It grows only after several samples that allow
//! it, so that it does not follow every program that comes and goes.

use hs_units::{MemoryPressure, MemorySample};

/// Bounds of a [`MemoryBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudgetConfig {
    /// It never falls below this.
    pub min_bytes: u64,
    /// It never grows beyond this.
    pub max_bytes: u64,
}

/// Samples in a row that must allow more before it grows.
const CALM_SAMPLES: u32 = 3;
/// Relative changes of at most one in this many are not made.
const DEAD_PART: u64 = 8;
/// One part in this many of the memory is left alone, within [`MIN_RESERVE`] and [`MAX_RESERVE`].
const RESERVE_PART: u64 = 16;
const MIN_RESERVE: u64 = 16 << 20;
const MAX_RESERVE: u64 = 1 << 30;
/// Pressure counts when less than one part in this many is available.
const TIGHT_PART: u64 = 4;
/// Memory is short when less than one part in this many is available, within [`MIN_SCARCE`] and
/// [`MAX_SCARCE`], until twice as much is.
const SCARCE_PART: u64 = 32;
const MIN_SCARCE: u64 = 8 << 20;
const MAX_SCARCE: u64 = 64 << 20;

/// At least one task stalls for a tenth of the time, or all tasks for a hundredth: entries that are only
/// perhaps useful are then too much. (Programs that kill processes to free memory act at 60%,
/// systemd-oomd's default.)
fn is_high(pressure: MemoryPressure) -> bool {
    pressure.some_avg10 >= 10.0 || pressure.full_avg10 >= 1.0
}

/// Half of that: no reason not to grow.
fn is_low(pressure: MemoryPressure) -> bool {
    pressure.some_avg10 < 5.0 && pressure.full_avg10 < 0.5
}

/// The budget of a cache that grows into free memory and gives it back.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    config: MemoryBudgetConfig,
    target_bytes: u64,
    room_bytes: u64,
    calm: u32,
    short: bool,
}

impl MemoryBudget {
    /// A budget that begins with `initial_bytes`.
    #[must_use]
    pub fn new(config: MemoryBudgetConfig, initial_bytes: u64) -> Self {
        let target_bytes = initial_bytes.clamp(config.min_bytes, config.max_bytes);
        Self { config, target_bytes, room_bytes: u64::MAX, calm: 0, short: false }
    }

    /// Bytes that the cache may hold now.
    #[must_use]
    pub const fn target_bytes(&self) -> u64 {
        self.target_bytes
    }

    /// Half of what was available at the last sample besides the reserve, without the bounds: how much there
    /// is room for.
    #[must_use]
    pub const fn room_bytes(&self) -> u64 {
        self.room_bytes
    }

    /// Whether memory is short, so that prefetch should bring nothing more.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.short
    }

    /// Takes a sample of the memory, of which the cache now holds `own_bytes`; returns the new budget.
    pub fn handle_sample(&mut self, sample: &MemorySample, own_bytes: u64) -> u64 {
        let reserve = (sample.total_bytes / RESERVE_PART).clamp(MIN_RESERVE, MAX_RESERVE);
        // Tasks also stall when memory is not short: in a group with a limit of its own, or because the
        // kernel pages out what it takes for idle.
        let is_tight = sample.available_bytes.saturating_add(own_bytes) < sample.total_bytes / TIGHT_PART;
        let pressure = sample.pressure.filter(|_| is_tight).unwrap_or_default();
        // What the cache holds could be given back, so it counts as available.
        let could_be_had = (sample.available_bytes + own_bytes).saturating_sub(reserve);
        self.room_bytes = could_be_had / 2;
        let mut goal = self.room_bytes;
        if is_high(pressure) {
            goal = goal.min(own_bytes / 4 * 3).min(self.target_bytes / 4 * 3);
        }
        let goal = goal.clamp(self.config.min_bytes, self.config.max_bytes);
        let scarce = (sample.total_bytes / SCARCE_PART).clamp(MIN_SCARCE, MAX_SCARCE);
        self.short = if self.short {
            sample.available_bytes < 2 * scarce || !is_low(pressure)
        } else {
            sample.available_bytes < scarce || is_high(pressure)
        };
        if goal < self.target_bytes - self.target_bytes / DEAD_PART || goal == self.config.min_bytes {
            self.calm = 0;
            self.target_bytes = goal;
        } else if self.is_worth_growing(goal) && is_low(pressure) && !self.short {
            self.calm += 1;
            if self.calm >= CALM_SAMPLES {
                // In steps: the effect on other programs is known only afterwards.
                self.target_bytes = goal.min(self.target_bytes.saturating_mul(2));
            }
        } else {
            self.calm = 0;
        }
        self.target_bytes
    }

    /// Small steps are not made, except the last one to the upper bound.
    fn is_worth_growing(&self, goal: u64) -> bool {
        let band = self.target_bytes / DEAD_PART;
        goal > self.target_bytes + band || (goal == self.config.max_bytes && goal > self.target_bytes)
    }
}

#[cfg(test)]
mod tests {
    use hs_units::Prng;

    use super::*;

    const MIB: u64 = 1 << 20;
    const CONFIG: MemoryBudgetConfig = MemoryBudgetConfig { min_bytes: 8 * MIB, max_bytes: 1 << 40 };

    fn sample(available_mib: u64) -> MemorySample {
        MemorySample { total_bytes: 4096 * MIB, available_bytes: available_mib * MIB, pressure: None }
    }

    /// A machine on which others use so much, and the cache takes whatever it may.
    fn available(others_mib: u64, own: u64) -> MemorySample {
        let used = others_mib * MIB + own;
        MemorySample { available_bytes: (4096 * MIB).saturating_sub(used), ..sample(0) }
    }

    #[test]
    fn it_grows_step_by_step_to_half_of_what_is_free() {
        let mut budget = MemoryBudget::new(CONFIG, 40 * MIB);
        let mut own = 0;
        let mut seen = Vec::new();
        for _ in 0..20 {
            let before = own;
            own = budget.handle_sample(&available(1024, own), own);
            assert!(own <= 2 * before.max(40 * MIB));
            seen.push(own / MIB);
        }
        // 3,072 MiB are free of others, of which 256 are the reserve.
        assert!(own > 1200 * MIB && own <= 1408 * MIB, "{seen:?}");
        assert_eq!(seen[..2], [40, 40], "two samples are not enough to grow");
        assert!(!budget.is_short());
    }

    #[test]
    fn what_there_is_room_for_does_not_depend_on_the_bounds() {
        let mut budget = MemoryBudget::new(MemoryBudgetConfig { max_bytes: 40 * MIB, ..CONFIG }, 40 * MIB);
        assert_eq!(budget.room_bytes(), u64::MAX, "nothing is known");
        // 1,024 MiB could be had besides the reserve of 256.
        assert_eq!(budget.handle_sample(&sample(1260), 20 * MIB), 40 * MIB);
        assert_eq!(budget.room_bytes(), 512 * MIB);
    }

    #[test]
    fn it_comes_back_to_the_most_that_it_may_be() {
        for others_mib in 3900..4070 {
            let mut budget =
                MemoryBudget::new(MemoryBudgetConfig { max_bytes: 40 * MIB, ..CONFIG }, 40 * MIB);
            let shrunk = budget.handle_sample(&available(others_mib, 0), 0);
            (0..20).for_each(|_| {
                budget.handle_sample(&available(1024, 0), 0);
            });
            assert_eq!(budget.target_bytes(), 40 * MIB, "from {shrunk}");
        }
    }

    #[test]
    fn it_gives_back_at_once_what_others_need() {
        let mut budget = MemoryBudget::new(CONFIG, 1400 * MIB);
        let own = 1400 * MIB;
        // Others take another gigabyte: together 2,048 + 1,400 of 4,096.
        let target = budget.handle_sample(&available(2048, own), own);
        assert!(target <= 896 * MIB, "{}", target / MIB);
        // And nearly all: the cache keeps its least.
        assert_eq!(budget.handle_sample(&available(4090, 0), 0), CONFIG.min_bytes);
        assert!(budget.is_short());
    }

    #[test]
    fn small_changes_do_not_move_it() {
        let mut budget = MemoryBudget::new(CONFIG, 40 * MIB);
        let mut own = 0;
        let mut prng = Prng::new(1);
        for _ in 0..40 {
            own = budget.handle_sample(&available(1024, own), own);
        }
        let settled = own;
        for _ in 0..1000 {
            own = budget.handle_sample(&available(1024 + prng.below(100), own), own);
            assert_eq!(own, settled);
        }
    }

    #[test]
    fn a_change_of_an_eighth_is_small() {
        let budget = MemoryBudget::new(CONFIG, 40 * MIB);
        assert!(!budget.is_worth_growing(45 * MIB) && budget.is_worth_growing(45 * MIB + 1));
    }

    /// Whatever others do: once the cache has shrunk to its budget, as much is free as it has, or it is at
    /// its minimum.
    #[test]
    fn others_get_what_they_want() {
        let mut prng = Prng::new(2);
        let mut budget = MemoryBudget::new(CONFIG, 40 * MIB);
        let mut own = 0;
        for _ in 0..10_000 {
            // They take at most what is there.
            let others = prng.below(4096 - own / MIB);
            own = own.min(budget.handle_sample(&available(others, own), own));
            let free = 4096 * MIB - others * MIB - own;
            assert!(own <= CONFIG.min_bytes || free >= own, "{others} {own} {free}");
            own = prng.below(budget.target_bytes() + 1);
        }
    }

    #[test]
    fn pressure_takes_a_quarter_each_time_and_stops_growth_until_it_is_low() {
        let mut budget = MemoryBudget::new(CONFIG, 400 * MIB);
        let mut own = 400 * MIB;
        let pressed = |some_avg10, full_avg10| MemorySample {
            pressure: Some(MemoryPressure { some_avg10, full_avg10 }),
            ..sample(500)
        };
        for expected in [300, 225] {
            own = budget.handle_sample(&pressed(12.0, 0.0), own);
            assert_eq!(own / MIB, expected);
            assert!(budget.is_short());
        }
        for _ in 0..10 {
            assert_eq!(budget.handle_sample(&pressed(7.0, 0.0), own), own, "neither high nor low");
            assert!(budget.is_short());
        }
        assert!(budget.handle_sample(&pressed(0.0, 1.5), own) < own, "all stood still");
        let relieved = MemorySample { pressure: Some(MemoryPressure::default()), ..sample(3000) };
        for _ in 0..3 {
            own = budget.handle_sample(&relieved, own);
        }
        assert!(own > 225 * MIB && !budget.is_short());
    }

    #[test]
    fn others_that_wait_are_nothing_where_there_is_plenty() {
        let mut budget = MemoryBudget::new(CONFIG, 400 * MIB);
        let pressure = Some(MemoryPressure { some_avg10: 60.0, full_avg10: 40.0 });
        assert_eq!(budget.handle_sample(&MemorySample { pressure, ..sample(1500) }, 400 * MIB), 400 * MIB);
        assert!(!budget.is_short());
    }

    #[test]
    fn short_memory_stays_short_until_there_is_twice_as_much() {
        let mut budget = MemoryBudget::new(CONFIG, 8 * MIB);
        for (available_mib, short) in [(200, false), (65, false), (63, true), (127, true), (128, false)] {
            budget.handle_sample(&sample(available_mib), 0);
            assert_eq!(budget.is_short(), short, "{available_mib} MiB");
        }
    }
}
