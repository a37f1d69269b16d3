//! The hot region's stream: what the prefetch policy asks for, and the reads that wait for it.

use std::ops::Range;

use hs_units::{ByteRange, Nanos};

use super::DiskEngine;
use super::chunk_table::Stage;
use super::fetches::{Purpose, cut};
use super::image_map::{ChunkKey, ImageMap};
use super::reads::Requester;
use crate::queue::{Class, ClientKey};
use crate::{Late, Next, RequestId};

/// Hot chunks in a row that cannot be read before the prefetch gives up: a stream that passes over each bad
/// place must not go on for hours where the medium is gone.
pub(super) const UNREADABLE_IN_A_ROW: u32 = 16;

impl<M: ImageMap> DiskEngine<M> {
    /// Whether a read of a hot chunk of which nothing is known should wait for the stream.
    pub(super) fn joins(&self, chunk: u32) -> bool {
        if !self.streams() || self.prefetch.ended().is_some() {
            return false;
        }
        let expected = self.expected[chunk as usize];
        self.prefetch.late(chunk) == Late::Join
            || (expected && !self.prefetch.has_arrived(chunk) && !self.prefetch.is_stalled())
    }

    /// A read waits for the stream: what the stream has in the queue is as urgent.
    pub(super) fn hurry_stream(&mut self, now: Nanos, slot: u32, requester: Requester) {
        if requester.class != Class::Demand || self.is_expected(slot) {
            return;
        }
        for number in 0..self.fetches.stream_requests.len() {
            let request = self.fetches.stream_requests[number];
            self.promote(now, request, Class::Demand);
        }
    }

    fn is_expected(&self, slot: u32) -> bool {
        matches!(self.table[slot].key, ChunkKey::Hot(chunk) if self.expected[chunk as usize])
    }

    /// Lets the prefetch ask for what it wants now.
    pub(super) fn drive_prefetch(&mut self, now: Nanos) {
        let due = self.prefetch_then.is_some_and(|then| then <= now);
        let changed = std::mem::take(&mut self.prefetch_changed);
        if !self.streams() || self.prefetch_held || !(changed || due) {
            return;
        }
        self.prefetch_then = loop {
            match self.prefetch.poll(now) {
                Next::Request(id, run) => self.request_stream(now, id, run),
                Next::WaitUntil(then) => break Some(then),
                Next::Wait | Next::Done(_) => break None,
            }
        };
        if self.prefetch.ended().is_some() && !self.prefetch_over {
            self.prefetch_over = true;
            self.end_stream(now);
        }
        // No read may wait for memory that others hold, or for a pause that others do not leave.
        if self.prefetch_over || self.prefetch.is_stalled() {
            self.orphan_joined(now, |_| true);
        }
    }

    /// Hands a run of hot chunks to the queue. Chunks in it that come otherwise are read over, unless all do.
    pub(super) fn request_stream(&mut self, now: Nanos, id: RequestId, run: Range<u32>) {
        let request = self.fetches.requests.take();
        let mut class = Class::Prefetch;
        let mut brings = false;
        for number in run.clone() {
            let slot = self.table.enter(ChunkKey::Hot(number));
            let expected = self.expected[number as usize];
            let chunk = &mut self.table[slot];
            // What has come and has left again is not held once more: the policy does not count on its bytes.
            let is_missing = matches!(chunk.stage, Stage::Absent | Stage::Joined);
            if !is_missing || self.prefetch.has_arrived(number) {
                self.table.tidy(slot);
                continue;
            }
            let waits = !chunk.waiters.is_empty() && chunk.requester.class == Class::Demand;
            if waits && !expected {
                class = Class::Demand;
            }
            let place = self.map.hot_chunk(number);
            (chunk.place, chunk.raw_bytes) = (place.range, place.raw_bytes);
            (chunk.from_stream, chunk.delivered) = (true, false);
            chunk.stage = Stage::Queued { request };
            brings = true;
            self.joined.retain(|joined| *joined != number);
        }
        if !brings {
            // All of it comes otherwise.
            self.fetches.requests.release(request);
            return self.finish_run(now, id, run, 0);
        }
        let (first, last) = (self.map.hot_chunk(run.start).range, self.map.hot_chunk(run.end - 1).range);
        let range = ByteRange::new(first.offset, last.end() - first.offset);
        let requester = Requester { client: ClientKey::NONE, class };
        self.fetches.stream_requests.push(request);
        self.enqueue(now, request, requester, cut(range), Purpose::Stream(id, run));
    }

    /// Whether the prefetch has ended, and all that it has brought is decompressed and delivered. It looks at
    /// every chunk.
    #[must_use]
    pub fn is_stream_settled(&self) -> bool {
        let is_coming = |slot| {
            self.table.get(slot).is_some_and(|chunk| {
                let is_on_its_way = matches!(
                    chunk.stage,
                    Stage::Queued { .. } | Stage::InFlight { .. } | Stage::Stored | Stage::Decoding { .. }
                );
                chunk.from_stream && is_on_its_way
            })
        };
        self.prefetch.ended().is_some()
            && !self.deliveries.are_under_way()
            && self.deliveries.waiting.is_empty()
            && !(0..self.table.end()).any(is_coming)
    }

    /// The stream asks for nothing more. What it has in the queue is taken back, and fetches that no read
    /// waits for are not needed.
    fn end_stream(&mut self, now: Nanos) {
        if self.prefetch.ended().is_some_and(|reason| reason.is_complete()) {
            return;
        }
        while let Some(request) = self.fetches.stream_requests.pop() {
            let Some(Purpose::Stream(id, run)) = self.forget_request(now, request) else { continue };
            self.give_up_run(now, id, run, None);
        }
        for index in 0..self.fetches.slab.end() {
            let is_stream = self.fetches.slab.get(index).is_some_and(|fetch| !fetch.streams.is_empty());
            if is_stream {
                self.cancel_unwanted(index);
            }
        }
    }

    /// The stream will not bring the rest of a run: reads that wait for some of it have it fetched.
    pub(super) fn give_up_run(&mut self, now: Nanos, id: RequestId, run: Range<u32>, bytes: Option<u64>) {
        self.prefetch.handle_finished(now, id, bytes);
        self.prefetch_changed = true;
        for number in run.clone() {
            let Some(slot) = self.table.find(ChunkKey::Hot(number)) else { continue };
            let chunk = &self.table[slot];
            let is_own =
                chunk.from_stream && matches!(chunk.stage, Stage::Queued { .. } | Stage::InFlight { .. });
            if is_own {
                self.table[slot].from_stream = false;
                self.fetch_again(now, slot, false);
            }
        }
        self.orphan_joined(now, |joined| run.contains(&joined));
    }

    /// Chunks that reads expect from the stream, and for which `is_lost` holds, are fetched.
    pub(super) fn orphan_joined(&mut self, now: Nanos, is_lost: impl Fn(u32) -> bool) {
        let mut joined = std::mem::take(&mut self.joined);
        joined.retain(|chunk| {
            if !is_lost(*chunk) {
                return true;
            }
            if let Some(slot) = self.table.find(ChunkKey::Hot(*chunk))
                && self.table[slot].stage == Stage::Joined
            {
                self.fetch_again(now, slot, false);
            }
            false
        });
        // Meanwhile nothing has joined: what is fetched again does not.
        self.joined.append(&mut joined);
    }

    /// Parts of a run of the stream have come, and the fetch has ended.
    pub(super) fn finish_run(&mut self, now: Nanos, id: RequestId, run: Range<u32>, bytes: u64) {
        self.finish_part(run.clone());
        self.prefetch.handle_finished(now, id, Some(bytes));
        self.prefetch_changed = true;
        self.orphan_joined(now, |joined| run.contains(&joined));
    }

    /// The stream is past a chunk that it has not brought.
    pub(super) fn pass(&mut self, chunk: u32) {
        self.prefetch.handle_arrived(chunk);
        self.prefetch.handle_released(chunk);
        self.prefetch_changed = true;
    }
}
