//! Models that come with the program. docs/MEDIA.md has the source of each figure.

use core::num::{NonZeroU32, NonZeroU64};

use hs_units::Nanos;

use crate::emmc::EmmcSpec;
use crate::link::LinkSpec;
use crate::model::{Model, ModelKind, ModelName};
use crate::ssd::{SsdRates, SsdSpec};
use crate::turning::DiskSpec;

/// A model that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    kind: ModelKind,
}

impl Preset {
    /// The model.
    #[must_use]
    pub const fn model(&self) -> Model {
        let name = ModelName::new(self.name).expect("names of presets are names");
        let capacity_bytes = match self.kind {
            ModelKind::Disk(disk) => Some(disk.capacity_bytes),
            _ => None,
        };
        Model { name, capacity_bytes, kind: self.kind }
    }
}

const fn rates(bytes_per_s: u64, sequential_per_s: u64, random_per_s: u64) -> SsdRates {
    SsdRates { bytes_per_s, sequential_per_s, random_per_s }
}

const fn emmc(command_us: u64, page_read_us: u64, bytes_per_s: u64) -> ModelKind {
    let (command, page_read) = (Nanos(command_us * 1_000), Nanos(page_read_us * 1_000));
    ModelKind::Emmc(EmmcSpec { command, page_read, bytes_per_s })
}

const fn link(bits_per_s: u64, round_trip_us: u64) -> ModelKind {
    let bits_per_s = NonZeroU64::new(bits_per_s).expect("a link carries something");
    ModelKind::Link(LinkSpec {
        bits_per_s,
        round_trip: Nanos(round_trip_us * 1_000),
        shared_by: NonZeroU32::MIN,
    })
}

/// All of them.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "usb2-stick",
        about: "memory stick on USB 2.0: one request at a time, 30 MB/s",
        kind: ModelKind::Ssd(SsdSpec {
            read: rates(30_000_000, 2_000, 1_000),
            write: rates(10_000_000, 1_000, 30),
            latency: Nanos::ZERO,
            stream_bytes_per_s: None,
            queued: false,
            apart: false,
        }),
    },
    Preset {
        name: "sd-uhs1",
        about: "SD card on UHS-I (SDR50), class U1 and A1: one request at a time, 45 MB/s",
        kind: ModelKind::Ssd(SsdSpec {
            read: rates(45_000_000, 3_000, 1_500),
            write: rates(10_000_000, 1_000, 500),
            latency: Nanos::ZERO,
            stream_bytes_per_s: None,
            queued: false,
            apart: false,
        }),
    },
    Preset {
        name: "emmc-2010",
        about: "flash of a telephone of 2010: one request at a time, 20 MB/s, going up cheaper than going down",
        kind: emmc(250, 75, 20_000_000),
    },
    Preset {
        name: "emmc-2012",
        about: "flash of a tablet of 2012: one request at a time, 40 MB/s, going up cheaper than going down",
        kind: emmc(150, 75, 40_000_000),
    },
    Preset {
        name: "hdd-2010",
        about: "hard disk of a computer at home about 2010: 161 to 81 MB/s, 20 ms elsewhere",
        // Its owner's figures (seeds 003): 226 MB in 1.4 and in 2.8 s, 20 ms for a new position: command,
        // seek, half a turn.
        kind: ModelKind::Disk(DiskSpec {
            capacity_bytes: 1_000_000_000_000,
            turn: Nanos(60_000_000_000 / 7_200),
            heads: 4,
            zones: 30,
            outer_bytes_per_s: 161_400_000,
            inner_bytes_per_s: 80_700_000,
            seek_next: Nanos(1_800_000),
            seek_average: Nanos(15_633_000),
            seek_full: Nanos(31_266_000),
            buffer_bytes: 512 << 10,
            command: Nanos(200_000),
            interface_bytes_per_s: 266_000_000,
        }),
    },
    Preset {
        name: "ssd-sata",
        about: "SATA SSD: the kernel's io.cost model for an unknown one, 489 MB/s",
        kind: ModelKind::Ssd(SsdSpec {
            read: rates(488_636_629, 8_932, 8_518),
            write: rates(427_891_549, 28_755, 21_940),
            latency: Nanos::ZERO,
            stream_bytes_per_s: None,
            queued: true,
            apart: false,
        }),
    },
    Preset {
        name: "nvme",
        about: "NVMe SSD: the kernel's io.cost model for a fast one, 3.1 GB/s, reads of 80 µs",
        kind: ModelKind::Ssd(SsdSpec {
            read: rates(3_102_524_156, 724_816, 778_122),
            write: rates(1_742_780_862, 425_702, 443_193),
            latency: Nanos(80_000),
            stream_bytes_per_s: None,
            queued: true,
            apart: false,
        }),
    },
    Preset {
        name: "lan-1g",
        about: "Gigabit Ethernet, one switch: round trip of 0.2 ms",
        kind: link(1_000_000_000, 200),
    },
    Preset {
        name: "lan-100m",
        about: "Ethernet of 100 Mbit/s, one switch: round trip of 0.3 ms",
        kind: link(100_000_000, 300),
    },
    Preset {
        name: "lan-10m",
        about: "Ethernet of 10 Mbit/s: round trip of 1 ms",
        kind: link(10_000_000, 1_000),
    },
    Preset {
        name: "wan-20ms",
        about: "line of 100 Mbit/s with a round trip of 20 ms",
        kind: link(100_000_000, 20_000),
    },
];

/// The preset called `name`.
pub(crate) fn preset(name: &str) -> Option<Model> {
    PRESETS.iter().find(|preset| preset.name == name).map(Preset::model)
}
