//! The geometry of a disk whose tracks are all as long.

use crate::surface::Surface;

/// Cylinders of as many tracks each, every track with as many bytes, as disks were before zones.
///
/// A drive that reads on needs time to switch heads and to move to the next cylinder. Tracks are *skewed*, so
/// that the next byte comes by just when it is ready (Ruemmler and Wilkes, "An introduction to disk drive
/// modeling", IEEE Computer 27(3), 1994: *track skewing*). So a skew counts as turns between the last byte of
/// a track and the first of the next, here as on the disk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Tracks {
    /// Bytes that pass under the head in one turn.
    pub(crate) track_bytes: u64,
    /// Tracks of a cylinder.
    pub(crate) heads: u64,
    /// Cylinders of the disk.
    pub(crate) cylinders: u64,
    /// Turns between a track and the next of its cylinder.
    pub(crate) head_skew: f64,
    /// Turns between the last track of a cylinder and the first of the next.
    pub(crate) cylinder_skew: f64,
}

impl Tracks {
    /// Turns from the first byte of a cylinder to the first of the next.
    fn turns_per_cylinder(&self) -> f64 {
        self.heads as f64 + (self.heads - 1) as f64 * self.head_skew + self.cylinder_skew
    }
}

impl Surface for Tracks {
    fn capacity(&self) -> u64 {
        self.track_bytes * self.heads * self.cylinders
    }

    fn turns(&self, place: u64) -> f64 {
        let track = place / self.track_bytes;
        let (cylinder, head) = (track / self.heads, track % self.heads);
        let within = (place % self.track_bytes) as f64 / self.track_bytes as f64;
        cylinder as f64 * self.turns_per_cylinder() + head as f64 * (1.0 + self.head_skew) + within
    }

    fn place(&self, turns: f64) -> u64 {
        let cylinder = (turns / self.turns_per_cylinder()).floor();
        let rest = turns - cylinder * self.turns_per_cylinder();
        let head = (rest / (1.0 + self.head_skew)).floor().min((self.heads - 1) as f64);
        // Between two tracks nothing passes that belongs to either.
        let within = (rest - head * (1.0 + self.head_skew)).min(1.0);
        let track = cylinder as u64 * self.heads + head as u64;
        track * self.track_bytes + (within * self.track_bytes as f64) as u64
    }

    fn track(&self, place: u64) -> f64 {
        // All heads stand over the same cylinder.
        (place / self.track_bytes / self.heads) as f64
    }

    fn bytes_per_turn(&self, _place: u64) -> f64 {
        // Over a whole cylinder, so that the rate is the sustained one.
        (self.track_bytes * self.heads) as f64 / self.turns_per_cylinder()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DISK: Tracks =
        Tracks { track_bytes: 17_408, heads: 9, cylinders: 967, head_skew: 0.1, cylinder_skew: 0.225 };

    #[test]
    fn skews_lie_between_tracks() {
        assert_eq!(DISK.turns(17_408), 1.1);
        let cylinder = DISK.turns(9 * 17_408);
        assert!((cylinder - (9.0 + 0.8 + 0.225)).abs() < 1e-9, "{cylinder}");
        assert_eq!(DISK.place(1.05), 17_408);
        assert_eq!((DISK.track(9 * 17_408 - 1), DISK.track(9 * 17_408)), (0.0, 1.0));
    }

    proptest! {
        #[test]
        fn place_is_the_inverse_of_turns(place in 0..9 * 967 * 17_408_u64) {
            let back = DISK.place(DISK.turns(place));
            prop_assert!(back == place || back + 1 == place, "{place} {back}");
            prop_assert!(DISK.turns(place) < DISK.turns(place + 1));
        }
    }
}
