//! A disk of a virtual machine in a cloud that was made from a snapshot: a block of it comes from an object
//! store when it is first touched, and is near from then on.
//!
//! ```text
//! done = now + 0.5 ms                             where every block of the request was touched before
//!        the last first touch + 20 ms             elsewhere; first touches begin 1/300 s apart at least
//! ```
//!
//! Requests overlap. Blocks are 512 KiB. The figures are those that a goal names (docs/MEDIA.md), not a
//! provider's. Not modelled: a limit of bytes or of requests of what was touched before.

use std::collections::BTreeMap;

use hs_units::{ByteRange, Nanos};

use crate::{Device, Service, WritableDevice};

/// What is brought by one first touch.
const BLOCK_BYTES: u64 = 512 << 10;
/// How long a first touch takes.
const FIRST_TOUCH: Nanos = Nanos::from_millis(20);
/// How long everything else takes.
const NEAR: Nanos = Nanos(500_000);
/// First touches a second.
const TOUCHES_PER_S: u64 = 300;

/// Bytes a second of a long sequential read of what was not touched yet.
pub(crate) const RATE: u64 = BLOCK_BYTES * TOUCHES_PER_S;

/// Time to the first byte of a typical request of a start: it meets a block that was not touched.
pub(crate) const fn latency() -> Nanos {
    FIRST_TOUCH
}

/// A volume of which nothing was touched.
#[derive(Default)]
pub(crate) struct CloudVolume {
    /// The blocks that were touched, and when they are near.
    near_at: BTreeMap<u64, Nanos>,
    /// The next first touch may begin.
    next_touch: Nanos,
}

impl Device for CloudVolume {
    fn submit(&mut self, now: Nanos, request: ByteRange) -> Service {
        let mut done = now + NEAR;
        let blocks = request.offset / BLOCK_BYTES..=(request.end().max(request.offset + 1) - 1) / BLOCK_BYTES;
        for block in blocks {
            let near_at = *self.near_at.entry(block).or_insert_with(|| {
                let starts = self.next_touch.max(now);
                self.next_touch = starts + Nanos(1_000_000_000 / TOUCHES_PER_S);
                starts + FIRST_TOUCH
            });
            done = done.max(near_at);
        }
        Service { starts: now, first_byte: done, done }
    }

    /// What was asked for is fetched all the same.
    fn abandon(&mut self, _now: Nanos, _service: Service) {}
}

/// Writing a block that was not touched fetches it first.
impl WritableDevice for CloudVolume {
    fn write(&mut self, now: Nanos, request: ByteRange) -> Service {
        self.submit(now, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(volume: &mut CloudVolume, now: Nanos, offset: u64, bytes: u64) -> Nanos {
        volume.submit(now, ByteRange::new(offset, bytes)).done.saturating_sub(now)
    }

    #[test]
    fn a_block_is_far_once() {
        let mut volume = CloudVolume::default();
        assert_eq!(read(&mut volume, Nanos::ZERO, 4096, 4096), FIRST_TOUCH);
        // While it comes, who asks for the same block waits for it.
        assert_eq!(read(&mut volume, Nanos::from_millis(15), 8192, 4096), Nanos::from_millis(5));
        assert_eq!(read(&mut volume, Nanos::from_millis(30), 0, BLOCK_BYTES), NEAR);
    }

    #[test]
    fn first_touches_overlap_and_are_300_a_second() {
        let mut volume = CloudVolume::default();
        let waits: Vec<Nanos> =
            (0..301).map(|block| read(&mut volume, Nanos::ZERO, block * BLOCK_BYTES, 4096)).collect();
        assert_eq!(waits[0], FIRST_TOUCH);
        let last = waits[300].as_secs_f64();
        assert!((last - 1.02).abs() < 0.001, "{last}");
        // One request of many blocks costs as many touches.
        let mut volume = CloudVolume::default();
        let long = read(&mut volume, Nanos::ZERO, 0, RATE).as_secs_f64();
        assert!((long - (1.02 - 1.0 / 300.0)).abs() < 0.001, "{long}");
    }
}
