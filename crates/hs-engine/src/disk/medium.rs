//! Requests to the store: what goes into the queue, what comes out of it, and what becomes of it.

use std::ops::Range;

use hs_units::{ByteRange, Nanos};

use super::DiskEngine;
use super::action::{Action, FetchId, Why};
use super::chunk_table::Stage;
use super::decoders::Urgency;
use super::fetches::{FetchChunk, Purpose, cut};
use super::image_map::{ChunkKey, ChunkLocation, ImageMap, WindowLocation};
use super::reads::Requester;
use super::stream::UNREADABLE_IN_A_ROW;
use crate::RequestId;
use crate::neighbours::FARTHEST;
use crate::queue::{Class, ClientKey, Direction, Dispatch, Request, RequestTag};

/// A medium that gives up sooner may be asked again at once: it is no drive that tries hard, or it knows the
/// place.
const QUICK: Nanos = Nanos::from_millis(250);
/// A failure counts for so many times as long as it took: a bad place holds the medium up for a ninth of the
/// time at most.
const REST: u64 = 8;
/// But not for longer: a disc may have been cleaned.
const LONGEST_REST: Nanos = Nanos::from_millis(60_000);
/// Failed places that are remembered.
const MOST_FAILED: usize = 4096;

/// How far the windows of a request are extended.
#[derive(Clone, Copy)]
enum Extension {
    /// To this window, without it.
    To(u64),
    /// As far as neighbours pay, up to so many bytes.
    Paying { most_bytes: u64 },
}

impl Extension {
    const fn may_reach(self, window: u64, first: u64) -> bool {
        match self {
            Self::To(end) => window < end,
            Self::Paying { .. } => window.saturating_sub(first) <= FARTHEST,
        }
    }
}

impl<M: ImageMap> DiskEngine<M> {
    /// Hands a request for one chunk to the queue.
    pub(super) fn request_chunk(&mut self, now: Nanos, slot: u32) {
        let request = self.fetches.requests.take();
        let place = match self.table[slot].key {
            ChunkKey::Hot(chunk) => Some(self.map.hot_chunk(chunk)),
            ChunkKey::Page(page) => Some(self.map.page(page)),
            ChunkKey::Cold(_) => None,
        };
        let chunk = &mut self.table[slot];
        if let Some(ChunkLocation { range, raw_bytes }) = place {
            (chunk.place, chunk.raw_bytes) = (range, raw_bytes);
        }
        chunk.from_stream = false;
        chunk.stage = Stage::Queued { request };
        // Only cold windows merge: hot chunks and pages are asked for one by one, and so is what failed among
        // others.
        let merges = place.is_none() && !chunk.alone;
        let range = if merges { chunk.place } else { cut(chunk.place) };
        let requester = chunk.requester;
        self.enqueue(now, request, requester, range, Purpose::Chunk(slot));
    }

    pub(super) fn enqueue(
        &mut self,
        now: Nanos,
        request: u32,
        requester: Requester,
        range: ByteRange,
        purpose: Purpose,
    ) {
        let Requester { client, class } = requester;
        let tag = RequestTag(u64::from(request));
        let ticket =
            self.queue.handle_request(now, Request { tag, class, client, direction: Direction::Read, range });
        let entry = &mut self.fetches.requests[request];
        (entry.ticket, entry.purpose) = (Some(ticket), Some(purpose));
    }

    /// Takes a request out of the queue.
    pub(super) fn forget_request(&mut self, now: Nanos, request: u32) -> Option<Purpose> {
        if let Some(ticket) = self.fetches.requests[request].ticket.take() {
            self.queue.handle_cancel(now, ticket);
        }
        self.end_request(request)
    }

    pub(super) fn end_request(&mut self, request: u32) -> Option<Purpose> {
        let entry = &mut self.fetches.requests[request];
        entry.ticket = None;
        let purpose = entry.purpose.take();
        self.fetches.requests.release(request);
        purpose
    }

    /// Hands in windows ahead of a reader that are neither here nor on their way: the first is queued, and
    /// when it is fetched those that lie behind it come along.
    pub(super) fn fetch_ahead(&mut self, now: Nanos, windows: Range<u64>, requester: Requester) {
        let end = windows.end.min(self.map.windows());
        let first = (windows.start..end).find_map(|window| {
            let place = self.stored_place(window)?;
            self.is_unasked(now, window).then_some((window, place))
        });
        let Some((first, place)) = first else { return };
        let slot = self.table.enter(ChunkKey::Cold(first));
        let request = self.fetches.requests.take();
        let chunk = &mut self.table[slot];
        (chunk.place, chunk.raw_bytes) = (place.range, place.raw_bytes);
        (chunk.from_stream, chunk.requester) = (false, requester);
        chunk.stage = Stage::Queued { request };
        self.enqueue(now, request, requester, place.range, Purpose::Ahead(slot, end));
    }

    /// Where a window lies, as far as the index in memory says: what nothing waits for must not cost an index
    /// read.
    fn stored_place(&self, window: u64) -> Option<ChunkLocation> {
        match self.map.window(window)? {
            WindowLocation::Stored(place) => Some(place),
            WindowLocation::Zero => None,
        }
    }

    /// Whether a window is neither here nor on its way, and has not failed lately.
    pub(super) fn is_unasked(&self, now: Nanos, window: u64) -> bool {
        let Some(slot) = self.table.find(ChunkKey::Cold(window)) else { return true };
        match self.table[slot].stage {
            Stage::Absent => !self.table[slot].is_awaited(),
            Stage::Failed { until } => until <= now,
            _ => false,
        }
    }

    /// A request to the medium begins: what it brings is decided now.
    pub(super) fn dispatch(&mut self, now: Nanos, dispatch: &Dispatch) -> Action {
        let index = self.fetches.begin(now, Some(dispatch.id));
        let mut tags = std::mem::take(&mut self.tags);
        tags.clear();
        tags.extend(self.queue.tags(dispatch.id).map(|tag| tag.0 as u32));
        let (mut ahead, mut background) = (None, None);
        for request in &tags {
            match self.end_request(*request) {
                Some(Purpose::Chunk(slot)) => self.add_member(index, slot),
                Some(Purpose::Ahead(slot, end)) => {
                    self.add_member(index, slot);
                    ahead = Some((slot, end));
                }
                Some(Purpose::Background(slot, more)) => {
                    self.add_member(index, slot);
                    background = Some(more);
                }
                Some(Purpose::Stream(id, run)) => {
                    self.fetches.stream_requests.retain(|other| other != request);
                    self.add_run(now, index, id, run);
                }
                Some(Purpose::Permit(_)) | None => {}
            }
        }
        let is_merged = tags.len() > 1;
        self.tags = tags;
        self.fetches.slab[index].chunks.sort_unstable_by_key(|chunk| (chunk.range.offset, !chunk.owned));
        self.fetches.slab[index].chunks.dedup_by_key(|chunk| chunk.key);
        if let Some(more) = background {
            self.begin_background(now, index, more, dispatch.class);
        }
        let rest = match ahead {
            None if self.fetches.slab[index].background_bytes > 0 => None,
            Some((slot, end)) if !is_merged => {
                let ChunkKey::Cold(first) = self.table[slot].key else { unreachable!("windows are cold") };
                self.extend(now, index, Extension::To(end));
                Some((first + 1..end, slot))
            }
            Some((slot, end)) => {
                self.bring_neighbours(now, index);
                let ChunkKey::Cold(first) = self.table[slot].key else { unreachable!("windows are cold") };
                Some((first + 1..end, slot))
            }
            None => {
                self.bring_neighbours(now, index);
                None
            }
        };
        // What of the windows ahead does not lie behind the first comes with requests of its own.
        if let Some((windows, slot)) = rest {
            let class = self.table[slot].requester.class.max(Class::ReadAhead);
            self.fetch_ahead(now, windows, Requester { client: ClientKey::NONE, class });
        }
        Action::Fetch { id: self.fetches.id(index), range: self.fetches.range(index), class: dispatch.class }
    }

    pub(super) fn add_member(&mut self, fetch: u32, slot: u32) {
        let chunk = &mut self.table[slot];
        // A read that joins it on the way has not asked for it either.
        chunk.early = matches!(chunk.key, ChunkKey::Cold(_)) && !chunk.is_awaited();
        chunk.stage = Stage::InFlight { fetch };
        let member = FetchChunk { key: chunk.key, range: chunk.place, slot, owned: true, came: false };
        self.fetches.slab[fetch].chunks.push(member);
    }

    /// A run of the stream is part of a fetch: the chunks that were queued with it are its own.
    fn add_run(&mut self, now: Nanos, fetch: u32, id: RequestId, run: Range<u32>) {
        self.prefetch.handle_begun(now, id);
        for number in run.clone() {
            let key = ChunkKey::Hot(number);
            let slot = self.table.find(key);
            let own = slot.filter(|slot| {
                let chunk = &self.table[*slot];
                chunk.from_stream && matches!(chunk.stage, Stage::Queued { .. })
            });
            match own {
                Some(slot) => self.add_member(fetch, slot),
                None => {
                    let range = self.map.hot_chunk(number).range;
                    let member = FetchChunk { key, range, slot: u32::MAX, owned: false, came: false };
                    self.fetches.slab[fetch].chunks.push(member);
                }
            }
        }
        self.fetches.slab[fetch].streams.push((id, run));
    }

    /// The request that opened the image brings these hot chunks.
    pub(super) fn open_run(&mut self, fetch: u32, id: RequestId, run: Range<u32>) {
        for number in run.clone() {
            let place = self.map.hot_chunk(number);
            let slot = self.table.enter(ChunkKey::Hot(number));
            let chunk = &mut self.table[slot];
            (chunk.place, chunk.raw_bytes, chunk.from_stream) = (place.range, place.raw_bytes, true);
            self.add_member(fetch, slot);
        }
        self.fetches.slab[fetch].streams.push((id, run));
    }

    /// A request for windows that reads wait for brings neighbours, when that has paid so far.
    fn bring_neighbours(&mut self, now: Nanos, fetch: u32) {
        let fetch_of = &self.fetches.slab[fetch];
        let merges = |chunk: &FetchChunk| {
            matches!(chunk.key, ChunkKey::Cold(_)) && chunk.owned && !self.table[chunk.slot].alone
        };
        if !fetch_of.streams.is_empty() || !fetch_of.chunks.iter().all(merges) {
            return;
        }
        self.neighbours.handle_miss();
        let most_bytes = self.prefetch.most_neighbour_bytes().unwrap_or(u64::MAX);
        self.extend(now, fetch, Extension::Paying { most_bytes });
    }

    /// Windows behind the last one of a fetch come along that lie directly behind it and are neither here nor
    /// on their way.
    fn extend(&mut self, now: Nanos, fetch: u32, extension: Extension) {
        let chunks = &self.fetches.slab[fetch].chunks;
        let Some((first, last)) = chunks.first().zip(chunks.last()) else { return };
        let (ChunkKey::Cold(first), ChunkKey::Cold(last)) = (first.key, last.key) else { return };
        let mut bytes = 0;
        for window in last + 1..self.map.windows() {
            if !extension.may_reach(window, first) {
                return;
            }
            let Some(place) = self.stored_place(window) else { return };
            bytes += place.range.len;
            // A window that is stored with an equal one may lie before the first.
            let distance = window.saturating_sub(first);
            let follows = place.range.offset == self.fetches.range(fetch).end();
            let wanted = match extension {
                Extension::To(_) => true,
                Extension::Paying { most_bytes } => {
                    bytes <= most_bytes && self.neighbour_pays(distance, place.range.len)
                }
            };
            if !follows || !wanted || !self.is_unasked(now, window) {
                return;
            }
            let slot = self.enter_background(window, place);
            self.add_member(fetch, slot);
            self.neighbours.handle_brought(window, distance);
        }
    }

    /// Whether a neighbour so far behind a miss, of so many stored bytes, should come with it.
    fn neighbour_pays(&self, distance: u64, bytes: u64) -> bool {
        let is_probe = distance == 1 && self.neighbours.probes();
        is_probe || self.neighbours.pays(distance, self.background.neighbour_price(bytes))
    }

    /// See [`DiskEngine::handle_stored`].
    pub(super) fn take_stored(&mut self, now: Nanos, id: FetchId, key: ChunkKey, bytes: u64) -> bool {
        let fetch = &mut self.fetches.slab[id.index];
        let (asked, is_stream) = (fetch.asked, !fetch.streams.is_empty());
        let is_first = fetch.bytes == 0;
        // They nearly always come in order.
        let comes = |chunk: &FetchChunk| chunk.key == key && !chunk.came;
        let in_order = fetch.chunks.get(fetch.next).is_some_and(comes);
        let at = if in_order { Some(fetch.next) } else { fetch.chunks.iter().position(comes) };
        let Some(at) = at else { return false };
        fetch.next = at + 1;
        let member = &mut fetch.chunks[at];
        member.came = true;
        let (slot, owned, range) = (member.slot, member.owned, member.range);
        // Bytes that windows share come once.
        let is_shared = at > 0 && fetch.chunks[at - 1].range == range;
        fetch.bytes += if is_shared { 0 } else { range.len };
        fetch.first.get_or_insert((now, range.len));
        let is_background = fetch.background_bytes > 0;
        if is_stream {
            self.note_progress(now, id.index, key);
        } else if is_first {
            self.prefetch.handle_fetched(asked, now, bytes);
            self.prefetch_changed = true;
        }
        if !owned {
            return false;
        }
        if self.shut_down {
            self.table[slot].stage = Stage::Absent;
            self.table.tidy(slot);
            return false;
        }
        let chunk = &mut self.table[slot];
        (chunk.stage, chunk.stored, chunk.alone) = (Stage::Stored, true, false);
        self.stored_bytes += chunk.place.len;
        let awaited = chunk.is_awaited();
        if awaited && matches!(key, ChunkKey::Cold(_)) {
            self.stats.outside_bytes += chunk.place.len;
        }
        if let ChunkKey::Cold(window) = key {
            self.note_came(slot, window, is_background, awaited);
        }
        match key {
            ChunkKey::Cold(window) if !awaited => {
                self.table[slot].early = true;
                let near = self.sequential.is_near(window);
                if is_background {
                    self.keep_filled(now, slot, window);
                } else {
                    self.cache_stored(slot);
                }
                if near {
                    self.decode_ahead(window);
                }
            }
            ChunkKey::Hot(_) if !awaited && self.table[slot].from_stream => {
                self.await_decoder(slot, Urgency::Stream);
            }
            _ => self.await_decoder(slot, Urgency::Awaited),
        }
        true
    }

    fn note_progress(&mut self, now: Nanos, fetch: u32, key: ChunkKey) {
        let ChunkKey::Hot(number) = key else { return };
        let streams = &self.fetches.slab[fetch].streams;
        if let Some((id, _)) = streams.iter().find(|(_, run)| run.contains(&number)) {
            self.prefetch.handle_progress(now, *id, number);
            self.prefetch_changed = true;
            self.unreadable_in_a_row = 0;
        }
    }

    /// See [`DiskEngine::handle_fetch_done`].
    pub(super) fn end_fetch(&mut self, now: Nanos, index: u32, why: fn(ChunkKey) -> Why) {
        self.note_answered(now, index);
        let fetch = &mut self.fetches.slab[index];
        let (mut chunks, mut streams) =
            (std::mem::take(&mut fetch.chunks), std::mem::take(&mut fetch.streams));
        let (asked, cancelled, bytes) = (fetch.asked, fetch.cancelled, fetch.bytes);
        if let Some(dispatch) = fetch.dispatch.take() {
            drop(self.queue.handle_done(now, dispatch, bytes));
        }
        self.fetches.slab.release(index);
        for (id, run) in streams.drain(..) {
            let of_run =
                |chunk: &&FetchChunk| matches!(chunk.key, ChunkKey::Hot(chunk) if run.contains(&chunk));
            let missing = chunks.iter().filter(of_run).find(|chunk| !chunk.came).copied();
            self.end_run(now, id, run, missing, (cancelled, bytes, why));
        }
        // Windows that are equal share their bytes: those are one place.
        let several = chunks.iter().any(|chunk| chunk.range != chunks[0].range);
        for member in chunks.iter().filter(|chunk| chunk.owned && !chunk.came) {
            // The stream's have been taken care of.
            if self.table.get(member.slot).is_none_or(|chunk| chunk.key != member.key)
                || self.table[member.slot].stage != (Stage::InFlight { fetch: index })
                || self.table[member.slot].from_stream
            {
                continue;
            }
            let took = now.saturating_sub(asked);
            if self.shut_down || !self.table[member.slot].is_awaited() {
                self.table[member.slot].stage = Stage::Absent;
                self.table.tidy(member.slot);
            } else if several || cancelled {
                // One bad place fails the fetch for all: what is awaited gets one of its own.
                self.fetch_again(now, member.slot, true);
            } else {
                self.lose(now, member.slot, took, why(member.key));
            }
        }
        chunks.clear();
        // Kept for the next fetch of this number.
        (self.fetches.slab[index].chunks, self.fetches.slab[index].streams) = (chunks, streams);
    }

    /// A fetch of a run of the stream has ended, and this is the first chunk of it that has not come.
    fn end_run(
        &mut self,
        now: Nanos,
        id: RequestId,
        run: Range<u32>,
        missing: Option<FetchChunk>,
        (cancelled, bytes, why): (bool, u64, fn(ChunkKey) -> Why),
    ) {
        let Some(missing) = missing else { return self.finish_run(now, id, run, bytes) };
        let ChunkKey::Hot(number) = missing.key else { return };
        if cancelled || self.shut_down || self.prefetch.ended().is_some() {
            return self.give_up_run(now, id, number..run.end, Some(bytes));
        }
        self.finish_part(run.start..number);
        // Its readers get the cold copies, and the stream is past it.
        if missing.owned {
            self.pass(number);
            self.table[missing.slot].from_stream = false;
            self.lose(now, missing.slot, Nanos::ZERO, why(missing.key));
        } else {
            self.finish_part(number..number + 1);
        }
        self.unreadable_in_a_row += 1;
        if self.unreadable_in_a_row >= UNREADABLE_IN_A_ROW {
            return self.give_up_run(now, id, number + 1..run.end, None);
        }
        if number + 1 == run.end {
            return self.finish_run(now, id, run.end..run.end, bytes);
        }
        // What it had queued is queued again, by the same name for the prefetch.
        for chunk in number + 1..run.end {
            if let Some(slot) = self.table.find(ChunkKey::Hot(chunk))
                && self.table[slot].from_stream
                && matches!(self.table[slot].stage, Stage::InFlight { .. })
            {
                self.table[slot].stage = Stage::Absent;
            }
        }
        self.request_stream(now, id, number + 1..run.end);
    }

    /// Chunks of a run that were read over are passed, unless they are held for their readers.
    pub(super) fn finish_part(&mut self, part: Range<u32>) {
        for number in part {
            let slot = self.table.find(ChunkKey::Hot(number));
            let comes = slot.is_some_and(|slot| self.table[slot].from_stream || self.table[slot].held);
            if !comes {
                self.pass(number);
            }
        }
    }

    /// A chunk that was to come does not come that way. If something waits for it, it is fetched, `alone` or
    /// with others.
    pub(super) fn fetch_again(&mut self, now: Nanos, slot: u32, alone: bool) {
        self.table[slot].stage = Stage::Absent;
        if !self.table[slot].is_awaited() || self.shut_down {
            return self.table.tidy(slot);
        }
        self.table[slot].alone = alone;
        self.table[slot].from_stream = false;
        self.table[slot].requester.class = self.most_urgent(slot);
        match self.table[slot].key {
            ChunkKey::Cold(_) => self.bring(now, slot),
            ChunkKey::Hot(_) | ChunkKey::Page(_) => self.request_chunk(now, slot),
        }
    }

    /// The class of the most urgent read that waits for a chunk. One that only asked ahead of the program is
    /// as urgent as the stream that does not bring the chunk.
    fn most_urgent(&self, slot: u32) -> Class {
        let chunk = &self.table[slot];
        let classes = chunk.waiters.iter().map(|waiter| {
            let read = &self.reads.slab[waiter.read.index];
            if read.expected { Class::Prefetch } else { read.requester.class }
        });
        let dependents = chunk.dependents.iter().map(|slot| self.table[*slot].requester.class);
        classes.chain(dependents).min().unwrap_or(chunk.requester.class)
    }

    /// A chunk cannot be had, which took so long to find out.
    pub(super) fn lose(&mut self, now: Nanos, slot: u32, took: Nanos, why: Why) {
        let until = match self.table[slot].key {
            ChunkKey::Hot(_) => {
                self.bad_chunks += 1;
                Some(Nanos(u64::MAX))
            }
            ChunkKey::Cold(_) | ChunkKey::Page(_) => self.remember_failure(now, slot, took),
        };
        self.table[slot].stage = until.map_or(Stage::Absent, |until| Stage::Failed { until });
        self.table[slot].alone = false;
        // There is nothing better left than the hot copies: they get another chance the next time.
        self.spare_hot_copies(slot);
        self.fail_chunk(now, slot, why);
    }

    /// Until when a place that failed slowly is not asked for again.
    fn remember_failure(&mut self, now: Nanos, slot: u32, took: Nanos) -> Option<Nanos> {
        while let Some((until, key)) = self.failed_places.front().copied()
            && (until <= now || self.failed_places.len() >= MOST_FAILED)
        {
            self.failed_places.pop_front();
            if let Some(slot) = self.table.find(key)
                && self.table[slot].stage == (Stage::Failed { until })
            {
                self.table[slot].stage = Stage::Absent;
                self.table.tidy(slot);
            }
        }
        if took < QUICK || !self.config.bad_places_rest {
            return None;
        }
        let until = now + Nanos(took.0.saturating_mul(REST)).min(LONGEST_REST);
        self.failed_places.push_back((until, self.table[slot].key));
        Some(until)
    }

    /// Hot chunks that are not asked for any more are, where they hold blocks of this window.
    pub(super) fn spare_hot_copies(&mut self, slot: u32) {
        let ChunkKey::Cold(window) = self.table[slot].key else { return };
        if self.bad_chunks == 0 {
            return;
        }
        for lba in self.map.blocks_of(window) {
            let hot = self.map.hot_block(hs_units::Lba(lba));
            let Some(slot) = hot.and_then(|hot| self.table.find(ChunkKey::Hot(hot.chunk))) else { continue };
            if matches!(self.table[slot].stage, Stage::Failed { .. }) {
                self.bad_chunks -= 1;
                self.table[slot].stage = Stage::Absent;
                self.table.tidy(slot);
            }
        }
    }

    /// Has the shell cancel a fetch of which nothing is awaited.
    pub(super) fn cancel_unwanted(&mut self, index: u32) {
        let fetch = &self.fetches.slab[index];
        let awaited = |chunk: &FetchChunk| chunk.owned && !chunk.came && self.table[chunk.slot].is_awaited();
        if !fetch.cancelled && !fetch.chunks.iter().any(awaited) {
            self.fetches.slab[index].cancelled = true;
            let id = self.fetches.id(index);
            self.fetches.cancels.push(id);
        }
    }
}
