//! Optical drives by how they control the rotation.
//!
//! A disc has the same density everywhere, so the rate under the head is the speed of the spiral there. What
//! a drive keeps constant differs by ring; each [`Rotation`] is a list of rings of two kinds. docs/MEDIA.md
//! has the formulas.

use core::fmt;

use hs_units::Nanos;

use crate::Device;
use crate::cd::{self, DISC, SINGLE_SPEED};
use crate::drive::Drive;
use crate::surface::Surface;

/// What a drive keeps constant, and where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rotation {
    /// Constant linear velocity: the same rate everywhere.
    Clv,
    /// Constant angular velocity: the rate grows with the radius.
    Cav,
    /// Three rings of constant angular velocity each.
    Zcav,
    /// Three rings of constant linear velocity each.
    Zclv,
    /// Constant angular velocity up to the middle of the radius, constant linear velocity from there on.
    Pcav,
}

impl Rotation {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Clv, Self::Cav, Self::Zcav, Self::Zclv, Self::Pcav];

    /// Its abbreviation in small letters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clv => "clv",
            Self::Cav => "cav",
            Self::Zcav => "zcav",
            Self::Zclv => "zclv",
            Self::Pcav => "pcav",
        }
    }
}

/// A drive whose disc of 80 minutes is filled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OpticalDrive {
    /// How it turns.
    pub rotation: Rotation,
    /// Highest rate, in multiples of 150 KiB a second: what the drive is sold as.
    pub speed: u32,
}

impl OpticalDrive {
    /// Bytes that the disc holds.
    pub const CAPACITY: u64 = cd::CAPACITY;
    /// Highest speed that a name can ask for: the fastest drive that was sold.
    pub const FASTEST: u32 = 72;
    /// The shape of the names that [`parse`](Self::parse) accepts, for messages.
    pub const GRAMMAR: &str = "cd-<N>x-<clv|cav|zcav|zclv|pcav>";

    /// The drive that `name` describes, such as `cd-40x-clv`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (speed, control) = name.strip_prefix("cd-")?.split_once("x-")?;
        let rotation = Rotation::ALL.into_iter().find(|rotation| rotation.name() == control)?;
        let digits = !speed.is_empty() && speed.bytes().all(|byte| byte.is_ascii_digit());
        let speed: u32 = if digits { speed.parse().ok()? } else { return None };
        (1..=Self::FASTEST).contains(&speed).then_some(Self { rotation, speed })
    }

    /// A fresh drive whose disc holds a file of `file_bytes` that ends at the outer edge.
    ///
    /// # Panics
    /// When the file is larger than the disc.
    #[must_use]
    pub fn device(self, file_bytes: u64) -> Box<dyn Device> {
        assert!(file_bytes <= Self::CAPACITY, "the file fits on the disc");
        let rings = Rings::new(self);
        let spec = cd::spec(rings.turn, rings.track(Self::CAPACITY));
        Box::new(Drive::new(rings, spec, cd::base(file_bytes)))
    }

    /// Command, a seek over a third of the disc, half a turn.
    #[must_use]
    pub fn latency(self) -> Nanos {
        cd::latency_at(Rings::new(self).turn)
    }

    /// Bytes a second under the head at byte `place` of the disc.
    #[must_use]
    pub fn rate(self, place: u64) -> f64 {
        let rings = Rings::new(self);
        rings.bytes_per_turn(place.min(Self::CAPACITY)) / rings.turn
    }
}

impl fmt::Display for OpticalDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cd-{}x-{}", self.speed, self.rotation.name())
    }
}

/// What is constant in a ring.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Constant {
    /// Bytes a second.
    Rate(f64),
    /// Seconds a turn.
    Turn(f64),
}

/// A part of the disc, up to the next one.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Ring {
    /// Its first byte.
    first_byte: u64,
    /// Seconds of reading that lie before it.
    begins: f64,
    constant: Constant,
}

/// A disc as this drive turns it.
///
/// A turn is a unit of time here: what the disc takes for one at the middle of its radius. Where the angular
/// velocity changes, the wait for a sector is therefore that of the middle.
struct Rings {
    rings: Vec<Ring>,
    turn: f64,
}

impl Rings {
    fn new(drive: OpticalDrive) -> Self {
        let rate = f64::from(drive.speed) * SINGLE_SPEED;
        let step = (DISC.outer - DISC.inner) / 3.0;
        let radius = |ring: u32| DISC.inner + step * f64::from(ring);
        // A turn at a radius, when `rate` bytes a second pass there.
        let turn = |at: f64, rate: f64| DISC.bytes_per_turn(DISC.place_at(at)) / rate;
        // What the outermost ring has at `rate`, the others have as far as the spindle reaches it at their
        // inner edges.
        let of_ring = |ring: u32| rate * radius(ring) / radius(2);
        let middle = f64::midpoint(DISC.inner, DISC.outer);
        let parts = match drive.rotation {
            Rotation::Clv => vec![(DISC.inner, Constant::Rate(rate))],
            Rotation::Cav => vec![(DISC.inner, Constant::Turn(turn(DISC.outer, rate)))],
            Rotation::Zclv => (0..3).map(|ring| (radius(ring), Constant::Rate(of_ring(ring)))).collect(),
            Rotation::Zcav => (0..3)
                .map(|ring| (radius(ring), Constant::Turn(turn(radius(ring + 1), of_ring(ring)))))
                .collect(),
            Rotation::Pcav => {
                vec![(DISC.inner, Constant::Turn(turn(middle, rate))), (middle, Constant::Rate(rate))]
            }
        };
        let mut rings: Vec<Ring> = Vec::new();
        for (inner, constant) in parts {
            let first_byte = DISC.place_at(inner);
            let begins = rings.last().map_or(0.0, |ring| ring.seconds(first_byte));
            rings.push(Ring { first_byte, begins, constant });
        }
        let mut disc = Self { rings, turn: 1.0 };
        let rate = disc.ring(DISC.place_at(middle)).rate(DISC.place_at(middle));
        disc.turn = DISC.bytes_per_turn(DISC.place_at(middle)) / rate;
        disc
    }

    fn ring(&self, place: u64) -> &Ring {
        let after = self.rings.partition_point(|ring| ring.first_byte <= place);
        &self.rings[after.saturating_sub(1)]
    }
}

impl Ring {
    /// Seconds of reading from the disc's first byte to `place`, which lies in the ring or ends it.
    fn seconds(&self, place: u64) -> f64 {
        let within = match self.constant {
            Constant::Rate(rate) => (place - self.first_byte) as f64 / rate,
            Constant::Turn(turn) => (DISC.turns(place) - DISC.turns(self.first_byte)) * turn,
        };
        self.begins + within
    }

    fn rate(&self, place: u64) -> f64 {
        match self.constant {
            Constant::Rate(rate) => rate,
            Constant::Turn(turn) => DISC.bytes_per_turn(place) / turn,
        }
    }

    /// The byte after `seconds` of reading, if the ring goes on so long.
    fn place(&self, seconds: f64) -> u64 {
        let within = (seconds - self.begins).max(0.0);
        match self.constant {
            Constant::Rate(rate) => self.first_byte + (within * rate) as u64,
            Constant::Turn(turn) => DISC.place(DISC.turns(self.first_byte) + within / turn),
        }
    }
}

impl Surface for Rings {
    fn capacity(&self) -> u64 {
        DISC.capacity
    }

    fn turns(&self, place: u64) -> f64 {
        self.ring(place).seconds(place) / self.turn
    }

    fn place(&self, turns: f64) -> u64 {
        let seconds = turns * self.turn;
        let after = self.rings.partition_point(|ring| ring.begins <= seconds);
        self.rings[after.saturating_sub(1)].place(seconds)
    }

    fn track(&self, place: u64) -> f64 {
        DISC.track(place)
    }

    fn bytes_per_turn(&self, place: u64) -> f64 {
        self.ring(place).rate(place) * self.turn
    }
}

#[cfg(test)]
mod tests {
    use hs_units::ByteRange;
    use proptest::prelude::*;

    use super::*;
    use crate::Medium;

    fn rates(rotation: Rotation) -> Vec<f64> {
        let drive = OpticalDrive { rotation, speed: 24 };
        (0..=100).map(|percent| drive.rate(OpticalDrive::CAPACITY / 100 * percent)).collect()
    }

    #[test]
    fn no_control_is_slower_outside_than_inside() {
        for rotation in Rotation::ALL {
            let rates = rates(rotation);
            assert!(rates.windows(2).all(|pair| pair[0] <= pair[1] * 1.000_001), "{rotation:?} {rates:?}");
            assert!((rates[100] / (24.0 * SINGLE_SPEED) - 1.0).abs() < 0.01, "{rotation:?} {rates:?}");
            let falls = rotation == Rotation::Clv || rates[0] < rates[100] * 0.7;
            assert!(falls, "{rotation:?} {rates:?}");
        }
    }

    #[test]
    fn cav_at_24x_is_the_drive_of_that_name() {
        let drive = OpticalDrive { rotation: Rotation::Cav, speed: 24 };
        assert_eq!(drive.to_string(), "cd-24x-cav");
        let mut ours = drive.device(600_000_000);
        let mut named = Medium::Cd24xCav.device(600_000_000).expect("fits").expect("modelled");
        let mut now = Nanos::ZERO;
        for offset in [0, 300_000_000, 10_000_000, 10_065_536, 599_000_000] {
            let range = ByteRange::new(offset, 65_536);
            let (mine, its) = (ours.submit(now, range), named.submit(now, range));
            // The unit of a turn differs, the time of one does not: a turn of rounding at most.
            let off = mine.done.as_secs_f64() - its.done.as_secs_f64();
            assert!(off.abs() < 0.013, "{offset}: {mine:?} {its:?}");
            now = mine.done.max(its.done);
        }
    }

    proptest! {
        #[test]
        fn place_is_the_inverse_of_turns(place in 0..DISC.capacity, which in 0..5_usize) {
            let rings = Rings::new(OpticalDrive { rotation: Rotation::ALL[which], speed: 40 });
            let back = rings.place(rings.turns(place));
            prop_assert!(back.abs_diff(place) <= 64, "{place} {back}");
            prop_assert!(rings.turns(place) < rings.turns(place + 2_048));
        }
    }
}
