//! What the figures come to: the limit, the ratios, and whether they are what they should be.

use std::collections::BTreeMap;

use hs_device::Medium;
use serde::Serialize;

use super::contenders::{Place, Result};
use super::machine::Machine;

/// An optimized start may take so many times the limit.
const GOAL_LIMIT: f64 = 1.15;
/// And so many times what a sorted squashfs takes.
const GOAL_SORTED: f64 = 0.50;
/// A start without a profile may take so many times what squashfs takes.
const GOAL_UNOPTIMIZED: f64 = 1.10;
/// An image without a hot region may be so many times as large as a squashfs.
const GOAL_SIZE: f64 = 1.03;
/// A hot region may be so many times as large as the same blocks packed independently.
const GOAL_PACKING: f64 = 1.05;

/// What no start can be quicker than.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Limit {
    /// The larger of the two, in seconds.
    pub(super) limit_s: f64,
    /// The program itself: its start from a directory whose files are in memory.
    pub(super) program_s: f64,
    /// The medium: what the hot region takes at its rate; `None` for a medium of unknown rate.
    pub(super) medium_s: Option<f64>,
}

impl Limit {
    /// Of a program that takes `program_s`, and a hot region on a medium.
    pub(super) fn new(program_s: f64, hot_compressed_bytes: u64, bytes_per_second: Option<u64>) -> Self {
        let medium_s = bytes_per_second.map(|rate| hot_compressed_bytes as f64 / rate as f64);
        Self { limit_s: medium_s.map_or(program_s, |medium| medium.max(program_s)), program_s, medium_s }
    }

    /// Whether the medium is what limits.
    pub(super) fn is_the_medium(&self) -> bool {
        self.medium_s.is_some_and(|medium| medium > self.program_s)
    }
}

/// A ratio and the most that it should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) ratio: f64,
    pub(super) goal: f64,
    pub(super) met: bool,
}

impl Ratio {
    fn new(value: f64, of: f64, goal: f64) -> Self {
        let ratio = value / of;
        Self { ratio, goal, met: ratio <= goal }
    }
}

/// The ratios that count.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Ratios {
    /// Time of the optimized start over the limit.
    pub(super) optimized_to_limit: Ratio,
    /// Over the time of the sorted squashfs.
    pub(super) optimized_to_squashfs_sorted: Ratio,
    /// Time of the start without a profile over that of squashfs.
    pub(super) unoptimized_to_squashfs: Ratio,
    /// Size of the image without a hot region over that of squashfs.
    pub(super) image_bytes_to_squashfs: Ratio,
    /// Size of the hot region over the independent packing.
    pub(super) hot_bytes_to_packing: Ratio,
}

/// Everything that the demo found out: what `--json` prints.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    /// The program's version.
    pub(super) version: &'static str,
    pub(super) machine: Machine,
    /// The emulated medium.
    pub(super) medium: String,
    /// What was started.
    pub(super) command: String,
    /// Starts of each kind.
    pub(super) repeats: usize,
    /// zstd level of the cold region and of squashfs.
    pub(super) level: i32,
    /// Size of squashfs's blocks and headstart's cold windows.
    pub(super) window_bytes: u64,
    /// zstd level of the hot region and of the independent packing.
    pub(super) hot_level: i32,
    pub(super) limit: Limit,
    pub(super) ratios: Ratios,
    /// The recorded blocks in first-access order in 128 KiB pieces, each compressed by itself.
    pub(super) packing_bytes: u64,
    /// Seconds that optimising took, compression of the hot region included.
    pub(super) optimize_s: f64,
    /// Compared byte for byte.
    pub(super) cold_region_unchanged: bool,
    /// One for each contender: its median start.
    pub(super) runs: Vec<Result>,
    /// Seconds that each step took; of what was kept, hardly any.
    pub(super) steps: BTreeMap<&'static str, f64>,
    /// Seconds that the whole demo took.
    pub(super) demo_s: f64,
}

/// Limit and ratios of the `runs`, in the order of [`Place`].
pub(super) fn judge(runs: &[Result], medium: Medium, packing_bytes: u64) -> (Limit, Ratios) {
    let run = |place: Place| &runs[place as usize];
    let time = |place| run(place).ready_s();
    let optimized = &run(Place::Optimized).summary;
    let (hot_bytes, image_bytes) = (optimized.hot_compressed_bytes, optimized.image_bytes);
    // The hot region is the front of the image.
    let limit = Limit::new(time(Place::Native), hot_bytes, medium.rate_bytes_per_second(image_bytes, 0));
    let size = |place| run(place).summary.image_bytes as f64;
    let optimized = time(Place::Optimized);
    let ratios = Ratios {
        optimized_to_limit: Ratio::new(optimized, limit.limit_s, GOAL_LIMIT),
        optimized_to_squashfs_sorted: Ratio::new(optimized, time(Place::SquashfsSorted), GOAL_SORTED),
        unoptimized_to_squashfs: Ratio::new(time(Place::Headstart), time(Place::Squashfs), GOAL_UNOPTIMIZED),
        image_bytes_to_squashfs: Ratio::new(size(Place::Headstart), size(Place::Squashfs), GOAL_SIZE),
        hot_bytes_to_packing: Ratio::new(hot_bytes as f64, packing_bytes as f64, GOAL_PACKING),
    };
    (limit, ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_slower_of_program_and_medium() {
        let limit = Limit::new(0.5, 25_000_000, Some(25_000_000));
        assert!(limit.is_the_medium());
        assert_eq!((limit.limit_s, limit.medium_s), (1.0, Some(1.0)));
        let limit = Limit::new(1.5, 25_000_000, Some(25_000_000));
        assert!(!limit.is_the_medium());
        assert_eq!(limit.limit_s, 1.5);
        assert_eq!(Limit::new(1.5, 25_000_000, None), Limit { limit_s: 1.5, program_s: 1.5, medium_s: None });
    }

    #[test]
    fn ratios_take_the_right_contenders() {
        let runs = crate::demo::table::tests::runs();
        let medium = Medium::parse("flat-10ms-25mbs").unwrap();
        let (limit, ratios) = judge(&runs, medium, 19_000_000);
        assert_eq!((limit.limit_s, limit.program_s), (0.8, 0.6));
        assert_eq!(ratios.optimized_to_limit, Ratio { ratio: 1.0 / 0.8, goal: 1.15, met: false });
        assert_eq!(ratios.optimized_to_squashfs_sorted, Ratio { ratio: 0.25, goal: 0.5, met: true });
        assert_eq!(ratios.unoptimized_to_squashfs.ratio, 1.0);
        assert_eq!(ratios.image_bytes_to_squashfs.ratio, 1.25);
        assert_eq!(ratios.hot_bytes_to_packing.ratio, 20.0 / 19.0);
    }
}
