//! The flash of the two telephones, and the requests to it (Nakamura and others, "フラッシュストレージ搭載 Android 端末における
//! I/O スケジューリング", 2013).

use hs_device::Medium;
use hs_engine::queue::{Class, ClientKey, Direction, ElevatorKind, MediumTraits, QueueConfig};
use hs_lab::{Pattern, Station, Stream};
use hs_units::{ByteRange, Nanos};

/// Bytes of the file that is read.
pub(crate) const FILE: u64 = 1 << 30;

/// Bytes that a read of one byte brings: a page.
pub(crate) const PAGE: u64 = 4 << 10;

/// Threads of the benchmarks.
pub(crate) const THREADS: u64 = 16;

/// The processor's time from the end of a read to the next: a few system calls. A choice.
pub(crate) const THINK: Nanos = Nanos(50_000);

/// How long CFQ waits for a thread's next request: the kernel's default, also here, since these devices take
/// one request at a time.
const SLICE_IDLE: Nanos = Nanos::from_millis(8);

/// A telephone's flash, its name in the paper, and whether its files come through a process (FUSE) that
/// serves one request at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telephone {
    pub(crate) name: &'static str,
    pub(crate) medium: &'static str,
    pub(crate) daemon: bool,
}

/// Both, as the paper's table 1 has them.
pub(crate) const TELEPHONES: [Telephone; 2] = [
    Telephone { name: "Nexus S", medium: "emmc-2010", daemon: false },
    Telephone { name: "Nexus 7", medium: "emmc-2012", daemon: true },
];

/// The same without the mechanism: every step takes as long.
const WITHOUT_STEPS: &str = "flat-300us-40mbs-serial";

impl Telephone {
    pub(crate) fn station(self) -> Box<dyn Station> {
        named(self.medium)
    }
}

fn named(medium: &str) -> Box<dyn Station> {
    Box::new(
        Medium::parse(medium).expect("a name of the list").device(FILE).expect("fits").expect("modelled"),
    )
}

/// A medium without an effect of the address step.
pub(crate) fn without_steps() -> Box<dyn Station> {
    named(WITHOUT_STEPS)
}

/// One of the kernel's elevators before such a device.
pub(crate) fn queue(elevator: ElevatorKind) -> QueueConfig {
    let traits = MediumTraits { rotational: false, overlaps: false, bytes_per_s: Some(20e6) };
    QueueConfig { elevator, fairness: None, slice_idle: SLICE_IDLE, ..QueueConfig::for_medium(traits) }
}

/// Threads that read single bytes of the first part of the file.
pub(crate) fn threads(bytes: u64) -> Vec<Stream> {
    let stream = |thread: u64| Stream {
        client: ClientKey(thread),
        class: Class::Demand,
        direction: Direction::Read,
        pattern: Pattern::Random,
        region: ByteRange::new(0, bytes),
        bytes: PAGE,
        depth: 1,
        think: THINK,
        begins: Nanos(thread),
    };
    (0..THREADS).map(stream).collect()
}
