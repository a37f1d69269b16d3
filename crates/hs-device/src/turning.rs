//! A hard disk by the figures of its data sheet: the drive and the zones of `hdd-7200`, with other numbers.

use hs_units::Nanos;

use crate::WritableDevice;
use crate::drive::writing::{WriteSpec, WritingDrive};
use crate::drive::{Drive, DriveSpec};
use crate::seek::{SeekCurve, SeekTimes};
use crate::zones::{ZoneTable, Zones};

/// The figures of a disk. docs/MEDIA.md says what each is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DiskSpec {
    /// Bytes of the whole disk.
    pub capacity_bytes: u64,
    /// Time of a turn.
    pub turn: Nanos,
    /// Surfaces with a head.
    pub heads: u32,
    /// Zones of different density, at least two.
    pub zones: u32,
    /// Bytes a second sustained on the outermost and on the innermost tracks.
    pub outer_bytes_per_s: u64,
    /// See [`outer_bytes_per_s`](Self::outer_bytes_per_s).
    pub inner_bytes_per_s: u64,
    /// Seek to the next cylinder.
    pub seek_next: Nanos,
    /// Average seek.
    pub seek_average: Nanos,
    /// Seek over all cylinders.
    pub seek_full: Nanos,
    /// Bytes that it reads ahead.
    pub buffer_bytes: u64,
    /// From a command to the drive's doing something about it.
    pub command: Nanos,
    /// Bytes a second from its buffer.
    pub interface_bytes_per_s: u64,
}

const SECTOR_BYTES: u64 = 512;

impl DiskSpec {
    fn seeks(&self) -> SeekTimes {
        let [shortest, third_stroke, full_stroke] =
            [self.seek_next, self.seek_average, self.seek_full].map(Nanos::as_secs_f64);
        SeekTimes { shortest, third_stroke, full_stroke }
    }

    /// Whether a seek farther away takes longer, everywhere on the curve through the three times.
    #[must_use]
    pub fn seeks_rise(&self) -> bool {
        self.seeks().rise()
    }

    fn zones(&self) -> Zones {
        let turn = self.turn.as_secs_f64();
        Zones::new(ZoneTable {
            zones: self.zones,
            heads: self.heads,
            capacity: self.capacity_bytes,
            outer_track_bytes: self.outer_bytes_per_s as f64 * turn,
            inner_track_bytes: self.inner_bytes_per_s as f64 * turn,
        })
    }

    /// A disk that turns, with its head over the file's first byte, which is the disk's.
    pub(crate) fn device(&self) -> Box<dyn WritableDevice> {
        let zones = self.zones();
        let spec = DriveSpec {
            turn: self.turn.as_secs_f64(),
            sector_bytes: SECTOR_BYTES,
            // The drive model keeps a sector less than its buffer of what lies ahead.
            buffer_bytes: self.buffer_bytes + SECTOR_BYTES,
            command: self.command.as_secs_f64(),
            interface: self.interface_bytes_per_s as f64,
            seek: SeekCurve::new(self.seeks(), zones.cylinders()),
            standby: None,
        };
        let write = WriteSpec { passes: 1, buffer_bytes: self.buffer_bytes };
        Box::new(WritingDrive { drive: Drive::new(zones, spec, 0), write })
    }

    /// Bytes a second under the head at byte `offset`.
    pub(crate) fn rate(&self, offset: u64) -> u64 {
        use crate::surface::Surface;
        (self.zones().bytes_per_turn(offset.min(self.capacity_bytes)) / self.turn.as_secs_f64()) as u64
    }

    /// Command, an average seek, half a turn.
    pub(crate) fn latency(&self) -> Nanos {
        self.command + self.seek_average + Nanos(self.turn.0 / 2)
    }
}

#[cfg(test)]
mod tests {
    use hs_units::{ByteRange, Prng};

    use super::*;
    use crate::{Device, Medium};

    #[test]
    fn hdd_2010_is_what_its_owner_says() {
        let disk = || -> Box<dyn Device> {
            Medium::parse("hdd-2010").expect("a preset").device(1 << 30).expect("fits").expect("modelled")
        };
        let (bytes, whole) = (226_000_000, 1_000_000_000_000);
        for (offset, seconds) in [(0, 1.4), (whole - bytes, 2.8)] {
            let service = disk().submit(Nanos::ZERO, ByteRange::new(offset, bytes));
            let took = (service.done - service.first_byte).as_secs_f64();
            assert!((took / seconds - 1.0).abs() < 0.02, "{took}");
        }
        let (mut prng, mut device, mut now) = (Prng::new(1), disk(), Nanos::ZERO);
        for _ in 0..2_000 {
            now = device.submit(now, ByteRange::new(prng.below(whole - 4_096), 4_096)).done;
        }
        let mean = now.as_secs_f64() / 2_000.0;
        assert!((mean / 0.020 - 1.0).abs() < 0.05, "{mean}");
    }
}
