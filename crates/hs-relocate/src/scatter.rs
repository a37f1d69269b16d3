//! How scattered a list of runs is on a disk, and whether another layout pays. No I/O.

use hs_units::ByteRange;
use serde::Serialize;

/// A reader that goes on at most so far from its last byte has not moved the arm of a drive: at 120 MB/s this
/// gap passes in 4.2 ms, half a turn at 7,200 rpm, which is less than a seek takes. What lies so near behind is
/// in the drive's cache, or was a part of the same request: recorders see large requests in pieces, in any order.
pub const NEAR_BYTES: u64 = 512 << 10;

/// A layout that saves fewer seeks than this is not worth its writes (a seek of a hard disk takes some 13 ms).
const FEWEST_SEEKS_SAVED: u64 = 16;
/// Nor is one that saves less than this share of the seeks.
const LEAST_SHARE_SAVED: u64 = 10;

/// What it takes to read a list of places in its order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Scatter {
    /// How often the next place lies further than [`NEAR_BYTES`] from the end of the last one. The first place
    /// counts.
    pub seeks: u64,
    /// Pieces that lie in one, whatever gap is between them.
    pub runs: u64,
    /// Bytes in the list.
    pub bytes: u64,
}

impl Scatter {
    /// Of these places of a device, in the order in which they are read.
    pub fn of(places: impl IntoIterator<Item = ByteRange>) -> Self {
        let mut scatter = Self::default();
        let mut at: Option<u64> = None;
        for place in places {
            let gap = at.map(|at| place.offset.abs_diff(at));
            scatter.runs += u64::from(gap != Some(0));
            scatter.seeks += u64::from(gap.is_none_or(|gap| gap > NEAR_BYTES));
            scatter.bytes += place.len;
            at = Some(place.offset.saturating_add(place.len));
        }
        scatter
    }

    /// Whether it pays to have `after` instead.
    #[must_use]
    pub fn pays(&self, after: &Self) -> bool {
        let saved = self.seeks.saturating_sub(after.seeks);
        saved >= FEWEST_SEEKS_SAVED && saved.saturating_mul(LEAST_SHARE_SAVED) >= self.seeks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scatter(places: &[(u64, u64)]) -> Scatter {
        Scatter::of(places.iter().map(|&(offset, len)| ByteRange::new(offset, len)))
    }

    #[test]
    fn near_gaps_are_runs_and_no_seeks() {
        assert_eq!(scatter(&[]), Scatter::default());
        assert_eq!(
            scatter(&[(0, 8192), (8192, 4096), (20_480, 4096)]),
            Scatter { seeks: 1, runs: 2, bytes: 16_384 }
        );
        assert_eq!(scatter(&[(0, 4096), (4096 + NEAR_BYTES, 4096)]).seeks, 1);
        assert_eq!(scatter(&[(0, 4096), (4097 + NEAR_BYTES, 4096)]).seeks, 2);
        assert_eq!(scatter(&[(8192, 4096), (4096, 4096)]).seeks, 1);
        assert_eq!(scatter(&[(8192 + NEAR_BYTES, 4096), (4096, 4096)]).seeks, 2, "far back is a seek");
        assert_eq!(scatter(&[(u64::MAX - 1, 4096), (0, 1)]).seeks, 2);
    }

    #[test]
    fn a_layout_pays_by_seeks_and_by_their_share() {
        let of = |seeks| Scatter { seeks, runs: seeks, bytes: 0 };
        assert!(of(1000).pays(&of(20)));
        assert!(of(17).pays(&of(1)));
        assert!(!of(16).pays(&of(1)), "too few");
        assert!(!of(1000).pays(&of(950)), "too small a share");
        assert!(!of(10).pays(&of(20)));
    }
}
