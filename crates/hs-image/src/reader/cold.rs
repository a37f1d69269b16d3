//! Fetching cold windows: one that was missed, its neighbours, and windows read ahead.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hs_engine::queue::{Class, ClientKey};
use hs_format::{ChunkRef, Decompressor, WindowRef};
use hs_units::BlockRange;

use super::jobs::{Job, Turn};
use super::{Asker, Bytes, Shared};
use crate::ImageError;
use crate::reader::memory::{Key, Memory};

/// The limit of neighbours that come with a missed window.
#[derive(Clone, Copy)]
struct Unasked {
    /// So many windows.
    depth: u64,
    /// So many bytes of the image.
    bytes: u64,
}

/// Windows that a request was to bring. When its thread panics, the reads that wait for them fail.
struct Unfinished<'a> {
    shared: &'a Shared,
    next: Cell<u64>,
    end: u64,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.next.get()..self.end).for_each(|window| self.shared.panicked(Key::Cold(window)));
        }
    }
}

impl Shared {
    /// Brings windows that reads wait for, in ascending order.
    pub(super) fn load_windows(&self, mut windows: &[u64], turn: &Turn<'_>, tools: &mut Decompressor) {
        while let Some((window, others)) = windows.split_first() {
            let known = self.memory.lock().peek(Key::Cold(*window));
            let end = match known {
                Some(bytes) => {
                    self.publish(Key::Cold(*window), &bytes, false);
                    window + 1
                }
                None => self.load_cold(*window, others, turn, tools),
            };
            windows = &others[others.partition_point(|other| *other < end)..];
        }
    }

    /// Decompresses a window that has come. If it has left meanwhile, for want of memory, it is fetched only
    /// if a read waits.
    pub(super) fn decode_come(&self, window: u64, tools: &mut Decompressor) {
        let key = Key::Cold(window);
        let known = self.memory.lock().peek(key);
        if let Some(bytes) = known {
            return self.publish(key, &bytes, false);
        }
        if !self.decode_stored(window, tools) && !self.memory.lock().forget_unasked(key) {
            self.load(Asker::SOMEBODY, key);
        }
    }

    /// Decompresses a window that has come and waits as it is stored; false when there is none, or it is
    /// damaged.
    fn decode_stored(&self, window: u64, tools: &mut Decompressor) -> bool {
        let stored = self.memory.lock().take_stored(window);
        let Some((chunk, stored)) = stored else { return false };
        match self.image.decode_cold(window, &chunk, &stored, tools) {
            Ok(raw) => {
                self.publish(Key::Cold(window), &Arc::new(raw), false);
                true
            }
            // It came unverified, a while ago: the medium may do better now that it is asked.
            Err(error) => {
                log::warn!("{error}; it is read again");
                false
            }
        }
    }

    /// Brings a window that a read waits for, with those of the `others` that lie directly behind it;
    /// neighbours come with the same request when that has paid so far. Returns the end of the windows that
    /// are done with.
    fn load_cold(&self, window: u64, others: &[u64], turn: &Turn<'_>, tools: &mut Decompressor) -> u64 {
        let asked = Instant::now();
        if self.decode_stored(window, tools) {
            return window + 1;
        }
        let known = self.unreadable.lock().still(window, self.now()).cloned();
        if let Some(error) = known {
            self.failed(Key::Cold(window), &error);
            return window + 1;
        }
        match self.image.window(window) {
            Ok(WindowRef::Zero) => {
                let zeroes = self.memory.lock().zeroes();
                self.publish(Key::Cold(window), &zeroes, false);
            }
            Ok(WindowRef::Chunk(chunk)) => {
                let depth = self.neighbours.lock().miss();
                let most = self.policy.most_neighbour_bytes().unwrap_or(u64::MAX);
                let run = self.extend(window, chunk, Unasked { depth, bytes: most }, others);
                let end = window + run.len() as u64;
                let awaited =
                    (window..).zip(&run).filter(|(at, _)| *at == window || others.binary_search(at).is_ok());
                let outside_bytes = awaited.map(|(_, chunk)| chunk.range.len).sum();
                self.counters.outside_bytes.fetch_add(outside_bytes, Relaxed);
                let is_last = others.last().is_none_or(|last| *last < end);
                self.stream_run(window, &run, is_last.then_some(turn), tools);
                return end;
            }
            Err(error) => self.lost(window, asked, &error),
        }
        window + 1
    }

    /// Brings windows that no read waits for yet; the first is already marked as loading.
    pub(super) fn load_ahead(&self, mut windows: Range<u64>, turn: &Turn<'_>, tools: &mut Decompressor) {
        loop {
            let Some(WindowRef::Chunk(first)) = self.image.peek_window(windows.start) else {
                // The index has forgotten it since it was asked.
                self.load_cold(windows.start, &[], turn, tools);
                return;
            };
            let unasked = Unasked { depth: windows.end - windows.start - 1, bytes: u64::MAX };
            let run = self.extend(windows.start, first, unasked, &[]);
            self.stream_run(windows.start, &run, None, tools);
            let rest = windows.start + run.len() as u64..windows.end;
            match self.begin_next(&mut self.memory.lock(), &rest) {
                Some(next) => windows.start = next,
                None => return,
            }
        }
    }

    /// Has windows that no read waits for yet fetched with a permit of their own.
    pub(super) fn go_on_ahead(&self, windows: &Range<u64>) {
        let first = self.begin_next(&mut self.memory.lock(), windows);
        if let Some(first) = first {
            let asker = Asker { client: ClientKey::NOBODY, class: Class::ReadAhead };
            self.hand_in(asker, Job::Ahead(first..windows.end));
        }
    }

    /// The first of these windows that has to be fetched, marked as loading. Only what the index in
    /// memory knows: reading ahead must not cost an index read.
    pub(super) fn begin_next(&self, memory: &mut Memory, windows: &Range<u64>) -> Option<u64> {
        let end = windows.end.min(self.image.superblock().windows());
        (windows.start..end).find(|window| {
            matches!(self.image.peek_window(*window), Some(WindowRef::Chunk(_)))
                && self.may_be_readable(*window)
                && memory.begin_unasked(Key::Cold(*window))
        })
    }

    /// The chunk of `window` and those of windows after it, as far as `unasked` allows, and of those `others`
    /// that reads wait for, that lie directly behind it in the file and are not in memory; marks them as
    /// loading.
    fn extend(&self, window: u64, chunk: ChunkRef, unasked: Unasked, others: &[u64]) -> Vec<ChunkRef> {
        let mut run = vec![chunk];
        let mut end = chunk.range.end();
        let mut unasked_bytes = 0;
        let last_asked = others.last().map_or(0, |last| *last);
        let mut memory = self.memory.lock();
        let last = last_asked.max(window + unasked.depth);
        let last = last.min(self.image.superblock().windows() - 1);
        for next in window + 1..=last {
            // Only what the index in memory knows: a neighbour must not cost an index read.
            let Some(WindowRef::Chunk(chunk)) = self.image.peek_window(next) else { break };
            if chunk.range.offset != end || !self.may_be_readable(next) {
                break;
            }
            // What lies before one that a read waits for is no more than a gap would cost.
            unasked_bytes = if next <= last_asked { 0 } else { unasked_bytes + chunk.range.len };
            if unasked_bytes > unasked.bytes {
                break;
            }
            // Those that reads wait for are marked as loading already.
            let comes = if others.binary_search(&next).is_ok() {
                !memory.has_come(next) && !memory.has(Key::Cold(next))
            } else {
                memory.begin_unasked(Key::Cold(next))
            };
            if !comes {
                break;
            }
            end = chunk.range.end();
            run.push(chunk);
        }
        drop(memory);
        let mut neighbours = self.neighbours.lock();
        let brought =
            (window + 1..window + run.len() as u64).filter(|window| others.binary_search(window).is_err());
        brought.for_each(|neighbour| neighbours.brought(neighbour));
        run
    }

    /// Reads a run of chunks with one request and hands each over when it has come; ends the `turn` when all
    /// have.
    fn stream_run(&self, first: u64, run: &[ChunkRef], turn: Option<&Turn<'_>>, tools: &mut Decompressor) {
        let mut came = 0;
        let mut asked = Instant::now();
        let unfinished = Unfinished { shared: self, next: Cell::new(first), end: first + run.len() as u64 };
        let outcome = self.image.stream_cold(run, &mut |number, stored| {
            if number == 0 {
                self.policy.fetched(asked, Instant::now(), stored.len() as u64);
            }
            let window = first + u64::from(number);
            came = u64::from(number) + 1;
            if let Some(turn) = turn.filter(|_| came == run.len() as u64) {
                turn.end();
            }
            let chunk = &run[number as usize];
            if let Some(stored) = self.keep(window, chunk, stored) {
                self.publish_stored(window, chunk, &stored, tools);
            }
            unfinished.next.set(window + 1);
            ControlFlow::Continue(())
        });
        let Err(error) = outcome else { return };
        for window in first + came..first + run.len() as u64 {
            let key = Key::Cold(window);
            if self.memory.lock().forget_unasked(key) {
                continue;
            }
            // One bad place fails the request for all: windows that reads wait for get a request of their
            // own.
            let alone = if run.len() > 1 {
                asked = Instant::now();
                self.image.load_window(window, tools)
            } else {
                Err(error.clone())
            };
            match alone {
                Ok(raw) => {
                    let bytes = raw.map_or_else(|| self.memory.lock().zeroes(), Arc::new);
                    self.publish(key, &bytes, false);
                }
                Err(error) => self.lost(window, asked, &error),
            }
            unfinished.next.set(window + 1);
        }
    }

    /// A window that was asked for when it was `asked` cannot be had.
    fn lost(&self, window: u64, asked: Instant, error: &ImageError) {
        self.unreadable.lock().failed(window, asked.elapsed().into(), self.now(), error);
        // There is nothing better left than the hot copies of its blocks: they get another chance the next
        // time.
        let bytes = self.image.window_bytes();
        let blocks = BlockRange::covering(window * bytes, bytes).blocks();
        let mut memory = self.memory.lock();
        for place in blocks.filter_map(|lba| self.image.hot_place(lba)) {
            memory.unset_bad(place.chunk);
        }
        drop(memory);
        self.failed(Key::Cold(window), error);
    }

    /// Whether it may be worth to read this window without a request for it.
    fn may_be_readable(&self, window: u64) -> bool {
        self.unreadable.lock().still(window, self.now()).is_none()
    }

    /// Keeps a window that no read waits for as it is stored; gives it back when a read waits by now. One
    /// that a sequential reader is about to ask for is decompressed by another thread.
    fn keep<'a>(&self, window: u64, chunk: &ChunkRef, stored: Cow<'a, [u8]>) -> Option<Cow<'a, [u8]>> {
        let near = self.sequential.lock().is_near(window);
        let mut memory = self.memory.lock();
        let wanted = memory.keep_stored(window, *chunk, stored);
        if wanted.is_none() && near && memory.begin_decoding(window) {
            self.decode(window);
        }
        wanted
    }

    fn publish_stored(&self, window: u64, chunk: &ChunkRef, stored: &[u8], tools: &mut Decompressor) {
        match self.image.decode_cold(window, chunk, stored, tools) {
            Ok(raw) => {
                let bytes: Bytes = Arc::new(raw);
                self.publish(Key::Cold(window), &bytes, false);
            }
            Err(error) => self.lost(window, Instant::now(), &error),
        }
    }
}
