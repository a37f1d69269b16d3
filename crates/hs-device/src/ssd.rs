//! Flash with a controller, by the six parameters of the kernel's I/O cost model.
//!
//! The model is `block/blk-iocost.c` of Linux ("The linear IO cost model"; parameters in
//! Documentation/admin-guide/cgroup-v2.rst, `io.cost.model`): a request costs `base + pages × page`, where
//!
//! - `page = 4096 / bps`,
//! - `base = max(1 / seqiops − page, 0)` when it begins at most 16 MiB from where the last one ended, and
//! - `base = max(1 / randiops − page, 0)` elsewhere,
//!
//! each with figures of its own for reading and writing. That is how much of the device's time a request
//! takes when the device is full. It says nothing of how long one request takes alone, so a latency is added,
//! which requests that are in flight together have together, unless the device takes one at a time. Nor does
//! it say that one request has all of the rate: where it has less (`stream`), what its bytes take longer is
//! latency as well.

use core::num::NonZeroU64;

use hs_units::{ByteRange, Nanos};

use crate::{Device, Service, WritableDevice};

/// The kernel's `LCOEF_RANDIO_PAGES`: a request that begins farther away counts as random.
const NEAR_BYTES: u64 = 4096 * PAGE_BYTES;
const PAGE_BYTES: u64 = 4096;
/// Limits that are apart save unused budget for so long: a slice of `block/blk-throttle.c`.
const SAVED: Nanos = Nanos::from_millis(100);

/// What the kernel calls `bps`, `seqiops` and `randiops` of one direction. None of them is zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SsdRates {
    /// Bytes a second of large sequential requests.
    pub bytes_per_s: u64,
    /// Sequential requests of 4 KiB a second.
    pub sequential_per_s: u64,
    /// Random requests of 4 KiB a second.
    pub random_per_s: u64,
}

/// The parameters of such a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SsdSpec {
    /// `rbps`, `rseqiops`, `rrandiops`.
    pub read: SsdRates,
    /// `wbps`, `wseqiops`, `wrandiops`.
    pub write: SsdRates,
    /// What a request takes besides its cost.
    pub latency: Nanos,
    /// Requests in flight together overlap their latencies.
    pub queued: bool,
    /// Bytes a second of one request, where a single one cannot have all: the rest of its time overlaps with
    /// others' as its latency does.
    pub stream_bytes_per_s: Option<NonZeroU64>,
    /// Requests and bytes are limited apart, as by a throttle (`blkio.throttle` of control groups): what
    /// takes long is whichever of both is used up, not the sum of the kernel's model, and what is not used
    /// for a tenth of a second is saved.
    pub apart: bool,
}

/// Costs in picoseconds: a page of a fast device takes about a microsecond.
#[derive(Clone, Copy, Debug)]
struct Coefficients {
    page: u64,
    sequential: u64,
    random: u64,
}

const PICOS_PER_S: u64 = 1_000_000_000_000;

impl SsdRates {
    fn coefficients(self) -> Coefficients {
        let page = (u128::from(PAGE_BYTES) * u128::from(PICOS_PER_S))
            .div_ceil(u128::from(self.bytes_per_s.max(1))) as u64;
        let base = |per_s: u64| PICOS_PER_S.div_ceil(per_s.max(1)).saturating_sub(page);
        Coefficients { page, sequential: base(self.sequential_per_s), random: base(self.random_per_s) }
    }
}

impl SsdSpec {
    /// Bytes a second of a long sequential read in requests of 1 MiB.
    #[must_use]
    pub fn rate_bytes_per_second(&self) -> u64 {
        let Coefficients { page, sequential, .. } = self.read.coefficients();
        let request = sequential + page * 256;
        ((1_u128 << 20) * u128::from(PICOS_PER_S) / u128::from(request.max(1))) as u64
    }

    /// Time to the first byte of a random read.
    #[must_use]
    pub fn random_latency(&self) -> Nanos {
        self.latency + Nanos(self.read.coefficients().random.div_ceil(1_000))
    }
}

/// Such a device at work.
#[derive(Clone, Debug)]
pub(crate) struct Ssd {
    queued: bool,
    apart: bool,
    latency: Nanos,
    stream: Option<NonZeroU64>,
    read: Coefficients,
    write: Coefficients,
    /// Where the last request ended.
    cursor: u64,
    free: Nanos,
    /// Where limits are apart: when requests, and when bytes, will have been paid for.
    turns: Nanos,
    bytes: Nanos,
    latest: Option<Service>,
}

impl Ssd {
    /// An idle device, that was last asked for what comes before byte 0.
    pub(crate) fn new(spec: SsdSpec) -> Self {
        Self {
            queued: spec.queued,
            apart: spec.apart,
            latency: spec.latency,
            stream: spec.stream_bytes_per_s,
            read: spec.read.coefficients(),
            write: spec.write.coefficients(),
            cursor: 0,
            free: Nanos::ZERO,
            turns: Nanos::ZERO,
            bytes: Nanos::ZERO,
            latest: None,
        }
    }

    fn serve(&mut self, now: Nanos, request: ByteRange, costs: Coefficients) -> Service {
        let near = request.offset.abs_diff(self.cursor) <= NEAR_BYTES;
        let base = if near { costs.sequential } else { costs.random };
        let pages = (request.len / PAGE_BYTES).max(1);
        let transfer = u128::from(costs.page) * u128::from(pages);
        let nanos = |picos: u128| Nanos(u64::try_from(picos.div_ceil(1_000)).unwrap_or(u64::MAX));
        let alone = self
            .stream
            .map_or(0, |rate| u128::from(request.len) * u128::from(PICOS_PER_S) / u128::from(rate.get()));
        let latency = self.latency + nanos(alone.saturating_sub(transfer));
        if self.apart {
            let turn = nanos(u128::from(base + costs.page));
            return self.serve_apart(now, request, turn, nanos(transfer), latency);
        }
        let cost = nanos(u128::from(base) + transfer);
        let starts = now.max(self.free);
        let done = starts + latency + cost;
        let first_byte = done.saturating_sub(nanos(transfer.max(alone))).max(starts);
        self.cursor = request.end();
        self.free = if self.queued { starts + cost } else { done };
        let service = Service { starts, first_byte, done };
        self.latest = Some(service);
        service
    }
}

impl Ssd {
    /// Two budgets, each of which saves up for a while: the request is done when both have paid for it.
    fn serve_apart(
        &mut self,
        now: Nanos,
        request: ByteRange,
        turn: Nanos,
        transfer: Nanos,
        latency: Nanos,
    ) -> Service {
        let saved = now.saturating_sub(SAVED);
        self.turns = self.turns.max(saved) + turn;
        self.bytes = self.bytes.max(saved) + transfer;
        let done = now.max(self.turns).max(self.bytes) + latency;
        self.cursor = request.end();
        Service { starts: now, first_byte: done.saturating_sub(transfer).max(now), done }
    }
}

impl Device for Ssd {
    fn submit(&mut self, now: Nanos, request: ByteRange) -> Service {
        self.serve(now, request, self.read)
    }

    fn abandon(&mut self, now: Nanos, service: Service) {
        // Another request is queued behind, with a time that it was promised.
        if self.latest.take_if(|latest| *latest == service).is_some() {
            self.free = if now < service.starts {
                service.starts
            } else {
                self.free.min(now.max(service.first_byte))
            };
        }
    }
}

impl WritableDevice for Ssd {
    fn write(&mut self, now: Nanos, request: ByteRange) -> Service {
        self.serve(now, request, self.write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: SsdSpec = SsdSpec {
        read: SsdRates { bytes_per_s: 409_600_000, sequential_per_s: 50_000, random_per_s: 10_000 },
        write: SsdRates { bytes_per_s: 204_800_000, sequential_per_s: 25_000, random_per_s: 5_000 },
        latency: Nanos(50_000),
        stream_bytes_per_s: None,
        queued: true,
        apart: false,
    };

    fn page(at: u64) -> ByteRange {
        ByteRange::new(at, PAGE_BYTES)
    }

    #[test]
    fn a_full_device_does_what_its_figures_say() {
        let mut ssd = Ssd::new(SPEC);
        // 20 µs a sequential page, 100 µs a random one, all in flight at once.
        let sequential = (0..100).map(|each| ssd.submit(Nanos::ZERO, page(each * PAGE_BYTES))).last();
        assert_eq!(sequential.unwrap().done, Nanos(100 * 20_000 + 50_000));
        let mut ssd = Ssd::new(SPEC);
        let far = |each: u64| page((each % 2) << 40);
        let random = (1..=100).map(|each| ssd.submit(Nanos::ZERO, far(each))).last();
        assert_eq!(random.unwrap().done, Nanos(100 * 100_000 + 50_000));
        let mut ssd = Ssd::new(SPEC);
        let large = ssd.submit(Nanos::ZERO, ByteRange::new(0, 100 * PAGE_BYTES));
        // 10 µs a page, and what a request costs besides.
        assert_eq!(large.done, Nanos(100 * 10_000 + 10_000 + 50_000));
        assert_eq!(large.first_byte, Nanos(60_000));
    }

    #[test]
    fn sixteen_mebibytes_are_near() {
        let mut ssd = Ssd::new(SPEC);
        let near = ssd.submit(Nanos::ZERO, page(NEAR_BYTES));
        let at = near.done;
        assert_eq!(at, Nanos(70_000));
        let far = ssd.submit(at, page(2 * NEAR_BYTES + 2 * PAGE_BYTES));
        assert_eq!(far.done.saturating_sub(at), Nanos(150_000));
    }

    #[test]
    fn without_a_queue_latencies_do_not_overlap() {
        let mut ssd = Ssd::new(SsdSpec { queued: false, ..SPEC });
        let done: Vec<u64> =
            (0..3).map(|each| ssd.submit(Nanos::ZERO, page(each * PAGE_BYTES)).done.0).collect();
        assert_eq!(done, [70_000, 140_000, 210_000]);
    }

    #[test]
    fn limits_apart_are_two_budgets() {
        let mut ssd = Ssd::new(SsdSpec { apart: true, latency: Nanos::ZERO, ..SPEC });
        // A random page is 100 µs of requests and 10 µs of bytes; a hundred pages are 1 ms of bytes.
        assert_eq!(ssd.submit(Nanos::ZERO, page(1 << 40)).done, Nanos(100_000));
        assert_eq!(ssd.submit(Nanos(100_000), ByteRange::new(0, 100 * PAGE_BYTES)).done, Nanos(1_010_000));
        // Meanwhile requests were saved up.
        assert_eq!(ssd.submit(Nanos(1_010_000), page(1 << 40)).done, Nanos(1_020_000));
    }

    #[test]
    fn one_request_may_not_have_all_of_the_rate() {
        let stream_bytes_per_s = NonZeroU64::new(SPEC.read.bytes_per_s / 4);
        let mut ssd = Ssd::new(SsdSpec { stream_bytes_per_s, ..SPEC });
        let large = ByteRange::new(0, 100 * PAGE_BYTES);
        // 10 µs a page of the device's time, 40 µs until the request has it, 10 µs for a request, 50 µs of
        // latency.
        let first = ssd.submit(Nanos::ZERO, large);
        assert_eq!((first.first_byte, first.done), (Nanos(60_000), Nanos(100 * 40_000 + 60_000)));
        // The second one needs the device for as long as without, and overlaps the rest.
        assert_eq!(
            ssd.submit(Nanos::ZERO, large).done.saturating_sub(first.done),
            Nanos(100 * 10_000 + 10_000)
        );
    }

    #[test]
    fn writes_have_their_own_figures() {
        let mut ssd = Ssd::new(SPEC);
        assert_eq!(ssd.write(Nanos::ZERO, page(0)).done, Nanos(90_000));
    }

    #[test]
    fn an_abandoned_request_frees_what_it_had_not_used() {
        let mut ssd = Ssd::new(SPEC);
        let long = ssd.submit(Nanos::ZERO, ByteRange::new(0, 1 << 30));
        let now = Nanos(1_000_000);
        ssd.abandon(now, long);
        assert_eq!(ssd.submit(now, page(1 << 30)).starts, now);
        let (first, second) = (ssd.submit(now, page(0)), ssd.submit(now, page(0)));
        ssd.abandon(now, first);
        assert!(ssd.submit(now, page(0)).starts > second.starts, "the second keeps its place");
    }

    #[test]
    fn the_rate_is_that_of_large_requests() {
        let rate = SPEC.rate_bytes_per_second() as f64;
        assert!((rate / 409_600_000.0 - 1.0).abs() < 0.01, "{rate}");
        assert_eq!(SPEC.random_latency(), Nanos(140_000));
    }
}
