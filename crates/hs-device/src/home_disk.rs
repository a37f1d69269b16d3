//! The hard disk of a computer at home about 2010, as its owner describes it (seeds 003).
//!
//! He names no product. His figures: 226 MB in 1.4 s on the first partition, in 2.8 s on the one that he uses, at the
//! other end; 20 ms for "a new position of the head" on average. What he does not say is that of `hdd-7200`: turns,
//! the shortest seek, command and buffer.

use hs_units::Nanos;

use crate::Device;
use crate::drive::{Drive, DriveSpec};
use crate::seek::{SeekCurve, SeekTimes};
use crate::zones::{ZoneTable, Zones};

/// Seconds a turn.
const TURN: f64 = 60.0 / 7_200.0;

const COMMAND: f64 = 0.000_2;

/// 20 ms are a command, a seek and half a turn.
const AVERAGE_SEEK: f64 = 0.020 - TURN / 2.0 - COMMAND;

/// Twice the average over the whole disk, as usual: a choice.
const SEEKS: SeekTimes =
    SeekTimes { shortest: 0.001_8, third_stroke: AVERAGE_SEEK, full_stroke: AVERAGE_SEEK * 2.0 };

/// A terabyte on four surfaces: a choice.
const TABLE: ZoneTable = ZoneTable {
    zones: 30,
    heads: 4,
    capacity: HomeDisk::CAPACITY,
    outer_track_bytes: 226e6 / 1.4 * TURN,
    inner_track_bytes: 226e6 / 2.8 * TURN,
};

/// The disk.
#[derive(Clone, Copy, Debug)]
pub struct HomeDisk;

impl HomeDisk {
    /// Bytes of the whole disk; place 0 is the fast end.
    pub const CAPACITY: u64 = 1_000_000_000_000;

    /// A fresh, idle one. Requests are ranges of the whole disk.
    #[must_use]
    pub fn device() -> Box<dyn Device> {
        let disk = Zones::new(TABLE);
        let spec = DriveSpec {
            turn: TURN,
            sector_bytes: 512,
            buffer_bytes: 512 << 10,
            command: COMMAND,
            interface: 133e6 * 2.0,
            seek: SeekCurve::new(SEEKS, disk.cylinders()),
            standby: None,
        };
        Box::new(Drive::new(disk, spec, 0))
    }

    /// Command, an average seek, half a turn.
    #[must_use]
    pub fn latency() -> Nanos {
        Nanos::from_millis(20)
    }
}

#[cfg(test)]
mod tests {
    use hs_units::{ByteRange, Prng};

    use super::*;

    #[test]
    fn the_figures_of_its_owner_come_back() {
        let bytes = 226_000_000;
        for (offset, seconds) in [(0, 1.4), (HomeDisk::CAPACITY - bytes, 2.8)] {
            let service = HomeDisk::device().submit(Nanos::ZERO, ByteRange::new(offset, bytes));
            let took = (service.done - service.first_byte).as_secs_f64();
            assert!((took / seconds - 1.0).abs() < 0.02, "{took}");
        }
        let (mut prng, mut device, mut now) = (Prng::new(1), HomeDisk::device(), Nanos::ZERO);
        for _ in 0..2_000 {
            let place = prng.below(HomeDisk::CAPACITY - 4_096);
            now = device.submit(now, ByteRange::new(place, 4_096)).done;
        }
        let mean = now.as_secs_f64() / 2_000.0;
        assert!((mean / 0.020 - 1.0).abs() < 0.05, "{mean}");
    }
}
