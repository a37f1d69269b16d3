//! `cd-24x-cav`: a filled disc of 700 MB in a CD-ROM drive of about the year 2000.
//!
//! docs/MEDIA.md says where each figure comes from, and how the whole compares with a measured drive.

use hs_units::Nanos;

use crate::Device;
use crate::drive::{Drive, DriveSpec, Standby};
use crate::seek::{SeekCurve, SeekTimes};
use crate::spiral::Spiral;
use crate::surface::Surface;

/// Bytes of a sector of user data (ECMA-130, clause 14, mode 1).
const SECTOR_BYTES: u64 = 2_048;

/// Sectors of a disc of 80 minutes, 75 a second, sold as 700 MB.
const SECTORS: u64 = 80 * 60 * 75;

/// Bytes a second at 1×: 75 sectors.
pub(crate) const SINGLE_SPEED: f64 = 75.0 * SECTOR_BYTES as f64;

/// The program area from 25 to 58 mm (ECMA-130, clause 10). The pitch is the smallest that the standard
/// allows, 1.6 − 0.1 µm, and gives 1.195 m/s at 1×: 80 minutes do not fit otherwise.
pub(crate) const DISC: Spiral =
    Spiral { inner: 0.025, outer: 0.058, pitch: 1.5e-6, capacity: SECTORS * SECTOR_BYTES };

/// 24× is what the drive reaches at the outer edge; at the inner one it is 10.3×.
const SPEED: f64 = 24.0;

/// A third of the stroke is what "average seek" means, about 85 ms in CD-ROM drives.
const SEEKS: SeekTimes = SeekTimes { shortest: 0.005, third_stroke: 0.085, full_stroke: 0.160 };

/// What the drive does from the command to the seek, and to hand over what it has.
const COMMAND: f64 = 0.000_5;

/// Seconds a turn at a constant angular velocity.
fn turn() -> f64 {
    DISC.bytes_per_turn(DISC.capacity) / (SPEED * SINGLE_SPEED)
}

/// What such a drive does besides turning, once in `turn` seconds, over so many tracks.
pub(crate) fn spec(turn: f64, tracks: f64) -> DriveSpec {
    DriveSpec {
        turn,
        sector_bytes: SECTOR_BYTES,
        buffer_bytes: 128 << 10,
        command: COMMAND,
        // Multiword DMA mode 2.
        interface: 16.7e6,
        seek: SeekCurve::new(SEEKS, tracks),
        standby: Some(Standby { after: Nanos::from_millis(240_000), spin_up: Nanos::from_millis(3_000) }),
    }
}

/// Bytes that fit on the disc.
pub(crate) const CAPACITY: u64 = DISC.capacity;

/// The first byte on the disc of a file of `file_bytes`: it ends where the disc does, as the disc is filled
/// and the large file is the last one. So files of different sizes share the outer edge.
pub(crate) fn base(file_bytes: u64) -> u64 {
    let filled = file_bytes.div_ceil(SECTOR_BYTES).saturating_mul(SECTOR_BYTES);
    CAPACITY.saturating_sub(filled)
}

/// A drive whose disc holds a file of `file_bytes`, at most [`CAPACITY`].
pub(crate) fn device(file_bytes: u64) -> Box<dyn Device> {
    Box::new(Drive::new(DISC, spec(turn(), DISC.track(DISC.capacity)), base(file_bytes)))
}

/// Bytes a second under the head at byte `offset` of a file of `file_bytes`.
pub(crate) fn rate(file_bytes: u64, offset: u64) -> f64 {
    let place = base(file_bytes).saturating_add(offset).min(CAPACITY);
    DISC.bytes_per_turn(place) / turn()
}

/// Command, a seek over a third of the disc, half a turn.
pub(crate) fn latency() -> Nanos {
    latency_at(turn())
}

/// The same for a drive that turns once in `turn` seconds.
pub(crate) fn latency_at(turn: f64) -> Nanos {
    Nanos::from_secs_f64(COMMAND + SEEKS.third_stroke + turn / 2.0)
}

#[cfg(test)]
mod tests;
