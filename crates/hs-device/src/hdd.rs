//! `hdd-7200`: a hard disk of 7200 turns a minute, of the year 2005.
//!
//! docs/MEDIA.md says where each figure comes from.

use hs_units::Nanos;

use crate::drive::writing::{WriteSpec, WritingDrive};
use crate::drive::{Drive, DriveSpec};
use crate::seek::{SeekCurve, SeekTimes};
use crate::surface::Surface;
use crate::zones::{ZoneTable, Zones};
use crate::{Device, WritableDevice};

const SECTOR_BYTES: u64 = 512;

/// Seconds a turn.
const TURN: f64 = 60.0 / 7_200.0;

/// Ten surfaces, 500 GB, thirty zones from 64.8 to 31.0 MB/s sustained.
const TABLE: ZoneTable = ZoneTable {
    zones: 30,
    heads: 10,
    capacity: DISK_BYTES,
    outer_track_bytes: 64.8e6 * TURN,
    inner_track_bytes: 31.0e6 * TURN,
};

const DISK_BYTES: u64 = 500_000_000_000;

/// A file lies at the front of the first partition, of 20 GB, on the outermost cylinders.
pub(crate) const CAPACITY: u64 = 20_000_000_000;

/// Where that partition begins: sector 63, as partitioning programs of the time would have it.
const BASE: u64 = 63 * SECTOR_BYTES;

/// To the next cylinder, average, over all.
const SEEKS: SeekTimes = SeekTimes { shortest: 0.001_8, third_stroke: 0.008_5, full_stroke: 0.014_7 };

const COMMAND: f64 = 0.000_2;

fn spec(disk: &Zones) -> DriveSpec {
    DriveSpec {
        turn: TURN,
        sector_bytes: SECTOR_BYTES,
        // A segment of an 8 MB buffer that is cut into sixteen.
        buffer_bytes: 512 << 10,
        command: COMMAND,
        // Ultra DMA mode 6.
        interface: 133e6,
        seek: SeekCurve::new(SEEKS, disk.cylinders()),
        standby: None,
    }
}

/// A disk whose first partition holds a file, of at most [`CAPACITY`] bytes.
pub(crate) fn device() -> Box<dyn Device> {
    let disk = Zones::new(TABLE);
    let spec = spec(&disk);
    Box::new(Drive::new(disk, spec, BASE))
}

/// The same, written without a cache.
pub(crate) fn writable_device() -> Box<dyn WritableDevice> {
    let disk = Zones::new(TABLE);
    let spec = spec(&disk);
    let write = WriteSpec { passes: 1, buffer_bytes: spec.buffer_bytes };
    Box::new(WritingDrive { drive: Drive::new(disk, spec, BASE), write })
}

/// Bytes a second under the head at byte `offset` of the file.
pub(crate) fn rate(offset: u64) -> f64 {
    Zones::new(TABLE).bytes_per_turn(BASE.saturating_add(offset).min(DISK_BYTES)) / TURN
}

/// Command, an average seek, half a turn.
pub(crate) fn latency() -> Nanos {
    Nanos::from_secs_f64(COMMAND + SEEKS.third_stroke + TURN / 2.0)
}

#[cfg(test)]
mod tests;
