//! The flat medium: every request costs the same latency, wherever it lies, and bytes come at one
//! rate.
//!
//! It is the simplest model in which the number of requests and the number of bytes both cost
//! something, and stands for a network disk or a plain flash card. Two disciplines:
//!
//! - *overlapping* (a network, a deep queue): the latencies of requests in flight overlap, the
//!   transfers share one link in the order of submission. A request's first byte comes at
//!   `max(now + latency, link free)`.
//! - *serial* (a card with no queue): one request at a time, latency and transfer. A request
//!   starts at `max(now, previous done)`, its first byte comes a latency later.

use core::fmt;
use core::num::NonZeroU64;

use hs_units::{ByteRange, Nanos};

use crate::{Device, Service, WritableDevice};

/// The parameters of a flat medium. Its text is `flat-10ms-25mbs` or `flat-10ms-25mbs-serial`,
/// with `us` instead of `ms` where the latency is not whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlatSpec {
    /// Time from the start of a request to its first byte.
    pub latency: Nanos,
    /// Bytes a second that the link carries, all requests together.
    pub rate_bytes_per_second: NonZeroU64,
    /// One request at a time, instead of overlapping latencies.
    pub serial: bool,
}

impl FlatSpec {
    /// Longest latency that a name can ask for: an hour. Nothing slower is a medium.
    pub const MAX_LATENCY: Nanos = Nanos::from_millis(3_600_000);
    /// Highest rate that a name can ask for, in MB/s: a terabyte a second.
    pub const MAX_MBS: u64 = 1_000_000;
    /// The shapes of the names that [`parse`](Self::parse) accepts, for messages.
    pub const GRAMMAR: [&str; 2] = ["flat-<N>ms-<M>mbs[-serial]", "flat-<N>us-<M>mbs[-serial]"];

    /// The medium that `name` describes; nothing when the shape is not one of
    /// [`GRAMMAR`](Self::GRAMMAR), the rate is zero or a number is over its limit.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("flat-")?;
        let (rest, serial) = match rest.strip_suffix("-serial") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let (latency, rate) = rest.split_once('-')?;
        let latency_ns = match (latency.strip_suffix("ms"), latency.strip_suffix("us")) {
            (Some(millis), _) => number(millis)?.checked_mul(1_000_000)?,
            (_, Some(micros)) => number(micros)?.checked_mul(1_000)?,
            _ => return None,
        };
        let mbs = number(rate.strip_suffix("mbs")?)?;
        if latency_ns > Self::MAX_LATENCY.0 || mbs > Self::MAX_MBS {
            return None;
        }
        let rate_bytes_per_second = NonZeroU64::new(mbs * 1_000_000)?;
        Some(Self { latency: Nanos(latency_ns), rate_bytes_per_second, serial })
    }

    /// Time that `bytes` occupy the link, rounded up, so that the rate is never exceeded.
    #[must_use]
    pub fn transfer(&self, bytes: u64) -> Nanos {
        let nanos =
            (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.rate_bytes_per_second.get()));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Digits only: `u64::from_str` alone would also take a sign.
fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl fmt::Display for FlatSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.latency.0.is_multiple_of(1_000_000) {
            write!(f, "flat-{}ms", self.latency.0 / 1_000_000)?;
        } else {
            write!(f, "flat-{}us", self.latency.0 / 1_000)?;
        }
        write!(f, "-{}mbs", self.rate_bytes_per_second.get() / 1_000_000)?;
        if self.serial { f.write_str("-serial") } else { Ok(()) }
    }
}

/// A flat medium at work: see [`FlatSpec`] for what it promises.
#[derive(Clone, Debug)]
pub struct Flat {
    spec: FlatSpec,
    /// When the link (overlapping) or the whole medium (serial) has nothing more to do.
    free: Nanos,
}

impl Flat {
    /// An idle medium.
    #[must_use]
    pub const fn new(spec: FlatSpec) -> Self {
        Self { spec, free: Nanos::ZERO }
    }
}

impl Device for Flat {
    fn submit(&mut self, now: Nanos, request: ByteRange) -> Service {
        let (starts, first_byte) = if self.spec.serial {
            let starts = now.max(self.free);
            (starts, starts + self.spec.latency)
        } else {
            (now, self.free.max(now + self.spec.latency))
        };
        let done = first_byte + self.spec.transfer(request.len);
        self.free = done;
        Service { starts, first_byte, done }
    }

    fn abandon(&mut self, now: Nanos, service: Service) {
        // Another request is queued behind, with a time that it was promised.
        if self.free != service.done {
            return;
        }
        self.free = if self.spec.serial && now < service.starts {
            // It never began; the medium is free when the request before it is done.
            service.starts
        } else {
            // Before its first byte the latency is under way and cannot be taken back. For overlapping
            // requests this bound gives nothing away: a request after `now` waits for a latency that began
            // later than this one's.
            now.clamp(service.first_byte, service.done)
        };
    }
}

impl WritableDevice for Flat {
    fn write(&mut self, now: Nanos, request: ByteRange) -> Service {
        self.submit(now, request)
    }
}

#[cfg(test)]
mod tests;
