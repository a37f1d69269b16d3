//! Requests that change the disk, or wait for its changes to last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use hs_disk::Requester;
use hs_keep::KeptDisk;
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryMmap};

use crate::chain::Extent;
use crate::reading::{FAILED, FINE, LEFT, PART_BYTES, outcome_of};
use crate::request::{Request, STATUS_IO_ERROR, STATUS_OK, Wish};
use crate::ring::Ring;

/// A request whose parts are under way.
pub(crate) struct Writing {
    ring: Arc<Ring>,
    head: u16,
    status_at: GuestAddress,
    bytes: u32,
    /// Parts that are not answered.
    left: AtomicU32,
    /// The worst of its parts.
    outcome: AtomicU8,
}

impl Writing {
    /// Does what a request wishes. Waits while the connection has too much under way.
    pub(crate) fn begin(ring: &Arc<Ring>, head: u16, request: &Request) {
        let common = &ring.common;
        let Some(kept) = &common.kept else { return };
        let requester = Requester::waiting(common.client);
        let bytes = if let Wish::Write { bytes, .. } = request.wish { bytes } else { 0 };
        let writing = Arc::new(Self {
            ring: Arc::clone(ring),
            head,
            status_at: request.status_at,
            bytes,
            left: AtomicU32::new(bytes.div_ceil(PART_BYTES).max(1)),
            outcome: AtomicU8::new(FINE),
        });
        let whole = Part { writing: Arc::clone(&writing), held_bytes: 0, is_answered: false };
        match request.wish {
            Wish::Write { offset, .. } => {
                whole.withdraw();
                writing.write(kept, requester, offset, &request.data);
            }
            Wish::Zero { range, kind } => {
                common.totals.writes.fetch_add(1, Relaxed);
                kept.zero(requester, range, kind, ring.writes_last, move |result| whole.answer(result));
            }
            // This thread makes the append itself where it has nothing else to do.
            _ if ring.is_alone() => {
                ring.rest();
                kept.flush_here(move |result| whole.answer(result));
            }
            _ => kept.flush(move |result| whole.answer(result)),
        }
    }

    fn write(self: &Arc<Self>, kept: &KeptDisk, requester: Requester, offset: u64, data: &[Extent]) {
        let common = &self.ring.common;
        common.totals.writes.fetch_add(1, Relaxed);
        let mut at = 0;
        while at < self.bytes {
            let len = PART_BYTES.min(self.bytes - at);
            let mut part = Part { writing: Arc::clone(self), held_bytes: 0, is_answered: false };
            if common.room.take(len.into(), self.ring.gives_up(), || self.ring.rest()) {
                part.held_bytes = len;
                match copy_from(&self.ring.memory.memory(), data, at, len) {
                    Some(bytes) => {
                        let place = offset + u64::from(at);
                        kept.write(requester, place, bytes, self.ring.writes_last, move |result| {
                            part.answer(result);
                        });
                    }
                    None => part.end(FAILED),
                }
            } else {
                part.end(LEFT);
            }
            at += len;
        }
    }
}

/// The duty to answer a part. Dropped without an answer, it fails.
struct Part {
    writing: Arc<Writing>,
    /// Room that it has.
    held_bytes: u32,
    is_answered: bool,
}

impl Part {
    fn answer(mut self, result: Result<(), i32>) {
        self.end(match result {
            Ok(()) => FINE,
            Err(errno) => outcome_of(errno, *self.writing.ring.open()),
        });
    }

    /// There is nothing to answer.
    fn withdraw(mut self) {
        self.is_answered = true;
    }

    fn end(&mut self, outcome: u8) {
        if std::mem::replace(&mut self.is_answered, true) {
            return;
        }
        let Writing { ring, head, status_at, bytes, left, outcome: worst } = &*self.writing;
        worst.fetch_max(outcome, AcqRel);
        if self.held_bytes > 0 {
            ring.common.room.give(self.held_bytes.into());
        }
        if left.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        let status = match worst.load(Acquire) {
            FINE => STATUS_OK,
            FAILED => STATUS_IO_ERROR,
            _ => return ring.leave(),
        };
        if status == STATUS_OK {
            ring.common.totals.written_bytes.fetch_add(u64::from(*bytes), Relaxed);
        }
        ring.complete(&ring.open(), *head, Some((*status_at, status)), 0);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.end(FAILED);
    }
}

/// Copies bytes out of a guest's buffers, from the byte `at` of these on; nothing when they are not there.
fn copy_from(memory: &GuestMemoryMmap, buffers: &[Extent], at: u32, len: u32) -> Option<Vec<u8>> {
    let (mut skip, mut copied) = (at as usize, vec![0; len as usize]);
    let mut filled = 0;
    for buffer in buffers {
        let start = skip.min(buffer.len as usize);
        skip -= start;
        let now = (buffer.len as usize - start).min(copied.len() - filled);
        let place = GuestAddress(buffer.at.0.checked_add(start as u64)?);
        memory.read_slice(&mut copied[filled..filled + now], place).ok()?;
        filled += now;
    }
    (filled == copied.len()).then_some(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_read_from_any_place() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).expect("memory");
        memory.write_slice(b"abc", GuestAddress(0x10)).expect("written");
        memory.write_slice(b"defgh", GuestAddress(0x30)).expect("written");
        let extent = |at, len| Extent { at: GuestAddress(at), len };
        let buffers = [extent(0x10, 3), extent(0x20, 0), extent(0x30, 5)];
        assert_eq!(copy_from(&memory, &buffers, 0, 8).as_deref(), Some(&b"abcdefgh"[..]));
        assert_eq!(copy_from(&memory, &buffers, 2, 3).as_deref(), Some(&b"cde"[..]));
        assert_eq!(copy_from(&memory, &buffers, 4, 5), None, "they are shorter");
        assert_eq!(copy_from(&memory, &[extent(0xfff, 2)], 0, 2), None);
        assert_eq!(copy_from(&memory, &[extent(u64::MAX, 2)], 1, 1), None);
    }
}
