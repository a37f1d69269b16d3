//! How things end before they are done: reads that are cancelled or wait for too long, and the disk's own
//! end.

use hs_units::Nanos;

use super::DiskEngine;
use super::action::{Action, Form, ReadId, Why};
use super::chunk_table::Stage;
use super::decoders::Decoder;
use super::fetches::Purpose;
use super::image_map::{ChunkKey, ImageMap};
use super::reads::Progress;

impl<M: ImageMap> DiskEngine<M> {
    /// Nothing waits for a chunk any more: what is in the queue for it alone is taken back.
    pub(super) fn abandon(&mut self, now: Nanos, slot: u32) {
        match self.table[slot].stage {
            Stage::Joined => {
                self.table[slot].stage = Stage::Absent;
                if let ChunkKey::Hot(chunk) = self.table[slot].key {
                    self.joined.retain(|joined| *joined != chunk);
                }
            }
            Stage::Queued { request }
                if self.fetches.requests[request].purpose == Some(Purpose::Chunk(slot)) =>
            {
                self.forget_request(now, request);
                self.table[slot].stage = Stage::Absent;
            }
            Stage::AwaitsIndex { page } => {
                self.table[slot].stage = Stage::Absent;
                self.table[page].dependents.retain(|other| *other != slot);
                if !self.table[page].is_awaited() {
                    self.abandon(now, page);
                }
            }
            _ => {}
        }
        self.table.tidy(slot);
    }

    /// Fails reads that have waited for too long. Returns when the next one will have.
    pub(super) fn expire(&mut self, now: Nanos) -> Option<Nanos> {
        while let Some(id) = self.reads.oldest() {
            let then = Nanos(self.reads.slab[id.index].at.0.saturating_add(self.read_timeout?.0));
            if now < then {
                return Some(then);
            }
            match self.reads.slab[id.index].progress {
                // It has everything, and waits for a delivery alone.
                Progress::Held => self.complete(id.index),
                _ => self.fail_read(now, id, Why::TimedOut),
            }
        }
        None
    }

    /// The next bytes that nothing needs.
    pub(super) fn next_drop(&mut self) -> Option<Action> {
        if let Some((key, form)) = self.drops.pop_front() {
            return Some(Action::Drop(key, form));
        }
        let chunk = self.dropped_wires.pop_front()?;
        Some(Action::Drop(ChunkKey::Hot(chunk), Form::Tripwire))
    }

    /// See [`DiskEngine::handle_shutdown`].
    pub(super) fn shut_down(&mut self, now: Nanos) {
        self.shut_down = true;
        self.prefetch.stop();
        if std::mem::take(&mut self.deliveries.untold)
            && let Some((slot, decoder)) = self.deliveries.by_decoder.take()
        {
            self.decoders.set(decoder, Decoder::Free);
            self.unpin(slot);
        }
        self.answer_held();
        for index in 0..self.reads.slab.end() {
            let waits = |read: &super::reads::Read| read.progress == Progress::Waiting;
            if self.reads.slab.get(index).is_some_and(waits) {
                let id = self.reads.id(index);
                self.fail_read(now, id, Why::Shutdown);
            }
        }
        for request in 0..self.fetches.requests.end() {
            if self.fetches.requests.get(request).is_some() {
                self.forget_request(now, request);
            }
        }
        self.fetches.stream_requests.clear();
        self.refuse_permits();
        self.joined.clear();
        while let Some(slot) = self.deliveries.waiting.pop_front() {
            self.unpin(slot);
        }
        self.tripwires.clear(&mut self.dropped_wires);
        self.forget_chunks();
        for index in 0..self.fetches.slab.end() {
            if self.fetches.slab.get(index).is_some() {
                self.cancel_unwanted(index);
            }
        }
    }

    /// Drops every chunk that nothing under way needs.
    fn forget_chunks(&mut self) {
        self.resize_cache(0);
        self.stop_background();
        self.shrink_filled(0);
        for slot in 0..self.table.end() {
            if self.table.get(slot).is_none() {
                continue;
            }
            // Or it would be forgotten between two steps.
            self.pin(slot);
            self.table[slot].dependents.clear();
            self.table[slot].decode_ticket = 0;
            self.forget_held(slot);
            self.table[slot].delivered = false;
            let stage = self.table[slot].stage;
            if !matches!(stage, Stage::InFlight { .. } | Stage::Stored | Stage::Decoding { .. } | Stage::Raw)
            {
                self.table[slot].stage = Stage::Absent;
            }
            self.unpin(slot);
        }
    }

    /// What is left to do of a disk that is shut down.
    pub(super) fn poll_shut_down(&self) -> Action {
        let is_under_way = self.is_under_way() || self.reads.slab.len() > 0;
        if is_under_way { Action::Wait } else { Action::Done }
    }

    /// Whether the shell is at anything that it will report.
    pub(super) fn is_under_way(&self) -> bool {
        self.fetches.slab.len() > 0
            || self.decoders.are_busy()
            || self.deliveries.are_under_way()
            || self.has_permits_out()
    }

    /// Whether the read can still be taken back, and takes it back.
    pub(super) fn cancel(&mut self, now: Nanos, id: ReadId) -> bool {
        if !self.reads.is_live(id) || self.reads.answering == Some(id.index) {
            return false;
        }
        self.detach(now, id.index, true);
        self.reads.slab.release(id.index);
        true
    }
}
