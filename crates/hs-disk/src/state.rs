//! Everything behind the lock: the engine, the bytes, the reads that wait, and what is to be done.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hs_engine::EndReason;
use hs_engine::disk::{
    Action, ChunkKey, Deliverer, DiskEngine, FetchId, PermitId, ReadId, Source, Span, Why, Worker,
};
use hs_image::{ChunkPlace, ImageError};
use hs_units::{ByteRange, Nanos};

use crate::bytes::{ChunkBytes, StoredChunk};
use crate::deliver::Deliver;
use crate::errors::Errors;
use crate::figures::{DemandEvent, DiskFigures};
use crate::jobs::{DecodeJob, DeliverJob, FetchJob, Fetched, Jobs, Progress, Wanted};
use crate::map::DiskMap;
use crate::outcomes::{Answer, Answered, Outcomes, Piece};
use crate::streamed::StreamLog;

/// A read that waits for its answer.
pub(crate) struct Waiter {
    pub(crate) answer: Answer,
    pub(crate) range: ByteRange,
    pub(crate) at: Nanos,
}

/// See [the module](self).
pub(crate) struct DiskState {
    pub(crate) engine: DiskEngine<DiskMap>,
    pub(crate) bytes: ChunkBytes,
    /// By the number of the read.
    waiters: Vec<Option<Waiter>>,
    pub(crate) jobs: Jobs,
    /// Whether fetches are begun after the lock, and only some need a worker.
    pub(crate) can_begin: bool,
    /// Fetches that are under way.
    fetching: HashMap<FetchId, Arc<AtomicBool>>,
    pub(crate) errors: Errors,
    pub(crate) figures: DiskFigures,
    pub(crate) stream_log: StreamLog,
    pub(crate) granted: HashSet<PermitId>,
    pub(crate) deliver: Option<Arc<dyn Deliver>>,
    /// When the engine wants to be polled again.
    pub(crate) wake_at: Option<Nanos>,
    /// Until when the clock thread sleeps.
    pub(crate) clock_until: Nanos,
    /// Workers that exist, that wait for a job, and that have been woken and have not come yet.
    pub(crate) workers: usize,
    pub(crate) idle: usize,
    pub(crate) waking: usize,
    /// Threads that watch the prefetch.
    pub(crate) watchers: usize,
    pub(crate) is_shut_down: bool,
    /// The engine is done: the threads end.
    pub(crate) is_done: bool,
    has_logged_end: bool,
    /// Lines for the log.
    pub(crate) lines: Vec<(log::Level, String)>,
    /// How often the lock was taken.
    pub(crate) locks: u64,
}

impl DiskState {
    pub(crate) fn new(engine: DiskEngine<DiskMap>) -> Self {
        let image = &engine.map().image;
        let (window_bytes, can_begin) = (image.window_bytes(), image.can_begin());
        Self {
            can_begin,
            engine,
            bytes: ChunkBytes::new(window_bytes),
            waiters: Vec::new(),
            jobs: Jobs::default(),
            fetching: HashMap::new(),
            errors: Errors::default(),
            figures: DiskFigures::default(),
            stream_log: StreamLog::default(),
            granted: HashSet::new(),
            deliver: None,
            wake_at: None,
            clock_until: Nanos::ZERO,
            workers: 0,
            idle: 0,
            waking: 0,
            watchers: 0,
            is_shut_down: false,
            is_done: false,
            has_logged_end: false,
            lines: Vec::new(),
            locks: 0,
        }
    }

    /// A read comes.
    pub(crate) fn read(
        &mut self,
        now: Nanos,
        requester: hs_engine::disk::Requester,
        range: ByteRange,
        answer: Answer,
    ) {
        let read = self.engine.handle_read(now, requester, range);
        let index = read.index() as usize;
        if self.waiters.len() <= index {
            self.waiters.resize_with(index + 1, || None);
        }
        self.waiters[index] = Some(Waiter { answer, range, at: now });
    }

    fn take_waiter(&mut self, read: ReadId) -> Waiter {
        self.waiters[read.index() as usize].take().expect("a read is answered once")
    }

    /// Does what the engine says until it waits; what needs no lock is left in `out`.
    pub(crate) fn pump(&mut self, now: Nanos, out: &mut Outcomes) {
        self.wake_at = loop {
            match self.engine.poll(now) {
                Action::Answer(read) => self.answer(now, read, out),
                Action::Fail(read, why) => self.fail(now, read, why, out),
                Action::Drop(key, form) => {
                    if let (ChunkKey::Page(page), hs_engine::disk::Form::Raw) = (key, form) {
                        self.engine.map_mut().pages.remove(page);
                    }
                    out.freed.extend(self.bytes.take(key, form));
                }
                Action::Fetch { id, .. } => {
                    let job = self.fetch_job(now, id);
                    if job.is_stream && log::log_enabled!(log::Level::Debug) {
                        self.lines.push((log::Level::Debug, format!("{now}: prefetching {}", job.what)));
                    }
                    if self.can_begin {
                        out.begun.push(job);
                    } else {
                        self.jobs.push_fetch(job);
                    }
                }
                Action::CancelFetch(id) => {
                    if let Some(cancelled) = self.fetching.get(&id) {
                        cancelled.store(true, Relaxed);
                    }
                }
                Action::Decode { key, decoder } => match self.bytes.stored(key) {
                    Some(stored) => self.jobs.decodes.push_back(DecodeJob { key, decoder, stored }),
                    // Its reads fail: the bytes were not kept.
                    None => {
                        self.engine.handle_worker_lost(now, Worker::Decoder(decoder));
                        self.engine.handle_worker_restarted(now, Worker::Decoder(decoder));
                    }
                },
                Action::Deliver { key, by, tripwire } => self.plan_delivery(key, by, tripwire),
                Action::HoldBack { chunk, block } => self.bytes.hold_back(chunk, block),
                Action::Grant(permit) => {
                    self.granted.insert(permit);
                }
                Action::WaitUntil(then) => break Some(then),
                Action::Wait | Action::Idle => break None,
                Action::Done => {
                    self.is_done = true;
                    break None;
                }
            }
        };
        out.is_last = self.is_shut_down;
        out.lines.append(&mut self.lines);
        self.log_end(now, out);
    }

    fn log_end(&mut self, now: Nanos, out: &mut Outcomes) {
        let Some(reason) = self.engine.prefetch().ended().filter(|_| !self.has_logged_end) else { return };
        self.has_logged_end = true;
        if reason == EndReason::Failed {
            let line = "prefetch ends: too many hot chunks in a row cannot be read".to_owned();
            out.lines.push((log::Level::Error, line));
        }
        out.lines.push((log::Level::Info, format!("{now}: prefetch ended: {}", reason.as_str())));
    }

    fn answer(&mut self, now: Nanos, read: ReadId, out: &mut Outcomes) {
        let waiter = self.take_waiter(read);
        let answer = self.engine.answer(read);
        let pieces = answer.spans.iter().map(|span| piece(&self.bytes, span)).collect();
        let cost = now.saturating_sub(answer.at);
        let figures = &mut self.figures;
        figures.demand_requests += 1;
        figures.demand_bytes += answer.range.len;
        if answer.waited {
            figures.waited_requests += 1;
            figures.demand_wait += cost;
            figures.late_bytes += answer.late_bytes;
        }
        let event = DemandEvent {
            at: answer.at,
            range: answer.range,
            cost,
            waited: answer.waited,
            late_bytes: answer.late_bytes,
            expected: answer.expected,
        };
        out.answered.push(Answered { answer: waiter.answer, pieces, event });
    }

    fn fail(&mut self, now: Nanos, read: ReadId, why: Why, out: &mut Outcomes) {
        let waiter = self.take_waiter(read);
        let image = &self.engine.map().image;
        let error = match why {
            Why::OutsideDisk => {
                let disk_bytes = image.disk_bytes();
                out.failed.push((waiter.answer, ImageError::OutsideDisk { range: waiter.range, disk_bytes }));
                return;
            }
            Why::TimedOut => {
                self.figures.given_up_requests += 1;
                let waited = now.saturating_sub(waiter.at).into();
                let (path, trouble) = (image.name().to_owned(), image.trouble());
                let error = ImageError::NoAnswer { path, trouble, waited };
                // All that are given up at once have one line.
                let is_first =
                    !out.failed.iter().any(|(_, other)| matches!(other, ImageError::NoAnswer { .. }));
                if is_first {
                    out.lines.push((log::Level::Error, format!("{error}: reads are given up")));
                }
                error
            }
            _ => self.errors.of(why, image),
        };
        if let Why::Store(key) | Why::Damaged(key) | Why::WorkerLost(key) = why {
            let line = self.errors.line(key, &error, image);
            out.lines.push(line);
        }
        self.figures.failed_requests += u64::from(!error.is_closed());
        out.failed.push((waiter.answer, error));
    }

    /// What a worker needs to know of a fetch.
    fn fetch_job(&mut self, now: Nanos, id: FetchId) -> FetchJob {
        let (view, map) = (self.engine.fetch(id), self.engine.map());
        let page = match view.chunks {
            [chunk] => match chunk.key {
                ChunkKey::Page(page) => map.pages.page(&map.image, page).map(|(place, _)| (page, place)),
                ChunkKey::Hot(_) | ChunkKey::Cold(_) => None,
            },
            _ => None,
        };
        let what = match page {
            Some((number, page)) => Fetched::Page(number, page),
            None => Fetched::Chunks(view.chunks.iter().map(|chunk| wanted(map, chunk)).collect()),
        };
        let cancelled = Arc::new(AtomicBool::new(false));
        self.fetching.insert(id, Arc::clone(&cancelled));
        let (is_stream, is_background) = (view.is_stream, view.is_background);
        FetchJob { id, what, is_stream, is_background, asked: now, cancelled, progress: Progress::default() }
    }

    /// A chunk of a fetch has come.
    pub(crate) fn take_stored(
        &mut self,
        now: Nanos,
        id: FetchId,
        key: ChunkKey,
        bytes: u64,
        stored: Option<StoredChunk>,
    ) {
        if self.engine.handle_stored(now, id, key, bytes)
            && let Some(stored) = stored
        {
            self.bytes.put_stored(key, stored);
        }
    }

    /// A fetch is over.
    pub(crate) fn end_fetch(&mut self, now: Nanos, id: FetchId) {
        self.fetching.remove(&id);
        self.engine.handle_fetch_done(now, id);
    }

    fn plan_delivery(&mut self, key: ChunkKey, by: Deliverer, tripwire: Option<u32>) {
        let (ChunkKey::Hot(chunk), Some(raw)) = (key, self.bytes.raw(key).cloned()) else { return };
        if let Some(block) = tripwire {
            self.bytes.hold_back(chunk, block);
        }
        let job = DeliverJob { key, chunk, raw, left_out: self.engine.left_out(key).to_vec() };
        match by {
            Deliverer::Decoder(decoder) => self.jobs.own_delivery = Some((decoder, job)),
            Deliverer::Thread => self.jobs.delivery = Some(job),
        }
    }
}

fn wanted(map: &DiskMap, chunk: &hs_engine::disk::FetchChunk) -> Wanted {
    let place = match chunk.key {
        ChunkKey::Hot(number) => Some(map.image.hot_chunk(number).0),
        ChunkKey::Cold(window) => map.cold_chunk(window),
        ChunkKey::Page(_) => None,
    };
    let place = place.map(|place| ChunkPlace { chunk: place, at: chunk.range });
    Wanted { key: chunk.key, place, is_brought: chunk.is_brought() }
}

fn piece(bytes: &ChunkBytes, span: &Span) -> Piece {
    let there = "the engine knows which bytes there are";
    match span.source {
        Source::Chunk(key) => {
            Piece { bytes: bytes.raw(key).expect(there).clone(), from: span.from, len: span.len }
        }
        Source::Tripwire(chunk, base) => Piece {
            bytes: bytes.tripwire(chunk).expect(there).clone(),
            from: span.from - base,
            len: span.len,
        },
        Source::Zero => Piece { bytes: bytes.zeroes().clone(), from: 0, len: span.len },
    }
}
