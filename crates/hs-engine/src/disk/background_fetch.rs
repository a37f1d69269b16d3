//! Windows that no read has asked for: they come behind demand, and wait in memory as they are stored.

use std::collections::VecDeque;

use hs_units::Nanos;

use super::DiskEngine;
use super::chunk_table::Stage;
use super::fetches::{Purpose, cut};
use super::image_map::{ChunkKey, ChunkLocation, ImageMap, WindowLocation};
use super::reads::Requester;
use crate::EndReason;
use crate::background::Answered;
use crate::queue::{Class, ClientKey};

/// After so long without a read of a window, or a new one, all that wait are dropped: the start is over.
const KEPT_FOR: Nanos = Nanos::from_millis(60_000);

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
        self.prefetch.ended().is_none() || self.brings_rest() || self.filled.bytes > 0
    }

    fn brings_rest(&self) -> bool {
        let may = self.config.prefetch.is_some_and(|limits| limits.brings_rest);
        may && !self.filled.is_over && !self.shut_down && !self.prefetch_held
    }

    /// Nothing more comes behind demand.
    pub(super) const fn stop_background(&mut self) {
        self.filled.is_over = true;
    }

    /// Asks for windows behind demand, once the stream of the hot region is over or is of no help.
    pub(super) fn drive_background(&mut self, now: Nanos) {
        if !self.brings_rest() || self.fetches.background.is_queued {
            return;
        }
        let is_free = match self.prefetch.ended() {
            Some(EndReason::Nothing | EndReason::NoHelp) => true,
            // A start that finds everything in the hot region needs no more.
            Some(EndReason::Complete) => self.background.has_reads(),
            Some(_) => return self.stop_background(),
            None => self.prefetch.is_doubted(),
        };
        let under_way = self.fetches.background.bytes;
        let room = self
            .prefetch_memory
            .target_bytes()
            .saturating_sub(self.held_bytes + self.filled.bytes + under_way);
        let bytes = self.background.request_bytes(under_way, self.prefetch.has_misses());
        let Some(bytes) = bytes.filter(|bytes| is_free && *bytes <= room) else { return };
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
        match (window, found) {
            (Some(window), Candidate::At(place)) => self.request_background(now, window, place, bytes),
            (Some(_), Candidate::Behind(page)) => self.request_page(now, page),
            _ => self.stop_background(),
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

    fn request_background(&mut self, now: Nanos, window: u64, place: ChunkLocation, most_bytes: u64) {
        let slot = self.table.enter(ChunkKey::Cold(window));
        let request = self.fetches.requests.take();
        let requester = Requester { client: ClientKey::NONE, class: Class::Fill };
        let chunk = &mut self.table[slot];
        (chunk.place, chunk.raw_bytes) = (place.range, place.raw_bytes);
        (chunk.from_stream, chunk.requester) = (false, requester);
        chunk.stage = Stage::Queued { request };
        self.fetches.background.is_queued = true;
        let purpose = Purpose::Background(slot, most_bytes);
        self.enqueue(now, request, requester, cut(place.range), purpose);
    }

    /// A request for a window behind demand begins: others that lie behind it come along. If a read waits for
    /// it by now, it is a request like others.
    pub(super) fn begin_background(&mut self, now: Nanos, fetch: u32, most_bytes: u64, class: Class) {
        self.fetches.background.is_queued = false;
        let [first] = self.fetches.slab[fetch].chunks[..] else { return };
        let ChunkKey::Cold(first_window) = first.key else { return };
        if class != Class::Fill {
            return;
        }
        let (mut bytes, mut end) = (first.range.len, first.range.end());
        for window in first_window + 1..self.map.windows() {
            let place = match self.map.window(window) {
                Some(WindowLocation::Zero) => continue,
                Some(WindowLocation::Stored(place)) => place,
                None => break,
            };
            let is_wanted = !self.filled.has_had(window) && self.is_unasked(now, window);
            if place.range.offset != end || bytes + place.range.len > most_bytes || !is_wanted {
                break;
            }
            (bytes, end) = (bytes + place.range.len, place.range.end());
            let slot = self.table.enter(ChunkKey::Cold(window));
            let chunk = &mut self.table[slot];
            (chunk.place, chunk.raw_bytes) = (place.range, place.raw_bytes);
            chunk.from_stream = false;
            chunk.requester = Requester { client: ClientKey::NONE, class: Class::Fill };
            self.add_member(fetch, slot);
        }
        self.fetches.slab[fetch].background_bytes = bytes;
        self.fetches.background.bytes += bytes;
    }

    /// A fetch is over: what it says of the medium.
    pub(super) fn note_answered(&mut self, now: Nanos, fetch: u32) {
        let fetch = &mut self.fetches.slab[fetch];
        self.fetches.background.bytes -= std::mem::take(&mut fetch.background_bytes);
        if let Some(first) = fetch.first {
            let (asked, bytes, was_alone) = (fetch.asked, fetch.bytes, fetch.was_alone);
            self.background.handle_answered(Answered { asked, first, done: now, bytes, was_alone });
        }
    }

    /// A read wants a cold window that is not decompressed.
    pub(super) fn note_cold_read(&mut self, now: Nanos, window: u64) {
        if self.brings_rest() {
            self.order.handle_read(window);
            self.background.handle_read();
            self.filled.touched = now;
        }
    }

    /// A cold window has come.
    pub(super) fn note_came(&mut self, slot: u32, window: u64, is_background: bool, is_awaited: bool) {
        if !self.brings_rest() {
            return;
        }
        self.filled.note_had(window);
        if is_background {
            let bytes = self.table[slot].place.len;
            self.background.handle_brought(bytes);
            self.stats.background_bytes += bytes;
            if is_awaited {
                self.note_used(bytes);
            }
        }
    }

    const fn note_used(&mut self, bytes: u64) {
        self.background.handle_used();
        self.stats.background_used_bytes += bytes;
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
            let bytes = chunk.place.len;
            self.filled.bytes -= bytes;
            self.note_used(bytes);
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
