//! Another medium than the real one, in real time.
//!
//! [`Emulate`] asks a device model of `hs-device` when each request would be served, and gives the
//! bytes then: it submits at once, reads the bytes from the store below while the model's medium
//! would still be working, and sleeps until they would have arrived. So the store below must be
//! faster than the model; what it takes longer shows as it is.
//!
//! - A `read_at` returns when its last byte has arrived.
//! - A `stream` is one request. Its pieces of at most 64 KiB are handed out as they arrive; when the
//!   sink breaks, the request is abandoned and the medium is free for others. A sink that is slower
//!   than the medium does not slow the medium down: the bytes wait for it, as in a read-ahead buffer.
//! - A request that fails ([`StoreError::Read`]) takes as long as if it had not: a `read_at` until its last
//!   byte would have come, a stream until the first sector that did not. A drive's own tries are not
//!   modelled.
//! - Requests on a link share its rate as they come and go ([`hs_device::SharedLink`]); everywhere else
//!   a request is submitted when it is made and keeps the place that it got. One that was made
//!   while a stream was under way waits for that stream's end, even if the stream is abandoned
//!   meanwhile: abandon first, then ask.
//! - Requests that cannot be (beyond the end) or need not be (of no bytes) never reach the medium.
//!
//! Sleeps are to an absolute time, so that lateness of one piece is not added to the next. What
//! the layer itself costs is a lock held for the model's arithmetic, and at most 50 µs of spinning
//! a wait.

mod timing;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hs_device::{Device, Medium};
use hs_units::ByteRange;

use self::timing::Timing;
use crate::{Clock, Filter, Layer, Monotonic, Sink, Store, StoreError};

/// A store that takes as long as it would on another medium.
pub type Emulate<S> = Layer<Emulation, S>;

/// What [`Emulate`] does with requests.
pub struct Emulation {
    /// Nothing when the medium is the real one.
    timing: Option<Timing>,
    bypassed: AtomicBool,
}

/// Most bytes of a stream handed out at once: 2.6 ms at 25 MB/s, little enough that an abandoned stream gives
/// the medium back soon, large enough that sleeping costs nothing.
const PIECE_BYTES: usize = 64 << 10;
/// What must pass under the head before a medium can say that it is unreadable.
const SECTOR_BYTES: u64 = 2048;

impl<S: Store> Emulate<S> {
    /// `inner` as if it lay on a fresh, idle `medium`; for `none` the layer passes everything on.
    ///
    /// # Errors
    /// [`StoreError::Medium`] when the medium is too small for `inner`.
    pub fn new(inner: S, medium: &Medium) -> Result<Self, StoreError> {
        let device = medium
            .device(inner.len())
            .map_err(|source| StoreError::Medium { path: inner.name().to_owned(), source })?;
        let clock = Arc::new(Monotonic::new());
        Ok(Self::build(
            inner,
            match (medium.link(), device) {
                (Some(link), _) => Some(Timing::of_link(link, clock)),
                (None, device) => device.map(|device| Timing::of_device(device, clock)),
            },
        ))
    }

    /// `inner` as if it lay on `device`, on a clock of the caller's.
    #[must_use]
    pub fn with_device(inner: S, device: Box<dyn Device>, clock: Arc<dyn Clock>) -> Self {
        Self::build(inner, Some(Timing::of_device(device, clock)))
    }

    const fn build(inner: S, timing: Option<Timing>) -> Self {
        Self::around(inner, Emulation { timing, bypassed: AtomicBool::new(false) })
    }

    /// From now on, requests go to the real medium (`true`) or to the emulated one (`false`, as
    /// at first). Requests under way end as they began.
    pub fn bypass(&self, on: bool) {
        self.filter.bypassed.store(on, Ordering::Relaxed);
    }
}

impl Emulation {
    /// The model that is to serve the next request, if one is.
    fn timing(&self) -> Option<&Timing> {
        if self.bypassed.load(Ordering::Relaxed) { None } else { self.timing.as_ref() }
    }
}

impl Filter for Emulation {
    fn read_at(&self, next: &dyn Store, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let range = ByteRange::new(offset, buf.len() as u64);
        let Some(timing) = self.timing() else {
            return next.read_at(offset, buf);
        };
        let pending = timing.submit(range);
        let result = next.read_at(offset, buf);
        match &result {
            Ok(()) | Err(StoreError::Read { .. }) => timing.wait(pending, range.len, range.len),
            Err(_) => timing.abandon(pending),
        }
        result
    }

    fn stream(&self, next: &dyn Store, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let Some(timing) = self.timing() else {
            return next.stream(range, sink);
        };
        let pending = timing.submit(range);
        let mut arrived = 0;
        let mut broken = false;
        let result = next.stream(range, &mut |bytes| {
            for piece in bytes.chunks(PIECE_BYTES) {
                arrived += piece.len() as u64;
                timing.wait(pending, arrived, range.len);
                if let ControlFlow::Break(()) = sink(piece) {
                    broken = true;
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        if matches!(result, Err(StoreError::Read { .. })) {
            timing.wait(pending, arrived + SECTOR_BYTES, range.len);
        }
        if broken || result.is_err() {
            timing.abandon(pending);
        }
        result
    }

    fn close(&self) {
        if let Some(timing) = &self.timing {
            timing.close();
        }
    }
}

#[cfg(test)]
mod tests;
