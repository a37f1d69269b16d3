//! A write whose parts are taken one after the other, and answered once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use super::outgoing::{Hold, Outgoing};
use super::wire::{Reply, errno};

/// A request that writes.
pub(super) struct Writing {
    outgoing: Arc<Outgoing>,
    reply: Reply,
    /// Parts that are not answered, and one for those that have not come.
    left: AtomicU32,
    /// The error of a part, or 0.
    errno: AtomicU32,
}

impl Writing {
    /// A request whose parts come.
    pub(super) fn new(outgoing: &Arc<Outgoing>, reply: Reply) -> Arc<Self> {
        outgoing.hold(Hold { bytes: 0, requests: 1 });
        Arc::new(Self { outgoing: Arc::clone(outgoing), reply, left: AtomicU32::new(1), errno: 0.into() })
    }

    /// A request that is its only part, and brings no bytes.
    pub(super) fn whole(outgoing: &Arc<Outgoing>, reply: Reply) -> WritePart {
        Self::new(outgoing, reply).part(0, true)
    }

    /// The duty to answer a part of so many bytes, which count until then.
    pub(super) fn part(self: &Arc<Self>, len: u32, is_last: bool) -> WritePart {
        self.outgoing.hold(Hold { bytes: len.into(), requests: 0 });
        if !is_last {
            self.left.fetch_add(1, Relaxed);
        }
        WritePart { writing: Arc::clone(self), len, is_answered: false }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // The client has gone in the middle of it.
        if self.left.load(Acquire) > 0 {
            self.outgoing.release(Hold { bytes: 0, requests: 1 });
        }
    }
}

/// The right, and the duty, to answer a part of a write. Dropped without an answer, it answers `EIO`.
pub(super) struct WritePart {
    writing: Arc<Writing>,
    len: u32,
    is_answered: bool,
}

impl WritePart {
    pub(super) fn answer(mut self, result: Result<(), u32>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<(), u32>) {
        self.is_answered = true;
        let Writing { outgoing, reply, left, errno } = &*self.writing;
        if let Err(error) = result {
            errno.store(error, Relaxed);
        }
        let bytes = self.len.into();
        if left.fetch_sub(1, AcqRel) > 1 {
            return outgoing.release(Hold { bytes, requests: 0 });
        }
        let said = match errno.load(Acquire) {
            0 => reply.done(),
            errno => reply.error(errno),
        };
        outgoing.answer(&said, Hold { bytes, requests: 1 });
    }
}

impl Drop for WritePart {
    fn drop(&mut self) {
        if !self.is_answered {
            self.send(Err(errno::EIO));
        }
    }
}
