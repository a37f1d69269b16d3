//! From stored bytes to raw ones, and from there into the page cache.

use hs_units::{BLOCK_BYTES, Nanos};

use super::DiskEngine;
use super::action::{Action, Damage, DecoderId, Delivered, Deliverer, Why};
use super::chunk_table::Stage;
use super::config::UseVisibility;
use super::decoders::{Decoder, Urgency};
use super::image_map::{ChunkKey, ImageMap};
use super::reads::Source;
use crate::EndReason;
use crate::cache::Origin;

impl<M: ImageMap> DiskEngine<M> {
    /// A chunk's stored bytes wait for a decoder.
    pub(super) fn await_decoder(&mut self, slot: u32, urgency: Urgency) {
        self.table[slot].decode_ticket = self.decoders.push(slot, urgency);
    }

    /// The next chunk for a decoder that is free. Chunks that no read waits for wait while much is to be
    /// delivered.
    pub(super) fn next_decode(&mut self) -> Option<Action> {
        let decoder = self.decoders.free()?;
        let table = &self.table;
        let is_valid = |slot, ticket| table.get(slot).is_some_and(|chunk| chunk.decode_ticket == ticket);
        let mut slot = self.decoders.pop(Urgency::Awaited, is_valid);
        if slot.is_none() && !self.deliveries.are_behind() {
            slot = self.decoders.pop(Urgency::Stream, is_valid);
        }
        let slot = slot.or_else(|| self.decoders.pop(Urgency::Ahead, is_valid))?;
        let chunk = &mut self.table[slot];
        chunk.decode_ticket = 0;
        chunk.stage = Stage::Decoding { decoder };
        self.decoders.set(decoder, Decoder::Decoding(slot));
        Some(Action::Decode { key: chunk.key, decoder })
    }

    /// When every decoder that does not wait for a reader is lost, what waits to be decompressed cannot be
    /// had, and that reader might wait for it.
    pub(super) fn fail_undecodable(&mut self, now: Nanos) {
        if self.decoders.any_goes_on() {
            return;
        }
        for urgency in [Urgency::Awaited, Urgency::Stream, Urgency::Ahead] {
            loop {
                let table = &self.table;
                let is_valid =
                    |slot, ticket| table.get(slot).is_some_and(|chunk| chunk.decode_ticket == ticket);
                let Some(slot) = self.decoders.pop(urgency, is_valid) else { break };
                self.table[slot].decode_ticket = 0;
                self.table[slot].early = false;
                let why = Why::WorkerLost(self.table[slot].key);
                self.lose_stored(now, slot, why);
            }
        }
    }

    /// See [`DiskEngine::handle_decoded`].
    pub(super) fn take_decoded(
        &mut self,
        now: Nanos,
        slot: u32,
        decoder: DecoderId,
        result: Result<(), Damage>,
    ) {
        self.decoders.set(decoder, Decoder::Free);
        self.table[slot].stage = Stage::Stored;
        if self.shut_down {
            self.settle(slot);
            return;
        }
        if result.is_err() {
            let why = Why::Damaged(self.table[slot].key);
            return self.lose_stored(now, slot, why);
        }
        let chunk = &mut self.table[slot];
        chunk.stage = Stage::Raw;
        chunk.served.reset(chunk.raw_bytes);
        chunk.pins += 1;
        self.raw_bytes += u64::from(chunk.raw_bytes);
        match chunk.key {
            ChunkKey::Hot(number) if chunk.from_stream => self.supply_hot(now, slot, number, decoder),
            key => self.keep_decoded(now, slot, key, decoder),
        }
        self.unpin(slot);
    }

    /// A chunk that the stream has not brought is raw.
    fn keep_decoded(&mut self, now: Nanos, slot: u32, key: ChunkKey, decoder: DecoderId) {
        let is_copy = self.table[slot].early;
        let is_delivered = self.delivers_read(slot);
        match key {
            // The copy stays, in case that its pages are dropped once more.
            ChunkKey::Hot(_) if is_copy => self.cache_stored(slot),
            // Its raw bytes leave as soon as the page cache has them.
            ChunkKey::Hot(number) if is_delivered => self.cache_hot_stored(slot, number),
            ChunkKey::Hot(_) | ChunkKey::Cold(_) | ChunkKey::Page(_) => self.drop_stored(slot),
        }
        if let ChunkKey::Hot(number) = key
            && self.streams()
        {
            self.prefetch.handle_resident(number);
            self.prefetch_changed = true;
            if is_delivered {
                // The page cache gets that block as well.
                let raw_bytes = self.table[slot].raw_bytes;
                self.tripwires.serve(number, 0, raw_bytes, &mut self.dropped_wires);
            }
            self.fill_tripwire(slot, number);
        }
        let awaited = self.table[slot].is_awaited();
        self.cache_raw(slot, if awaited { Origin::Demanded } else { Origin::Prefetched });
        if is_delivered {
            self.deliver_and_publish(now, slot, decoder);
        } else {
            self.publish(now, slot, false);
        }
        let mut dependents = std::mem::take(&mut self.table[slot].dependents);
        for window in dependents.drain(..) {
            self.table[window].stage = Stage::Absent;
            if self.table[window].is_awaited() {
                self.bring(now, window);
            } else {
                self.table.tidy(window);
            }
        }
        // None has come meanwhile, since the page is there.
        self.table[slot].dependents = dependents;
    }

    /// Whether a chunk is delivered that a read has brought: its readers will want the rest of it, and the
    /// kernel reads nothing ahead in a disk whose chunks are delivered. Where memory is short, or deliveries
    /// wait, it stays here.
    fn delivers_read(&self, slot: u32) -> bool {
        let chunk = &self.table[slot];
        let has_room = self.prefetch.ended() != Some(EndReason::Memory) && !self.deliveries.are_behind();
        let keeps = self.config.delivery.is_some() && self.config.readers_keep;
        matches!(chunk.key, ChunkKey::Hot(_)) && keeps && has_room && chunk.is_awaited()
    }

    /// A chunk that the stream has brought is raw: it is held for its readers, and delivered.
    fn supply_hot(&mut self, now: Nanos, slot: u32, number: u32, decoder: DecoderId) {
        let chunk = &mut self.table[slot];
        chunk.held = true;
        self.held_bytes += u64::from(chunk.raw_bytes);
        self.stats.streamed += 1;
        self.stats.streamed_bytes += u64::from(chunk.raw_bytes);
        self.arrived_at[number as usize] = Some(now);
        // Before any read is served from it, or the policy would see it leave before it came.
        self.prefetch.handle_arrived(number);
        self.prefetch_changed = true;
        self.cache_hot_stored(slot, number);
        self.fill_tripwire(slot, number);
        self.deliver_and_publish(now, slot, decoder);
    }

    /// A hot chunk is raw: it is delivered where chunks are, and the reads that wait for it are answered.
    fn deliver_and_publish(&mut self, now: Nanos, slot: u32, decoder: DecoderId) {
        let Some(delivery) = self.config.delivery else { return self.publish(now, slot, false) };
        self.pin(slot);
        if !delivery.before_answers {
            self.table[slot].left_out.clear();
            self.deliveries.waiting.push_back(slot);
            return self.publish(now, slot, false);
        }
        self.leave_out_awaited(slot);
        if self.deliveries.by_decoder.is_none() && self.decoders.another_goes_on(decoder) {
            self.decoders.set(decoder, Decoder::Delivering);
            self.deliveries.by_decoder = Some((slot, decoder));
            self.deliveries.untold = true;
            self.deliveries.tripwire = self.hold_back(now, slot);
            self.publish(now, slot, true);
        } else {
            self.deliveries.waiting.push_back(slot);
            self.publish(now, slot, false);
        }
    }

    /// Blocks that reads wait for are not delivered: the reads hold their pages.
    fn leave_out_awaited(&mut self, slot: u32) {
        let mut left_out = std::mem::take(&mut self.table[slot].left_out);
        left_out.clear();
        for waiter in &self.table[slot].waiters {
            if self.reads.waits(waiter.read) {
                let span = self.reads.slab[waiter.read.index].spans[waiter.span as usize];
                debug_assert_eq!(span.source, Source::Chunk(self.table[slot].key));
                let block_bytes = BLOCK_BYTES as u32;
                left_out.push(span.from / block_bytes..(span.from + span.len).div_ceil(block_bytes));
            }
        }
        left_out.sort_unstable_by_key(|blocks| blocks.start);
        self.table[slot].left_out = left_out;
    }

    /// Holds a block of a chunk back that is about to be delivered, if one should be and can be.
    fn hold_back(&mut self, now: Nanos, slot: u32) -> Option<u32> {
        let ChunkKey::Hot(number) = self.table[slot].key else { return None };
        // A chunk that a read has brought is used.
        if !self.table[slot].from_stream {
            return None;
        }
        if self.config.visibility != UseVisibility::Tripwires || !self.prefetch.handle_delivery(now, number) {
            return None;
        }
        let block = self.map.tripwire_block(number)?;
        if !self.tripwires.place(number, block, &mut self.dropped_wires) {
            return None;
        }
        self.tripwires.fill(number);
        self.prefetch.handle_tripwire(number);
        self.prefetch_changed = true;
        let chunk = &mut self.table[slot];
        // The block lies apart from now on, so the rest need not wait for it.
        chunk.served.serve(block * BLOCK_BYTES as u32, BLOCK_BYTES as u32);
        chunk.left_out.push(block..block + 1);
        chunk.left_out.sort_unstable_by_key(|blocks| blocks.start);
        Some(block)
    }

    /// A hot chunk is in memory of which a block was left out elsewhere: the shell copies the block.
    pub(super) fn fill_tripwire(&mut self, slot: u32, number: u32) {
        let Some(block) = self.tripwires.fill(number) else { return };
        self.hold_backs.push_back((number, block));
        // It lies apart from now on, so the rest need not wait for it.
        let served = self.table[slot].served.serve(block * BLOCK_BYTES as u32, BLOCK_BYTES as u32);
        if served && self.table[slot].held {
            self.release_held(slot);
        }
    }

    /// The next delivery that the shell should begin.
    pub(super) fn next_delivery(&mut self, now: Nanos) -> Option<Action> {
        if std::mem::take(&mut self.deliveries.untold)
            && let Some((slot, decoder)) = self.deliveries.by_decoder
        {
            let (key, tripwire) = (self.table[slot].key, self.deliveries.tripwire);
            return Some(Action::Deliver { key, by: Deliverer::Decoder(decoder), tripwire });
        }
        if self.deliveries.thread_lost {
            while let Some(slot) = self.deliveries.waiting.pop_front() {
                self.unpin(slot);
            }
        }
        if self.deliveries.by_thread.is_some() {
            return None;
        }
        let slot = self.deliveries.waiting.pop_front()?;
        self.deliveries.by_thread = Some(slot);
        let tripwire = self.hold_back(now, slot);
        Some(Action::Deliver { key: self.table[slot].key, by: Deliverer::Thread, tripwire })
    }

    /// See [`DiskEngine::handle_delivered`].
    pub(super) fn end_delivery(&mut self, slot: u32, delivered: Delivered) {
        match self.deliveries.by_decoder {
            Some((other, decoder)) if other == slot => {
                self.deliveries.by_decoder = None;
                self.deliveries.untold = false;
                if self.decoders.get(decoder) == Some(Decoder::Delivering) {
                    self.decoders.set(decoder, Decoder::Free);
                }
                self.answer_held();
            }
            _ if self.deliveries.by_thread == Some(slot) => self.deliveries.by_thread = None,
            _ => return,
        }
        if delivered == Delivered::Taken && !self.shut_down {
            self.forget_held(slot);
            if self.config.readers_keep {
                self.table[slot].delivered = true;
                self.uncache_raw(slot);
            }
        }
        self.unpin(slot);
    }

    /// The stored bytes of a chunk are of no use.
    pub(super) fn lose_stored(&mut self, now: Nanos, slot: u32, why: Why) {
        self.table[slot].stage = Stage::Absent;
        // What came a while ago, unverified or before it was needed: the medium may do better now that it is
        // asked.
        let is_retried = self.table[slot].early;
        self.table[slot].early = false;
        self.drop_stored(slot);
        if is_retried {
            return self.fetch_again(now, slot, true);
        }
        let key = self.table[slot].key;
        if let ChunkKey::Hot(number) = key
            && std::mem::take(&mut self.table[slot].from_stream)
        {
            self.pass(number);
        }
        if matches!(key, ChunkKey::Hot(_)) || self.table[slot].is_awaited() {
            self.lose(now, slot, Nanos::ZERO, why);
        } else {
            self.table.tidy(slot);
        }
    }
}
