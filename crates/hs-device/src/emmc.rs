//! Embedded flash (eMMC) of 2010 to 2012, whose service time depends on the sign and the size of the address
//! step.
//!
//! The controller has no memory for the whole map from addresses to pages of flash, so it keeps a part of it
//! and reads the rest from the flash itself (Gupta, Kim and Urgaonkar, "DFTL: a flash translation layer
//! employing demand-based selective caching of page-level address mappings", ASPLOS 2009). A request takes
//!
//! ```text
//! command + read·(pages of the map + [not what was read ahead]) + bytes / rate
//! pages of the map = 0   where the step ends within the page of the map that is in use
//!                    1   further up: the pages of the map are read on, one behind the other
//!                    2   down: the place of the page of the map must be looked up as well
//! ```
//!
//! That going up is cheaper than going down is what Nakamura and others say of two telephones in words (2013,
//! figures 5 and 6); *why* it is cheaper is our assumption. Parameters and their sources: docs/MEDIA.md.

use hs_units::{ByteRange, Nanos};

use crate::{Device, Service, WritableDevice};

/// Bytes that a page of the map speaks of: 1,024 entries of 4 bytes for pages of 4 KiB.
const MAP_PAGE_COVERS: u64 = 4 << 20;

/// The parameters of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EmmcSpec {
    /// From the command to the controller's doing something about it, and the answer.
    pub command: Nanos,
    /// The flash reads a page.
    pub page_read: Nanos,
    /// Bytes a second from the flash to the computer.
    pub bytes_per_s: u64,
}

impl EmmcSpec {
    pub(crate) const fn device(self) -> Flash {
        Flash { spec: self, free: Nanos::ZERO, end: 0 }
    }

    /// To the first byte of a request further up.
    pub(crate) fn latency(self) -> Nanos {
        self.command + self.page_read + self.page_read
    }
}

/// A device at work: one request at a time.
pub(crate) struct Flash {
    spec: EmmcSpec,
    free: Nanos,
    /// Where the last request ended, and reading ahead began.
    end: u64,
}

impl Flash {
    /// How often the flash must be read before the first byte is there.
    fn reads(&self, request: ByteRange) -> u32 {
        let page = |place: u64| place / MAP_PAGE_COVERS;
        if request.offset == self.end {
            return u32::from(page(request.offset) != page(self.end.saturating_sub(1)));
        }
        if request.offset < self.end {
            return 3;
        }
        1 + u32::from(page(request.offset) != page(self.end.saturating_sub(1)))
    }
}

impl Device for Flash {
    fn submit(&mut self, now: Nanos, request: ByteRange) -> Service {
        let starts = now.max(self.free);
        let reads = self.spec.page_read.0 * u64::from(self.reads(request));
        let first_byte = starts + self.spec.command + Nanos(reads);
        let done = first_byte + Nanos::from_secs_f64(request.len as f64 / self.spec.bytes_per_s as f64);
        self.free = done;
        self.end = request.end();
        Service { starts, first_byte, done }
    }

    fn abandon(&mut self, now: Nanos, service: Service) {
        // Another request is queued behind, with a time that it was promised.
        if self.free != service.done {
            return;
        }
        self.free =
            if now < service.starts { service.starts } else { now.clamp(service.first_byte, service.done) };
    }
}

/// Writing takes what reading takes: the map must be found as well, and how long the flash programs is not
/// modelled.
impl WritableDevice for Flash {
    fn write(&mut self, now: Nanos, request: ByteRange) -> Service {
        self.submit(now, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLET: EmmcSpec =
        EmmcSpec { command: Nanos(150_000), page_read: Nanos(75_000), bytes_per_s: 40_000_000 };

    /// Time of a read of 4 KiB at `to` after one at `from`.
    fn step(from: u64, to: u64) -> Nanos {
        let mut device = TABLET.device();
        let before = device.submit(Nanos::ZERO, ByteRange::new(from, 4_096));
        let service = device.submit(before.done, ByteRange::new(to, 4_096));
        service.done - service.starts
    }

    #[test]
    fn going_up_is_cheaper_than_going_down_and_near_than_far() {
        let base = 512 << 20;
        let (next, near, up) =
            (step(base, base + 4_096), step(base, base + 8_192), step(base, base + (8 << 20)));
        let (down, far_down) = (step(base, base - 4_096), step(base, base - (8 << 20)));
        assert!(next < near && near < up && up < down, "{next:?} {near:?} {up:?} {down:?}");
        assert_eq!(down, far_down);
        // 150 µs, three reads of 75 µs, 4 KiB at 40 MB/s.
        assert_eq!(down, Nanos(150_000 + 3 * 75_000 + 102_400));
    }

    #[test]
    fn an_abandoned_request_leaves_the_device_free() {
        let mut device = TABLET.device();
        let service = device.submit(Nanos::ZERO, ByteRange::new(0, 1 << 20));
        device.abandon(service.first_byte, service);
        let next = device.submit(service.first_byte, ByteRange::new(8 << 20, 4_096));
        assert_eq!(next.starts, service.first_byte);
        let queued = device.submit(Nanos::ZERO, ByteRange::new(0, 4_096));
        device.abandon(Nanos::ZERO, queued);
        assert_eq!(device.submit(Nanos::ZERO, ByteRange::new(0, 4_096)).starts, next.done);
    }
}
