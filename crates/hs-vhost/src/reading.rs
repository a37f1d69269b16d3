//! A read that is under way: cut into parts, each copied into the guest's buffers when it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use hs_disk::Requester;
use hs_serve::errno;
use rustix::io::Errno;
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryMmap};

use crate::chain::Extent;
use crate::request::{Request, STATUS_IO_ERROR, STATUS_OK};
use crate::ring::Ring;

/// What is asked of the disk, or given to it, at once.
pub(crate) const PART_BYTES: u32 = 512 << 10;

pub(crate) const FINE: u8 = 0;
pub(crate) const FAILED: u8 = 1;
/// This server ends before it has the bytes: the next one answers.
pub(crate) const LEFT: u8 = 2;

/// A read of a guest.
pub(crate) struct Reading {
    ring: Arc<Ring>,
    head: u16,
    data: Vec<Extent>,
    status_at: GuestAddress,
    bytes: u32,
    parts_left: AtomicU32,
    /// The worst of its parts.
    outcome: AtomicU8,
}

impl Reading {
    /// Asks the disk for these bytes. Waits while the connection has too much under way.
    pub(crate) fn begin(ring: &Arc<Ring>, head: u16, request: Request, offset: u64, bytes: u32) {
        let Request { data, status_at, .. } = request;
        let reading = Arc::new(Self {
            ring: Arc::clone(ring),
            head,
            data,
            status_at,
            bytes,
            parts_left: AtomicU32::new(bytes.div_ceil(PART_BYTES)),
            outcome: AtomicU8::new(FINE),
        });
        let common = &ring.common;
        common.totals.reads.fetch_add(1, Relaxed);
        let mut at = 0;
        while at < bytes {
            let len = PART_BYTES.min(bytes - at);
            let mut part = Part { reading: Arc::clone(&reading), at, len, holds: false, answered: false };
            if !common.room.take(len.into(), ring.gives_up(), || ring.rest()) {
                part.answer(Err(Errno::SHUTDOWN.raw_os_error()));
            } else {
                part.holds = true;
                let requester = Requester::waiting(common.client);
                let place = offset + u64::from(at);
                match &common.kept {
                    None => common.disk.submit_for(requester, place, len, move |result| {
                        part.answer(result.map_err(errno));
                    }),
                    Some(kept) => kept.submit(requester, place, len, move |result| part.answer(result)),
                }
            }
            at += len;
        }
    }
}

/// What becomes of a request that failed so. While its ring is open this server goes on, and it is the disk
/// that has ended.
pub(crate) fn outcome_of(errno: i32, is_open: bool) -> u8 {
    if errno == Errno::SHUTDOWN.raw_os_error() && !is_open { LEFT } else { FAILED }
}

struct Part {
    reading: Arc<Reading>,
    at: u32,
    len: u32,
    /// It has room.
    holds: bool,
    answered: bool,
}

impl Part {
    /// Its bytes have come, or cannot be had.
    fn answer(&mut self, result: Result<&[&[u8]], i32>) {
        self.answered = true;
        let reading = &self.reading;
        let ring = &reading.ring;
        let is_open = ring.open();
        let outcome = match result {
            Ok(pieces) if *is_open => {
                let copied = copy_to(&ring.memory.memory(), &reading.data, self.at, pieces);
                if copied == Some(self.len) { FINE } else { FAILED }
            }
            Ok(_) => LEFT,
            Err(errno) => outcome_of(errno, *is_open),
        };
        reading.outcome.fetch_max(outcome, AcqRel);
        if self.holds {
            ring.common.room.give(self.len.into());
        }
        if reading.parts_left.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        match reading.outcome.load(Acquire) {
            FINE => {
                ring.common.totals.bytes.fetch_add(reading.bytes.into(), Relaxed);
                let status = Some((reading.status_at, STATUS_OK));
                ring.complete(&is_open, reading.head, status, reading.bytes);
            }
            FAILED => {
                ring.complete(&is_open, reading.head, Some((reading.status_at, STATUS_IO_ERROR)), 0);
            }
            _ => ring.leave(),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.answered {
            self.answer(Err(Errno::IO.raw_os_error()));
        }
    }
}

/// Copies pieces into a guest's buffers, from the byte `at` of these on. Gives the bytes that fit, or nothing
/// when a buffer is not in its memory.
pub(crate) fn copy_to(
    memory: &GuestMemoryMmap,
    buffers: &[Extent],
    at: u32,
    pieces: &[&[u8]],
) -> Option<u32> {
    let (mut skip, mut copied) = (at as usize, 0);
    let mut pieces = pieces.iter();
    let mut piece: &[u8] = &[];
    for buffer in buffers {
        let len = buffer.len as usize;
        let mut place = skip.min(len);
        skip -= place;
        while place < len {
            if piece.is_empty() {
                match pieces.next() {
                    Some(next) => piece = next,
                    None => return Some(copied),
                }
                continue;
            }
            let (now, rest) = piece.split_at(piece.len().min(len - place));
            memory.write_slice(now, GuestAddress(buffer.at.0.checked_add(place as u64)?)).ok()?;
            (piece, place, copied) = (rest, place + now.len(), copied + now.len() as u32);
        }
    }
    Some(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fill_buffers_from_any_place() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).expect("memory");
        let extent = |at, len| Extent { at: GuestAddress(at), len };
        let buffers = [extent(0x10, 3), extent(0x20, 0), extent(0x30, 5)];
        let read = |at, len| {
            let mut bytes = vec![0; len];
            memory.read_slice(&mut bytes, GuestAddress(at)).expect("read");
            bytes
        };
        assert_eq!(copy_to(&memory, &buffers, 0, &[b"ab", b"", b"cdef"]), Some(6));
        assert_eq!((read(0x10, 3), read(0x30, 5)), (b"abc".to_vec(), b"def\0\0".to_vec()));
        assert_eq!(copy_to(&memory, &buffers, 6, &[b"ghi"]), Some(2), "what does not fit is left out");
        assert_eq!(read(0x30, 6), b"defgh\0");
        assert_eq!(copy_to(&memory, &buffers, 9, &[b"x"]), Some(0));
        assert_eq!(copy_to(&memory, &[extent(0xfff, 2)], 0, &[b"xy"]), None);
        assert_eq!(copy_to(&memory, &[extent(u64::MAX, 2)], 1, &[b"xy"]), None);
    }
}
