//! The result of the starts: the limit, the ratios, and whether they meet their goals.

use hs_device::Medium;
use serde::Serialize;

use super::contenders::{HEADSTART, NATIVE, OPTIMIZED, Result, SQUASHFS, SQUASHFS_SORTED};
use crate::limit::Limit;
use crate::outcome::Common;
use crate::ratio::{Goal, Ratio};

/// An optimized start may take so many times the limit.
const GOAL_LIMIT: Goal = Goal::AtMost(1.15);
/// The time over that of a sorted squashfs.
const GOAL_SORTED: Goal = Goal::AtMost(0.50);
/// A start without a profile may take so many times what squashfs takes.
const GOAL_UNOPTIMIZED: Goal = Goal::AtMost(1.10);
/// An image without a hot region may be so many times as large as a squashfs.
const GOAL_SIZE: Goal = Goal::AtMost(1.03);
/// A hot region may be so many times as large as the same blocks packed independently.
const GOAL_PACKING: Goal = Goal::AtMost(1.05);

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

/// The result of the first story: `start` in the demo's JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    #[serde(flatten)]
    pub(super) common: Common,
    /// The command that was started.
    pub(super) command: String,
    pub(super) ratios: Ratios,
    /// The recorded blocks in first-access order in 128 KiB pieces, each compressed by itself.
    pub(super) packing_bytes: u64,
    /// One for each contender: its median start.
    pub(super) runs: Vec<Result>,
}

/// Limit and ratios of the `runs`, at the places of the contenders.
pub(super) fn judge(runs: &[Result], medium: Medium, packing_bytes: u64) -> (Limit, Ratios) {
    let run = |place: usize| &runs[place];
    let time = |place| run(place).ready_s();
    let optimized = &run(OPTIMIZED).summary;
    let (hot_bytes, image_bytes) = (optimized.hot_compressed_bytes, optimized.image_bytes);
    // The hot region is the front of the image.
    let rate = medium.rate_bytes_per_second(image_bytes, 0);
    let limit = Limit::new(time(NATIVE), rate.map(|rate| hot_bytes as f64 / rate as f64));
    let size = |place| run(place).summary.image_bytes as f64;
    let optimized = time(OPTIMIZED);
    let ratios = Ratios {
        optimized_to_limit: Ratio::exact(optimized, limit.limit_s, GOAL_LIMIT),
        optimized_to_squashfs_sorted: Ratio::exact(optimized, time(SQUASHFS_SORTED), GOAL_SORTED),
        unoptimized_to_squashfs: Ratio::exact(time(HEADSTART), time(SQUASHFS), GOAL_UNOPTIMIZED),
        image_bytes_to_squashfs: Ratio::exact(size(HEADSTART), size(SQUASHFS), GOAL_SIZE),
        hot_bytes_to_packing: Ratio::exact(hot_bytes as f64, packing_bytes as f64, GOAL_PACKING),
    };
    (limit, ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_take_the_right_contenders() {
        let runs = crate::start::table::tests::runs();
        let medium = Medium::parse("flat-10ms-25mbs").unwrap();
        let (limit, ratios) = judge(&runs, medium, 19_000_000);
        assert_eq!((limit.limit_s, limit.program_s), (0.8, 0.6));
        assert_eq!(ratios.optimized_to_limit, Ratio::exact(1.0, 0.8, GOAL_LIMIT));
        assert_eq!(ratios.optimized_to_squashfs_sorted, Ratio::exact(1.0, 4.0, GOAL_SORTED));
        assert_eq!(
            (ratios.optimized_to_limit.met, ratios.optimized_to_squashfs_sorted.met),
            (Some(false), Some(true))
        );
        assert_eq!(ratios.unoptimized_to_squashfs.ratio, 1.0);
        assert_eq!(ratios.image_bytes_to_squashfs.ratio, 1.25);
        assert_eq!(ratios.hot_bytes_to_packing.ratio, 20.0 / 19.0);
    }
}
