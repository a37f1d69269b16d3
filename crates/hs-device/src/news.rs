//! The disks of Sony's NEWS workstations, for which the kernel of the 1991 paper was written.
//!
//! Geometry, interface and look-ahead are those of the table in Sony's own driver (`sddefs.c`, version 4.300
//! of June 1991, in the sources of 4.4BSD, `sys/news3400/iodev`). Other figures and their sources:
//! docs/PAPERS.md.

use core::fmt;

use hs_units::Nanos;

use crate::WritableDevice;
use crate::drive::writing::{WriteSpec, WritingDrive};
use crate::drive::{Drive, DriveSpec};
use crate::seek::{SeekCurve, SeekTimes};
use crate::surface::Surface;
use crate::tracks::Tracks;

const SECTOR_BYTES: u64 = 512;

/// Time from a command to the drive's doing something about it: the controller of the HP 97560, a SCSI disk
/// of 1991 (Ruemmler and Wilkes 1994, table 2).
const COMMAND: f64 = 0.002_2;

/// What asynchronous SCSI-1 transfers a second, at most.
const ASYNCHRONOUS: f64 = 1.5e6;

/// What a drive reads ahead that reads ahead ("32 KB look-ahead", data sheet of the Wren VI).
const LOOK_AHEAD: u64 = 32 << 10;

/// Switching heads and moving to the next cylinder, in seconds: the skews of the HP 97560, 8 and 18 of 72
/// sectors at 4002 turns a minute (Ruemmler and Wilkes 1994).
const HEAD_SWITCH: f64 = 0.001_67;
const NEXT_CYLINDER: f64 = 0.003_75;

/// A disk that the driver knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NewsDisk {
    /// CDC Wren III 94161, 182 MB unformatted, the paper's disk of 1986: no look-ahead, asynchronous.
    Wren3,
    /// CDC Wren IV 94171 with old firmware, whose look-ahead the driver switches off.
    Wren4WithoutCache,
    /// CDC Wren IV 94171, 286 MB: look-ahead, asynchronous. The paper's table 1 has it as the disk of 1988.
    Wren4,
    /// Hitachi DK515C-78, 639 MB: look-ahead, synchronous.
    Dk515c,
    /// Hitachi DK516C-16, 1280 MB: look-ahead, synchronous. The paper's table 1 has it as the disk of 1991.
    Dk516c,
    /// Sony SMO-S501, 282 MB a side: magneto-optical.
    SmoS501,
}

/// What the disks differ in.
struct Spec {
    sectors: u64,
    heads: u64,
    cylinders: u64,
    /// Seconds a turn.
    turn: f64,
    /// Bytes a second to the computer.
    interface: f64,
    look_ahead: u64,
    seek: SeekTimes,
    head_switch: f64,
    next_cylinder: f64,
    passes: u32,
}

/// A magnetic disk of 3600 turns a minute whose access time, an average seek and half a turn, is `access`
/// seconds.
const fn magnetic(geometry: [u64; 3], access: f64, interface: f64, look_ahead: u64) -> Spec {
    let turn = 1.0 / 60.0;
    let average = access - turn / 2.0;
    Spec {
        sectors: geometry[0],
        heads: geometry[1],
        cylinders: geometry[2],
        turn,
        interface,
        look_ahead,
        seek: SeekTimes { shortest: 0.003, third_stroke: average, full_stroke: average * 2.0 },
        head_switch: HEAD_SWITCH,
        next_cylinder: NEXT_CYLINDER,
        passes: 1,
    }
}

impl NewsDisk {
    /// The magnetic disks, in the order of their years.
    pub const MAGNETIC: [Self; 5] =
        [Self::Wren3, Self::Wren4WithoutCache, Self::Wren4, Self::Dk515c, Self::Dk516c];

    fn spec(self) -> Spec {
        match self {
            Self::Wren3 => magnetic([34, 9, 995], 0.030, ASYNCHRONOUS, 0),
            Self::Wren4WithoutCache => magnetic([52, 9, 1_365], 0.024, ASYNCHRONOUS, 0),
            Self::Wren4 => magnetic([52, 9, 1_365], 0.024, ASYNCHRONOUS, LOOK_AHEAD),
            // A transfer period of 62 units of 4 ns a byte.
            Self::Dk515c => magnetic([69, 14, 1_356], 0.024, 1e9 / (62.0 * 4.0), LOOK_AHEAD),
            Self::Dk516c => magnetic([81, 15, 2_165], 0.020, 1e9 / (62.0 * 4.0), LOOK_AHEAD),
            Self::SmoS501 => Spec {
                sectors: 31,
                heads: 1,
                cylinders: 18_678,
                turn: 1.0 / 40.0,
                interface: ASYNCHRONOUS,
                look_ahead: 0,
                seek: SeekTimes { shortest: 0.001, third_stroke: 0.095, full_stroke: 0.190 },
                // A spiral: the next track begins where one ends.
                head_switch: 0.0,
                next_cylinder: 0.0,
                passes: 3,
            },
        }
    }

    /// The driver's nickname of the disk, or of its kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wren3 => "hd182",
            Self::Wren4WithoutCache => "hd286-old",
            Self::Wren4 => "hd286",
            Self::Dk515c => "hd639",
            Self::Dk516c => "hd1280",
            Self::SmoS501 => "od282",
        }
    }

    fn tracks(&self) -> Tracks {
        let spec = self.spec();
        Tracks {
            track_bytes: spec.sectors * SECTOR_BYTES,
            heads: spec.heads,
            cylinders: spec.cylinders,
            head_skew: spec.head_switch / spec.turn,
            cylinder_skew: spec.next_cylinder / spec.turn,
        }
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn capacity_bytes(self) -> u64 {
        self.tracks().capacity()
    }

    /// A fresh, idle device.
    #[must_use]
    pub fn device(self) -> Box<dyn WritableDevice> {
        let spec = self.spec();
        let drive = DriveSpec {
            turn: spec.turn,
            sector_bytes: SECTOR_BYTES,
            // The drive model keeps a sector less than its buffer of what lies ahead.
            buffer_bytes: spec.look_ahead + SECTOR_BYTES,
            command: COMMAND,
            interface: spec.interface,
            seek: SeekCurve::new(spec.seek, spec.cylinders as f64),
            standby: None,
        };
        let write = WriteSpec { passes: spec.passes, buffer_bytes: LOOK_AHEAD };
        Box::new(WritingDrive { drive: Drive::new(self.tracks(), drive, 0), write })
    }

    /// Bytes a second of a long sequential read.
    #[must_use]
    pub fn rate_bytes_per_second(self) -> f64 {
        let spec = self.spec();
        (self.tracks().bytes_per_turn(0) / spec.turn).min(spec.interface)
    }

    /// Command, an average seek, half a turn.
    #[must_use]
    pub fn latency(self) -> Nanos {
        let spec = self.spec();
        Nanos::from_secs_f64(COMMAND + spec.seek.third_stroke + spec.turn / 2.0)
    }
}

impl fmt::Display for NewsDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
