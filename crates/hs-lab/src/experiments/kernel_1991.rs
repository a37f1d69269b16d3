//! The kernel of 1991, in terms of the engine's queue.

use hs_engine::queue::{Class, ClassConfig, ElevatorKind, MediumTraits, QueueConfig};
use hs_units::Nanos;

/// Bytes of a block of the file system.
pub(super) const BLOCK: u64 = 8 << 10;

/// Most bytes of a merged transfer (Tezuka 1991, section 3).
const MERGE: u64 = 128 << 10;

/// A queue like that of the kernel's disk driver: one request at a time, sorted one way across the disk, nobody has a share
/// of his own. `merge` is the paper's section 3, `by_class` its section 4, where synchronous requests go before
/// asynchronous ones.
pub(super) fn kernel(merge: bool, by_class: bool) -> QueueConfig {
    let config = QueueConfig::for_medium(MediumTraits { rotational: true, overlaps: false, bytes_per_s: None });
    let merge_bytes = if merge { MERGE } else { 0 };
    // The paper asks for a remedy against starvation and does not tell its own: here it is that of the engine.
    let class = |class: ClassConfig| ClassConfig { merge_bytes, depth: 1, hold_off: Nanos::ZERO, ..class };
    QueueConfig {
        elevator: ElevatorKind::CLook,
        classes: config.classes.map(class),
        by_class,
        fairness: None,
        ..config
    }
}

/// What a synchronous request is to the queue, and what an asynchronous one.
pub(super) const SYNCHRONOUS: Class = Class::Demand;
/// See [`SYNCHRONOUS`].
pub(super) const ASYNCHRONOUS: Class = Class::Fill;

/// KiB a second, the paper's KB.
pub(super) fn rate(bytes: u64, time: Nanos) -> f64 {
    bytes as f64 / 1024.0 / time.as_secs_f64()
}
