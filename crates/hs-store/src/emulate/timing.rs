//! When the bytes of a request come, and waiting for them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hs_device::{Device, Flow, FlowKey, LinkSpec, Service, SharedLink};
use hs_units::{ByteRange, Nanos};
use parking_lot::Mutex;

use crate::Clock;

/// The model that tells when bytes come.
pub(super) enum Modelled {
    /// It fixes the time at the request.
    Device(Mutex<Box<dyn Device>>),
    /// It shares its rate with other requests, so it must be asked repeatedly.
    Link(Mutex<SharedLink>),
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    Promised(Service),
    Shared(FlowKey),
}

/// A model at work in real time.
pub(super) struct Timing {
    modelled: Modelled,
    clock: Arc<dyn Clock>,
    next_flow: AtomicU64,
    is_closed: AtomicBool,
}

/// The shortest sleep of a thread that waits for a part of a shared link. Bytes come at most this late when
/// others leave the link, and with ten requests under way a wait for a quarter second wakes some fifty times.
const LEAST_SLEEP: Nanos = Nanos(200_000);
/// How long a wait lasts at most after the store was closed.
const LOOK: Nanos = Nanos::from_millis(50);

impl Timing {
    pub(super) fn of_device(device: Box<dyn Device>, clock: Arc<dyn Clock>) -> Self {
        Self {
            modelled: Modelled::Device(Mutex::new(device)),
            clock,
            next_flow: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(super) fn of_link(link: LinkSpec, clock: Arc<dyn Clock>) -> Self {
        Self {
            modelled: Modelled::Link(Mutex::new(SharedLink::new(link))),
            clock,
            next_flow: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// The time is taken under the lock: a device must not see it go backwards.
    pub(super) fn submit(&self, range: ByteRange) -> Pending {
        match &self.modelled {
            Modelled::Device(device) => {
                let mut device = device.lock();
                Pending::Promised(device.submit(self.clock.now(), range))
            }
            Modelled::Link(link) => {
                let key = FlowKey(self.next_flow.fetch_add(1, Ordering::Relaxed));
                let mut link = link.lock();
                link.open(self.clock.now(), key, Flow::of(range.len));
                Pending::Shared(key)
            }
        }
    }

    /// Waits until the first `bytes` of a request's `total` bytes have come.
    pub(super) fn wait(&self, pending: Pending, bytes: u64, total: u64) {
        match (pending, &self.modelled) {
            (Pending::Promised(service), _) => {
                let _ = self.sleep_until(service.arrival(bytes, total));
            }
            (Pending::Shared(key), Modelled::Link(link)) => {
                while let Some(then) = self.comes(link, key, bytes) {
                    if self.sleep_until(then).is_break() {
                        return;
                    }
                }
            }
            (Pending::Shared(_), Modelled::Device(_)) => unreachable!("a device promises"),
        }
    }

    /// Ends all waits for the medium: bytes come at once from now on.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn sleep_until(&self, then: Nanos) -> ControlFlow<()> {
        while !self.is_closed.load(Ordering::Relaxed) {
            if then <= self.clock.now() {
                return ControlFlow::Continue(());
            }
            self.clock.sleep_until(then.min(self.clock.now() + LOOK));
        }
        ControlFlow::Break(())
    }

    /// When to ask again for the first `bytes` of a flow; nothing when they have come.
    fn comes(&self, link: &Mutex<SharedLink>, key: FlowKey, bytes: u64) -> Option<Nanos> {
        let mut link = link.lock();
        let now = self.clock.now();
        while link.poll(now).is_some() {}
        let had = link.delivered(now, key)?;
        (had < bytes).then(|| link.earliest(key, bytes).max(now + LEAST_SLEEP))
    }

    /// The rest of a request is no longer needed.
    pub(super) fn abandon(&self, pending: Pending) {
        match (pending, &self.modelled) {
            (Pending::Promised(service), Modelled::Device(device)) => {
                let mut device = device.lock();
                device.abandon(self.clock.now(), service);
            }
            (Pending::Shared(key), Modelled::Link(link)) => {
                let mut link = link.lock();
                link.close(self.clock.now(), key);
            }
            (Pending::Promised(_), Modelled::Link(_)) | (Pending::Shared(_), Modelled::Device(_)) => {
                unreachable!("a request stays with its model")
            }
        }
    }
}
