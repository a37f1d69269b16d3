//! Windows that no read has asked for: they come behind demand, and wait in memory as they are stored. Those
//! that an earlier start has read come first, in its order.

use std::collections::VecDeque;

use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos};

use super::DiskEngine;
use super::chunk_table::Stage;
use super::fetches::{BackgroundRequest, FetchChunk, Purpose, cut};
use super::image_map::{ChunkKey, ChunkLocation, ImageMap, WindowLocation};
use super::reads::Requester;
use crate::EndReason;
use crate::background::{Answered, Learned};
use crate::queue::{Class, ClientKey};

/// After so long without a read of a window, or a new one, all that wait are dropped: the start is over.
const KEPT_FOR: Nanos = Nanos::from_millis(60_000);
/// A start that uses its hot region and still reads so often elsewhere needs more than its profile knows.
const MISSES_OF_A_FIT: usize = 8;

/// Chunks that came behind demand and wait for a read.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// Windows in the order in which they came; some of them do not wait any more.
    order: VecDeque<u64>,
    bytes: u64,
    /// Windows that have come once, for whatever reason, a bit each.
    had: Vec<u64>,
    /// Pages of the index that were asked for.
    pages: Vec<u32>,
    /// When one came or was read last.
    touched: Nanos,
    is_over: bool,
}

impl Filled {
    /// Stored bytes of the chunks that wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn has_had(&self, window: u64) -> bool {
        self.had.get(window as usize / 64).is_some_and(|bits| bits >> (window % 64) & 1 == 1)
    }

    fn note_had(&mut self, window: u64) {
        let at = window as usize / 64;
        if self.had.len() <= at {
            self.had.resize(at + 1, 0);
        }
        self.had[at] |= 1 << (window % 64);
    }
}

/// What is known of a window that could come.
enum Candidate {
    /// It is stored there.
    At(ChunkLocation),
    /// This page says where, and is not here.
    Behind(u32),
    /// It is here, on its way, zero, or cannot be had.
    Unwanted,
}

impl<M: ImageMap> DiskEngine<M> {
    /// Whether memory samples change what the engine does.
    #[must_use]
    pub fn watches_memory(&self) -> bool {
        self.prefetch.ended().is_none() || self.brings_more() || self.filled.bytes > 0
    }

    /// An earlier start from this image has read these blocks, the first of them first. What of them lies
    /// outside the hot region comes behind demand; returns how many windows that is.
    pub fn handle_learned(&mut self, blocks: impl IntoIterator<Item = BlockRange>) -> u64 {
        let window_blocks = self.map.window_bytes() / BLOCK_BYTES;
        let disk_blocks = self.map.disk_bytes().div_ceil(BLOCK_BYTES);
        let windows = blocks.into_iter().filter(|run| run.count > 0).flat_map(|run| {
            let (start, end) = (run.start.0, run.start.0.saturating_add(run.count).min(disk_blocks));
            (start / window_blocks..end.div_ceil(window_blocks)).map(move |window| {
                let blocks = start.max(window * window_blocks)..end.min((window + 1) * window_blocks);
                (window, blocks)
            })
        });
        let is_cold = |lba| self.map.hot_block(Lba(lba)).is_none();
        let cold = windows.filter_map(|(window, mut blocks)| blocks.any(is_cold).then_some(window));
        self.learned = Learned::new(cold);
        self.learned.len() as u64
    }

    /// Whether windows come that no read has asked for.
    fn brings_more(&self) -> bool {
        let may = self.config.prefetch.is_some_and(|limits| limits.brings_rest || self.learned.len() > 0);
        may && !self.filled.is_over && !self.shut_down && !self.prefetch_held
    }

    /// Nothing more comes behind demand.
    pub(super) const fn stop_background(&mut self) {
        self.filled.is_over = true;
    }

    /// Asks for windows behind demand, once the stream of the hot region is over or is of no help.
    pub(super) fn drive_background(&mut self, now: Nanos) {
        if !self.brings_more() || self.fetches.background.is_queued {
            return;
        }
        match self.prefetch.ended() {
            Some(EndReason::Complete) => self.bring_index(now),
            Some(EndReason::Nothing | EndReason::NoHelp) => {}
            Some(_) => return self.stop_background(),
            None if self.prefetch.is_doubted() => {}
            None => return,
        }
        if !self.drive_learned(now) {
            self.drive_rest(now);
        }
    }

    /// Asks for learned windows, when the medium has room for a request; false when there are no more of them
    /// that pay.
    fn drive_learned(&mut self, now: Nanos) -> bool {
        if !self.background.learned_pays(self.learned.chance(), self.map.window_bytes() / 2) {
            return false;
        }
        let mut learned = std::mem::take(&mut self.learned);
        let mut found = Candidate::Unwanted;
        let window = learned.next(|window| {
            found = self.candidate(now, window);
            !matches!(found, Candidate::Unwanted)
        });
        self.learned = learned;
        let Some(window) = window else { return false };
        if let Some(request) = self.background.learned_request(self.fetches.background.bytes)
            && request.bytes <= self.background_room()
        {
            let more = BackgroundRequest { most_bytes: request.bytes, learned_gap: Some(request.gap_bytes) };
            self.request_candidate(now, window, found, more);
        }
        true
    }

    /// The same for all other windows of the image.
    fn drive_rest(&mut self, now: Nanos) {
        let brings_rest = self.config.prefetch.is_some_and(|limits| limits.brings_rest);
        let is_complete = self.prefetch.ended() == Some(EndReason::Complete);
        if !brings_rest || (is_complete && self.background.reads() < self.misses_of_a_start()) {
            return;
        }
        let under_way = self.fetches.background.bytes;
        let bytes = self.background.request_bytes(under_way, self.prefetch.has_misses());
        let Some(most_bytes) = bytes.filter(|bytes| *bytes <= self.background_room()) else { return };
        if !self.background.pays(self.map.window_bytes() / 2) {
            return;
        }
        let mut order = std::mem::take(&mut self.order);
        let mut found = Candidate::Unwanted;
        let window = order.next(self.map.windows(), |window| {
            found = self.candidate(now, window);
            !matches!(found, Candidate::Unwanted)
        });
        self.order = order;
        match window {
            Some(window) => {
                let more = BackgroundRequest { most_bytes, learned_gap: None };
                self.request_candidate(now, window, found, more);
            }
            None => self.stop_background(),
        }
    }

    /// From so many reads elsewhere on a start whose hot region has come needs more. One that finds all of it
    /// there needs nothing.
    fn misses_of_a_start(&self) -> usize {
        let seen = self.tripwires.count();
        if seen.placed > 0 && seen.used * 2 >= seen.placed { MISSES_OF_A_FIT } else { 1 }
    }

    /// A read that misses behind the stream should not have to wait for the index as well, where that is one
    /// page.
    fn bring_index(&mut self, now: Nanos) {
        let brings_rest = self.config.prefetch.is_some_and(|limits| limits.brings_rest);
        let last = self.map.windows().checked_sub(1);
        let is_one_page = last.is_some_and(|last| self.map.page_of(last) == 0);
        if brings_rest && is_one_page && self.map.window(0).is_none() {
            self.request_page(now, 0);
        }
    }

    /// Bytes of memory for what comes behind demand.
    fn background_room(&self) -> u64 {
        let taken = self.held_bytes + self.filled.bytes + self.fetches.background.bytes;
        self.prefetch_memory.target_bytes().saturating_sub(taken)
    }

    fn request_candidate(&mut self, now: Nanos, window: u64, found: Candidate, more: BackgroundRequest) {
        match found {
            Candidate::At(place) => self.request_background(now, window, place, more),
            Candidate::Behind(page) => self.request_page(now, page),
            Candidate::Unwanted => {}
        }
    }

    fn candidate(&self, now: Nanos, window: u64) -> Candidate {
        if self.filled.has_had(window) {
            return Candidate::Unwanted;
        }
        match self.map.window(window) {
            Some(WindowLocation::Zero) => Candidate::Unwanted,
            Some(WindowLocation::Stored(place)) if self.is_unasked(now, window) => Candidate::At(place),
            Some(WindowLocation::Stored(_)) => Candidate::Unwanted,
            None => {
                let page = self.map.page_of(window);
                let is_new = !self.filled.pages.contains(&page);
                let is_coming = self
                    .table
                    .find(ChunkKey::Page(page))
                    .is_some_and(|slot| !matches!(self.table[slot].stage, Stage::Failed { .. }));
                // One that was asked for and is not here cannot be had, or has left again.
                if is_new || is_coming { Candidate::Behind(page) } else { Candidate::Unwanted }
            }
        }
    }

    fn request_page(&mut self, now: Nanos, page: u32) {
        if self.filled.pages.contains(&page) {
            return;
        }
        self.filled.pages.push(page);
        let slot = self.table.enter(ChunkKey::Page(page));
        if self.table[slot].stage == Stage::Absent {
            self.table[slot].requester = Requester { client: ClientKey::NONE, class: Class::Fill };
            self.request_chunk(now, slot);
        }
    }

    fn request_background(&mut self, now: Nanos, window: u64, place: ChunkLocation, more: BackgroundRequest) {
        let slot = self.enter_background(window, place);
        let request = self.fetches.requests.take();
        self.table[slot].stage = Stage::Queued { request };
        self.fetches.background.is_queued = true;
        // A profile names what was learned.
        let class = if more.learned_gap.is_some() { Class::Prefetch } else { Class::Fill };
        let requester = Requester { client: ClientKey::NONE, class };
        self.table[slot].requester = requester;
        self.enqueue(now, request, requester, cut(place.range), Purpose::Background(slot, more));
    }

    /// A chunk that no read waits for is on its way.
    pub(super) fn enter_background(&mut self, window: u64, place: ChunkLocation) -> u32 {
        let slot = self.table.enter(ChunkKey::Cold(window));
        let chunk = &mut self.table[slot];
        (chunk.place, chunk.raw_bytes) = (place.range, place.raw_bytes);
        chunk.from_stream = false;
        chunk.requester = Requester { client: ClientKey::NONE, class: Class::Fill };
        slot
    }

    /// A request for a window behind demand begins: others that lie behind it come along. If a read waits for
    /// it by now, it is a request like others.
    pub(super) fn begin_background(&mut self, now: Nanos, fetch: u32, more: BackgroundRequest, class: Class) {
        self.fetches.background.is_queued = false;
        let [first] = self.fetches.slab[fetch].chunks[..] else { return };
        let ChunkKey::Cold(first_window) = first.key else { return };
        if class < Class::Prefetch {
            return;
        }
        if more.learned_gap.is_some() {
            let learned = std::mem::take(&mut self.learned);
            self.extend_background(now, fetch, first_window, learned.behind(first_window), more);
            self.learned = learned;
        } else {
            let behind = first_window + 1..self.map.windows();
            self.extend_background(now, fetch, first_window, behind, more);
        }
        let bytes = self.fetches.range(fetch).len;
        self.fetches.slab[fetch].background_bytes = bytes;
        self.fetches.background.bytes += bytes;
    }

    /// As many of the windows `behind` the last one of a fetch come along as lie behind each other in the
    /// image, but for small gaps.
    fn extend_background(
        &mut self,
        now: Nanos,
        fetch: u32,
        mut last: u64,
        behind: impl Iterator<Item = u64>,
        BackgroundRequest { most_bytes, learned_gap }: BackgroundRequest,
    ) {
        let most_gap = learned_gap.unwrap_or(0);
        for window in behind {
            let place = match self.map.window(window) {
                Some(WindowLocation::Zero) => continue,
                Some(WindowLocation::Stored(place)) => place,
                None => return,
            };
            let range = self.fetches.range(fetch);
            let gap = place.range.offset.checked_sub(range.end());
            let is_near = gap.is_some_and(|gap| gap <= most_gap);
            let is_wanted = !self.filled.has_had(window) && self.is_unasked(now, window);
            if !is_near || !is_wanted || place.range.end() - range.offset > most_bytes {
                return;
            }
            if gap > Some(0) && !self.bridge(fetch, last + 1..window, place.range.offset) {
                return;
            }
            let slot = self.enter_background(window, place);
            self.add_member(fetch, slot);
            last = window;
        }
    }

    /// A fetch reads over the chunks of these windows, up to `end`, and drops them; false when they do not
    /// lie there.
    fn bridge(&mut self, fetch: u32, windows: std::ops::Range<u64>, end: u64) -> bool {
        let members = self.fetches.slab[fetch].chunks.len();
        let mut at = self.fetches.range(fetch).end();
        for window in windows {
            match self.map.window(window) {
                Some(WindowLocation::Stored(place)) if place.range.offset == at => {
                    let (key, range) = (ChunkKey::Cold(window), place.range);
                    let member = FetchChunk { key, range, slot: u32::MAX, owned: false, came: false };
                    self.fetches.slab[fetch].chunks.push(member);
                    at = range.end();
                }
                // Zero, or stored elsewhere because it is equal to another one.
                Some(_) => {}
                None => break,
            }
        }
        if at != end {
            self.fetches.slab[fetch].chunks.truncate(members);
        }
        at == end
    }

    /// A fetch is over: what it says of the medium.
    pub(super) fn note_answered(&mut self, now: Nanos, fetch: u32) {
        let fetch = &mut self.fetches.slab[fetch];
        self.fetches.background.bytes -= std::mem::take(&mut fetch.background_bytes);
        // A medium with one request of the stream under way sends the stream without being asked for each.
        let was_asked =
            fetch.streams.is_empty() || self.config.prefetch.is_some_and(|limits| limits.most_under_way > 1);
        let shows_latency = fetch.was_alone && was_asked;
        if let Some(first) = fetch.first {
            let (asked, bytes) = (fetch.asked, fetch.bytes);
            self.background.handle_answered(Answered { asked, first, done: now, bytes, shows_latency });
        }
    }

    /// A read wants a cold window that is not decompressed.
    pub(super) fn note_cold_read(&mut self, now: Nanos, window: u64) {
        if self.brings_more() {
            self.order.handle_read(window);
            self.learned.handle_read(window);
            self.background.handle_read();
            self.filled.touched = now;
        }
    }

    /// A cold window has come.
    pub(super) fn note_came(&mut self, slot: u32, window: u64, is_background: bool, is_awaited: bool) {
        if !self.brings_more() {
            return;
        }
        self.filled.note_had(window);
        if is_background {
            let bytes = self.table[slot].place.len;
            self.stats.background_bytes += bytes;
            // What was learned says nothing about the rest.
            if !self.learned.contains(window) {
                self.background.handle_brought(bytes);
            }
            if is_awaited {
                self.note_used(slot, window);
            }
        }
    }

    fn note_used(&mut self, slot: u32, window: u64) {
        self.stats.background_used_bytes += self.table[slot].place.len;
        if !self.learned.contains(window) {
            self.background.handle_used();
        }
    }

    /// Keeps a chunk that no read has asked for.
    pub(super) fn keep_filled(&mut self, now: Nanos, slot: u32, window: u64) {
        let chunk = &mut self.table[slot];
        chunk.filled = true;
        self.filled.bytes += chunk.place.len;
        self.filled.order.push_back(window);
        self.filled.touched = now;
        // Memory may have become short meanwhile.
        self.shrink_filled(self.prefetch_memory.target_bytes().saturating_sub(self.held_bytes));
    }

    /// A kept chunk is needed.
    pub(super) fn use_filled(&mut self, slot: u32) {
        let chunk = &mut self.table[slot];
        if std::mem::take(&mut chunk.filled) {
            self.filled.bytes -= chunk.place.len;
            if let ChunkKey::Cold(window) = chunk.key {
                self.note_used(slot, window);
            }
        }
    }

    /// Drops chunks that no read has asked for until the rest has so many bytes, the oldest first.
    pub(super) fn shrink_filled(&mut self, most_bytes: u64) {
        while self.filled.bytes > most_bytes
            && let Some(window) = self.filled.order.pop_front()
        {
            if let Some(slot) = self.table.find(ChunkKey::Cold(window))
                && std::mem::take(&mut self.table[slot].filled)
            {
                self.filled.bytes -= self.table[slot].place.len;
                self.settle(slot);
            }
        }
    }

    /// Drops what waits when nothing has wanted it for long; returns when that will be.
    pub(super) fn expire_filled(&mut self, now: Nanos) -> Option<Nanos> {
        if self.filled.bytes == 0 || self.shut_down {
            return None;
        }
        let due = self.filled.touched + KEPT_FOR;
        if now < due {
            return Some(due);
        }
        self.stop_background();
        self.shrink_filled(0);
        None
    }
}
