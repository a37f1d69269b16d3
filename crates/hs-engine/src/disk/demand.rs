//! From a read to the chunks that it needs, and back.

use hs_units::{BLOCK_BYTES, ByteRange, Lba, Nanos};

use super::DiskEngine;
use super::action::{ReadId, Why};
use super::chunk_table::{Stage, Waiter};
use super::decoders::Urgency;
use super::fetches::Purpose;
use super::image_map::{ChunkKey, ImageMap, WindowLocation};
use super::reads::{Progress, Requester, Source, Span};
use crate::queue::Class;

/// No chunk.
const NO_SLOT: u32 = u32::MAX;

impl<M: ImageMap> DiskEngine<M> {
    /// Looks for everything that a read asks for, and sees to it that the rest comes.
    pub(super) fn submit(&mut self, now: Nanos, read: u32) {
        let (range, requester) = (self.reads.slab[read].range(), self.reads.slab[read].requester);
        let mut spans = std::mem::take(&mut self.reads.slab[read].spans);
        spans.clear();
        self.cut(range, &mut spans);
        // What the hot region has is scattered by nature: only cold windows tell of a sequential reader.
        let windows = cold_windows(&spans);
        let is_demand = requester.class == Class::Demand;
        let tripped = is_demand && self.trip(range, spans.first());
        let mut missing = 0;
        for span in &mut spans {
            self.find(span);
            missing += u32::from(!span.found);
        }
        let found_wire = tripped && spans.first().is_some_and(|span| span.found);
        if is_demand && (found_wire || self.uses_stream(&spans)) && self.prefetch.lacks_confidence() {
            self.prefetch.handle_used();
            self.prefetch_changed = true;
        }
        self.reads.slab[read].expected = is_demand && missing == 0 && self.is_only_expected(&spans);
        self.reads.slab[read].spans = spans;
        self.reads.slab[read].missing = missing;
        if missing == 0 {
            self.complete(read);
        } else {
            self.wait_for_missing(now, read, requester);
        }
        if let Some(windows) = windows {
            self.read_ahead(now, windows, requester);
        }
    }

    /// Cuts a read into spans of chunks, hot where the hot region has the block and its chunk is not damaged.
    fn cut(&self, range: ByteRange, spans: &mut Vec<Span>) {
        let window_bytes = self.map.window_bytes();
        let mut at = range.offset;
        while at < range.end() {
            let lba = Lba::containing(at);
            let in_block = at - lba.byte_offset();
            let hot = self.map.hot_block(lba).filter(|hot| !self.is_bad(hot.chunk));
            let (key, from, end) = if let Some(hot) = hot {
                let end = at - in_block + u64::from(hot.run) * BLOCK_BYTES;
                let from = u64::from(hot.block_in_chunk) * BLOCK_BYTES + in_block;
                (ChunkKey::Hot(hot.chunk), from, end)
            } else {
                let window = at / window_bytes;
                let mut end = (window + 1) * window_bytes;
                if let Some(hot) = self.map.next_hot_after(lba) {
                    let bad = self.map.hot_block(hot).is_some_and(|hot| self.is_bad(hot.chunk));
                    // A damaged hot chunk is read from its cold copies, block by block if need be.
                    end = end.min(if bad { (lba.0 + 1) * BLOCK_BYTES } else { hot.byte_offset() });
                }
                (ChunkKey::Cold(window), at % window_bytes, end)
            };
            let end = end.min(range.end());
            let (from, len) = (from as u32, (end - at) as u32);
            spans.push(Span { source: Source::Chunk(key), from, len, found: false, slot: NO_SLOT });
            at = end;
        }
    }

    pub(super) fn is_bad(&self, chunk: u32) -> bool {
        self.bad_chunks > 0
            && self
                .table
                .find(ChunkKey::Hot(chunk))
                .is_some_and(|slot| matches!(self.table[slot].stage, Stage::Failed { .. }))
    }

    /// Whether the read, which begins with this span, asks for a block that was held back.
    fn trip(&mut self, range: ByteRange, first: Option<&Span>) -> bool {
        let hot = match first.map(|span| (span.source, span.from)) {
            Some((Source::Chunk(ChunkKey::Hot(chunk)), from)) => Some((chunk, from)),
            _ => None,
        };
        let tripped = hot.is_some_and(|(chunk, from)| self.tripwires.trips(chunk, from, range.offset));
        self.tripwires.note_end(range.end());
        if let Some((chunk, _)) = hot.filter(|_| tripped) {
            self.expected[chunk as usize] = false;
        }
        tripped
    }

    /// Looks whether the bytes of a span are in memory; they stay then until the read ends.
    fn find(&mut self, span: &mut Span) {
        let Source::Chunk(key) = span.source else { return };
        let raw = self.table.find(key).filter(|slot| self.table[*slot].stage == Stage::Raw);
        let is_held = raw.is_some_and(|slot| self.table[slot].held);
        if let ChunkKey::Hot(chunk) = key
            && !is_held
            && let Some(base) = self.tripwires.find(chunk, span.from, span.len)
        {
            span.source = Source::Tripwire(chunk, base);
            span.found = true;
        } else if let Some(slot) = raw {
            self.touch_raw(slot);
            self.pin(slot);
            (span.found, span.slot) = (true, slot);
        } else if let ChunkKey::Cold(window) = key
            && self.map.window(window) == Some(WindowLocation::Zero)
        {
            (span.source, span.found) = (Source::Zero, true);
        } else {
            self.miss_in_cache(key);
        }
    }

    /// Whether something of a hot chunk was there, and was not asked for only because it was to come.
    fn uses_stream(&self, spans: &[Span]) -> bool {
        spans.iter().filter(|span| span.found).any(|span| match span.source {
            Source::Chunk(ChunkKey::Hot(chunk)) => !self.expected[chunk as usize],
            _ => false,
        })
    }

    /// Whether all of a read lies in hot chunks that are asked for only because they are to come.
    fn is_only_expected(&self, spans: &[Span]) -> bool {
        let is_expected = |span: &Span| match span.source {
            Source::Chunk(ChunkKey::Hot(chunk)) => self.expected[chunk as usize],
            _ => false,
        };
        !spans.is_empty() && spans.iter().all(is_expected)
    }

    /// The read waits for the chunks that are not in memory.
    fn wait_for_missing(&mut self, now: Nanos, read: u32, requester: Requester) {
        let id = self.reads.id(read);
        let (mut missing_cold, mut late_bytes) = (0, 0);
        let (mut missed, mut expected, mut unexpected) = (false, false, false);
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        for number in 0..self.reads.slab[read].spans.len() {
            let span = self.reads.slab[read].spans[number];
            let (Source::Chunk(key), false) = (span.source, span.found) else { continue };
            let slot = self.table.enter(key);
            self.reads.slab[read].spans[number].slot = slot;
            match key {
                ChunkKey::Hot(chunk) => {
                    late_bytes += u64::from(span.len);
                    expected |= self.expected[chunk as usize];
                    unexpected |= !self.expected[chunk as usize];
                    self.asked_again(slot, chunk);
                }
                ChunkKey::Cold(window) => {
                    missing_cold += 1;
                    let chunk = &self.table[slot];
                    let here = matches!(chunk.stage, Stage::Stored | Stage::Decoding { .. });
                    missed |= !(here && chunk.early);
                    self.neighbours.handle_used(window);
                    self.note_cold_read(now, window);
                }
                ChunkKey::Page(_) => {}
            }
            self.table[slot].waiters.push(Waiter { read: id, span: number as u32 });
            if wanted.last() != Some(&slot) {
                wanted.push(slot);
            }
        }
        let read = &mut self.reads.slab[read];
        (read.missing_cold, read.missed, read.miss_open) = (missing_cold, missed, missed);
        read.late_bytes = late_bytes;
        read.program_waits = requester.class == Class::Demand && (missed || unexpected);
        read.expected = requester.class == Class::Demand && expected && !read.program_waits;
        read.progress = Progress::Waiting;
        if read.program_waits {
            self.program_wait.begin(now);
        }
        self.reads.oldest.push_back(id);
        if missed {
            if late_bytes > 0 {
                self.prefetch.handle_miss_beside(now);
            } else {
                self.prefetch.handle_miss(now);
            }
            self.prefetch_changed = true;
        }
        for slot in &wanted {
            // The read may have failed for one of them.
            if !self.reads.waits(id) {
                break;
            }
            self.want(now, *slot, requester);
        }
        self.wanted = wanted;
    }

    /// A hot chunk is asked for that is not here; its readers may have had it, and must have dropped it.
    fn asked_again(&mut self, slot: u32, number: u32) {
        if self.table[slot].stage == Stage::Delivered {
            let chunk = &mut self.table[slot];
            chunk.delivered = false;
            chunk.stage = if chunk.stored { Stage::Stored } else { Stage::Absent };
            if self.streams() && self.arrived_at[number as usize].is_some() {
                self.prefetch.handle_dropped(number);
                self.prefetch_changed = true;
            }
        }
    }

    /// Sees to it that a chunk comes.
    pub(super) fn want(&mut self, now: Nanos, slot: u32, requester: Requester) {
        if requester.class < self.table[slot].requester.class || self.table[slot].stage == Stage::Absent {
            self.table[slot].requester = requester;
        }
        if let ChunkKey::Hot(chunk) = self.table[slot].key
            && self.streams()
            && !self.expected[chunk as usize]
        {
            self.prefetch.handle_wanted(now, chunk);
            self.prefetch_changed = true;
        }
        let is_coming = matches!(self.table[slot].stage, Stage::Queued { .. } | Stage::InFlight { .. });
        self.stats.joined += u64::from(is_coming && self.table[slot].from_stream);
        match self.table[slot].stage {
            Stage::Failed { until } if now < until => {
                let why = Why::Unreadable(self.table[slot].key);
                self.fail_chunk(now, slot, why);
            }
            Stage::Failed { .. } => {
                self.table[slot].stage = Stage::Absent;
                self.table[slot].requester = requester;
                self.bring(now, slot);
            }
            Stage::Absent => self.bring(now, slot),
            Stage::Joined => self.hurry_stream(now, slot, requester),
            Stage::AwaitsIndex { page } => self.want(now, page, requester),
            Stage::Queued { request } => self.promote(now, request, requester.class),
            Stage::Stored => {
                self.uncache_stored(slot);
                self.await_decoder(slot, Urgency::Awaited);
            }
            Stage::InFlight { .. } | Stage::Decoding { .. } | Stage::Raw | Stage::Delivered => {}
        }
    }

    /// Brings a chunk of which nothing is known, by the stream or with a request of its own.
    pub(super) fn bring(&mut self, now: Nanos, slot: u32) {
        let requester = self.table[slot].requester;
        match self.table[slot].key {
            ChunkKey::Hot(chunk) => {
                if self.joins(chunk) {
                    self.table[slot].stage = Stage::Joined;
                    self.joined.push(chunk);
                    self.stats.joined += 1;
                    return self.hurry_stream(now, slot, requester);
                }
                let is_program = requester.class == Class::Demand && !self.expected[chunk as usize];
                if is_program && self.streams() && !self.prefetch.has_arrived(chunk) {
                    self.prefetch.handle_stream_left(chunk);
                }
                self.request_chunk(now, slot);
            }
            ChunkKey::Page(_) => self.request_chunk(now, slot),
            ChunkKey::Cold(window) => match self.map.window(window) {
                Some(WindowLocation::Stored(place)) => {
                    (self.table[slot].place, self.table[slot].raw_bytes) = (place.range, place.raw_bytes);
                    if let Some(page) = self.table.find(ChunkKey::Page(self.map.page_of(window))) {
                        self.touch_page(page);
                    }
                    self.request_chunk(now, slot);
                }
                Some(WindowLocation::Zero) => self.publish_zero(now, slot),
                None => {
                    let page = self.table.enter(ChunkKey::Page(self.map.page_of(window)));
                    // A map that does not know what its page says would be asked without end.
                    if self.table[page].stage == Stage::Raw {
                        let why = Why::Damaged(self.table[page].key);
                        return self.fail_chunk(now, slot, why);
                    }
                    self.table[slot].stage = Stage::AwaitsIndex { page };
                    self.table[page].dependents.push(slot);
                    self.want(now, page, requester);
                }
            },
        }
    }

    /// A request in the queue is as urgent as this.
    pub(super) fn promote(&mut self, now: Nanos, request: u32, class: Class) {
        let Some(ticket) = self.fetches.requests[request].ticket else { return };
        let is_stream = matches!(self.fetches.requests[request].purpose, Some(Purpose::Stream(..)));
        if class == Class::Demand || !is_stream {
            self.queue.handle_promote(now, ticket, class);
        }
    }

    /// A chunk's raw bytes are in memory: the reads that waited for nothing else are complete.
    pub(super) fn publish(&mut self, now: Nanos, slot: u32, is_delivered_first: bool) {
        let is_cold = matches!(self.table[slot].key, ChunkKey::Cold(_));
        let mut waiters = std::mem::take(&mut self.table[slot].waiters);
        for waiter in waiters.drain(..) {
            if !self.reads.waits(waiter.read) {
                continue;
            }
            let read = &mut self.reads.slab[waiter.read.index];
            let span = &mut read.spans[waiter.span as usize];
            (span.found, span.slot) = (true, slot);
            self.table[slot].pins += 1;
            self.span_found(now, waiter.read.index, is_cold, is_delivered_first);
        }
        self.table[slot].waiters = waiters;
    }

    /// A window turned out to be zero.
    fn publish_zero(&mut self, now: Nanos, slot: u32) {
        self.table[slot].stage = Stage::Absent;
        let mut waiters = std::mem::take(&mut self.table[slot].waiters);
        for waiter in waiters.drain(..) {
            if !self.reads.waits(waiter.read) {
                continue;
            }
            let span = &mut self.reads.slab[waiter.read.index].spans[waiter.span as usize];
            (span.source, span.found, span.slot) = (Source::Zero, true, NO_SLOT);
            self.span_found(now, waiter.read.index, true, false);
        }
        self.table[slot].waiters = waiters;
        self.table.tidy(slot);
    }

    fn span_found(&mut self, now: Nanos, read: u32, is_cold: bool, is_delivered_first: bool) {
        let state = &mut self.reads.slab[read];
        state.missing -= 1;
        state.missing_cold -= u32::from(is_cold);
        let (is_complete, misses_end) = (state.missing == 0, state.missing_cold == 0);
        if misses_end {
            self.close_miss(now, read);
        }
        if is_complete && is_delivered_first {
            self.reads.slab[read].progress = Progress::Held;
            let id = self.reads.id(read);
            self.deliveries.held_reads.push(id);
        } else if is_complete {
            self.complete(read);
        }
    }

    /// Whatever a read waited for that the hot region does not have is there, or will not come.
    pub(super) fn close_miss(&mut self, now: Nanos, read: u32) {
        if std::mem::take(&mut self.reads.slab[read].miss_open) {
            self.prefetch.handle_miss_answered(now);
            self.prefetch_changed = true;
        }
    }

    /// A read has everything.
    pub(super) fn complete(&mut self, read: u32) {
        self.reads.slab[read].progress = Progress::Ready;
        let id = self.reads.id(read);
        self.reads.outcomes.push_back(id);
    }

    /// A read gets nothing. What it waits for may still come.
    pub(super) fn fail_read(&mut self, now: Nanos, id: ReadId, why: Why) {
        self.detach(now, id.index, false);
        self.reads.slab[id.index].progress = Progress::Failing(why);
        self.reads.outcomes.push_back(id);
        self.stats.failed_reads += 1;
    }

    /// A chunk cannot be had: readers of a hot one get the cold copies of its blocks, others an error. The
    /// caller has said in which stage the chunk is.
    pub(super) fn fail_chunk(&mut self, now: Nanos, slot: u32, why: Why) {
        self.stats.chunk_errors += 1;
        let is_hot = matches!(self.table[slot].key, ChunkKey::Hot(_));
        let mut waiters = std::mem::take(&mut self.table[slot].waiters);
        // Not to be forgotten in between.
        self.table[slot].pins += 1;
        for waiter in waiters.drain(..) {
            if !self.reads.waits(waiter.read) {
                continue;
            }
            if is_hot {
                self.detach(now, waiter.read.index, false);
                self.submit(now, waiter.read.index);
            } else {
                self.fail_read(now, waiter.read, why);
            }
        }
        if self.table[slot].waiters.is_empty() {
            self.table[slot].waiters = waiters;
        }
        let mut dependents = std::mem::take(&mut self.table[slot].dependents);
        for window in dependents.drain(..) {
            self.table[window].stage = Stage::Absent;
            self.spare_hot_copies(window);
            self.fail_chunk(now, window, why);
        }
        if self.table[slot].dependents.is_empty() {
            self.table[slot].dependents = dependents;
        }
        self.unpin(slot);
    }

    /// The read has nothing and waits for nothing; with `abandon`, what only it has waited for in the queue
    /// is taken back.
    pub(super) fn detach(&mut self, now: Nanos, read: u32, abandon: bool) {
        self.close_miss(now, read);
        self.end_program_wait(now, read);
        let id = self.reads.id(read);
        let spans = std::mem::take(&mut self.reads.slab[read].spans);
        for span in &spans {
            match (span.found, span.source) {
                (true, Source::Chunk(_)) => self.unpin(span.slot),
                (true, Source::Tripwire(chunk, _)) => {
                    self.tripwires.unpin(chunk, &mut self.dropped_wires);
                }
                (true, Source::Zero) => {}
                (false, _) => self.leave(now, span.slot, id, abandon),
            }
        }
        self.reads.slab[read].spans = spans;
        self.reads.slab[read].spans.clear();
    }

    fn leave(&mut self, now: Nanos, slot: u32, id: ReadId, abandon: bool) {
        let Some(chunk) = self.table.get(slot).filter(|chunk| !chunk.waiters.is_empty()) else { return };
        if !chunk.waiters.iter().any(|waiter| waiter.read == id) {
            return;
        }
        self.table[slot].waiters.retain(|waiter| waiter.read != id);
        if abandon && !self.table[slot].is_awaited() {
            self.abandon(now, slot);
        } else {
            self.table.tidy(slot);
        }
    }

    /// What is answered was handed over; the bytes may go.
    pub(super) fn release_answered(&mut self) {
        let Some(read) = self.reads.answering.take() else { return };
        let spans = std::mem::take(&mut self.reads.slab[read].spans);
        for span in &spans {
            match span.source {
                Source::Chunk(_) => {
                    self.serve(span.slot, span.from, span.len);
                    self.unpin(span.slot);
                }
                Source::Tripwire(chunk, _) => {
                    self.tripwires.serve(chunk, span.from, span.len, &mut self.dropped_wires);
                    self.tripwires.unpin(chunk, &mut self.dropped_wires);
                }
                Source::Zero => {}
            }
        }
        self.reads.slab[read].spans = spans;
        self.reads.slab.release(read);
    }

    /// Windows were asked for: if they continue a sequence, fetches and decompresses ahead of it.
    fn read_ahead(&mut self, now: Nanos, (first, last): (u64, u64), requester: Requester) {
        for window in first..=last {
            let ahead = self.sequential.observe(window);
            for window in ahead.decode {
                self.decode_ahead(window);
            }
            let class = requester.class.max(Class::ReadAhead);
            self.fetch_ahead(now, ahead.fetch, Requester { class, ..requester });
        }
    }

    /// A window that has come and that a reader will get to is decompressed.
    pub(super) fn decode_ahead(&mut self, window: u64) {
        let Some(slot) = self.table.find(ChunkKey::Cold(window)) else { return };
        let chunk = &self.table[slot];
        if chunk.stage == Stage::Stored && (chunk.stored_cached || chunk.filled) {
            self.uncache_stored(slot);
            self.await_decoder(slot, Urgency::Ahead);
        }
    }

    /// Whether the stream should be told of reads at all.
    pub(super) fn streams(&self) -> bool {
        self.config.prefetch.is_some() && self.map.hot_chunks() > 0
    }

    /// Ends deliveries' hold on reads that have everything.
    pub(super) fn answer_held(&mut self) {
        let mut held = std::mem::take(&mut self.deliveries.held_reads);
        for id in held.drain(..) {
            if self.reads.is_live(id) && self.reads.slab[id.index].progress == Progress::Held {
                self.complete(id.index);
            }
        }
        self.deliveries.held_reads = held;
    }
}

/// The first and the last of the windows that a read touches outside the hot region.
fn cold_windows(spans: &[Span]) -> Option<(u64, u64)> {
    let cold = |span: &Span| match span.source {
        Source::Chunk(ChunkKey::Cold(window)) => Some(window),
        _ => None,
    };
    spans.iter().find_map(cold).zip(spans.iter().rev().find_map(cold))
}
