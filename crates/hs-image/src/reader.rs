//! Answers reads of the disk, in parallel, from memory where it can.
//!
//! A read is cut into spans, one for each chunk that it touches. Spans whose chunk is in memory are
//! served at once; for the others one thread fetches, verifies and decompresses the chunk, however
//! many reads wait for it. A read is answered when its last span is there, from whichever thread
//! brought it, so no thread waits for the medium on behalf of a reader.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hs_engine::Neighbours;
use hs_engine::cache::{CacheUsage, PolicyKind};
use hs_engine::queue::{Class, ClientKey, QueueConfig, QueueMetrics, Recorded};
use hs_format::Decompressor;
use hs_units::{BLOCK_BYTES, ByteRange, Lba, Nanos};
use parking_lot::Mutex;

use crate::policy::{DemandEvent, HotPolicy, Watch};
use crate::{Image, ImageError};

mod blocks_served;
mod cold;
mod jobs;
mod kept;
mod markers;
mod memory;
mod patience;
mod sequential;
mod span;
mod stream;
#[cfg(test)]
mod tests;
mod unreadable;
mod waits;

pub use jobs::Asker;
use jobs::{Job, Jobs, Turn};
pub use markers::MarkerCount;
use memory::{Key, Memory};
use patience::Patience;
pub use patience::{ReadLimit, Waiting};
use sequential::Sequential;
use span::{Found, Span, cold_windows};
pub use stream::StreamTurn;
use unreadable::Unreadable;
use waits::{Wait, Waits};

/// A chunk's decompressed, verified bytes, shared by all answers from it.
pub(crate) type Bytes = Arc<Vec<u8>>;

/// Called once with the bytes asked for, in order, in any number of pieces.
type Answer = Box<dyn FnOnce(Result<&[&[u8]], &ImageError>) + Send>;

/// Windows that are decompressed ahead of a sequential reader, for each core.
const DECODED_AHEAD: usize = 2;

/// How a [`Reader`] uses the machine.
#[derive(Clone, Copy, Debug)]
pub struct ReaderOptions {
    /// Threads that fetch chunks that reads wait for; also the requests that a medium sees at once.
    pub demand_threads: usize,
    /// Chunks kept because they may be read again, and those that came early.
    pub cache_bytes: u64,
    /// Which of them leave when that is full.
    pub cache_policy: PolicyKind,
    /// Readers keep what they are given, as the kernel does in its page cache: a chunk is not kept here any
    /// longer when each of its blocks was handed over.
    pub readers_keep: bool,
    /// Bytes of the disk read ahead of a sequential reader, at most; they wait compressed.
    pub read_ahead_bytes: u64,
    /// In which order chunks are fetched when more are wanted than there are threads.
    pub queue: QueueConfig,
    /// A read that has waited for so long is answered with an error; without a limit when none.
    pub read_timeout: Option<Duration>,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            demand_threads: 8,
            cache_bytes: 40 << 20,
            cache_policy: PolicyKind::S3Fifo,
            readers_keep: false,
            read_ahead_bytes: 8 << 20,
            queue: QueueConfig::default(),
            read_timeout: None,
        }
    }
}

/// What a [`Reader`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReaderStats {
    /// Reads answered.
    pub demand_requests: u64,
    /// Bytes of the disk that they asked for.
    pub demand_bytes: u64,
    /// Reads that had to wait for the medium.
    pub waited_requests: u64,
    /// Sum of the times that reads waited.
    pub demand_wait: Nanos,
    /// The time in which at least one read waited, each moment once. Reads of chunks that are asked for only
    /// because they are to come ([`HotPolicy::is_expected`]) are left out: no program waits for those.
    pub program_wait: Nanos,
    /// Bytes asked for that lie in the hot region and had not come yet.
    pub late_bytes: u64,
    /// Bytes of the file, as stored, that lie outside the hot region and that reads waited for, without
    /// neighbours.
    pub outside_bytes: u64,
    /// Decompressed bytes of hot chunks that came by the stream.
    pub prefetch_bytes: u64,
    /// Of these, bytes that were never asked for.
    pub unserved_prefetch_bytes: u64,
    /// Times that a chunk could not be had, because it is damaged or the medium failed.
    pub chunk_errors: u64,
    /// Reads that were answered with an error for that, or because the medium did not answer in time.
    pub failed_requests: u64,
    /// Of these, reads that the medium did not answer in time.
    pub given_up_requests: u64,
}

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    waited: AtomicU64,
    wait_ns: AtomicU64,
    late_bytes: AtomicU64,
    outside_bytes: AtomicU64,
    prefetch_bytes: AtomicU64,
    chunk_errors: AtomicU64,
    failed_requests: AtomicU64,
    given_up_requests: AtomicU64,
}

struct Shared {
    image: Arc<Image>,
    policy: Arc<dyn HotPolicy>,
    watch: Option<Arc<dyn Watch>>,
    memory: Mutex<Memory>,
    sequential: Mutex<Sequential>,
    neighbours: Mutex<Neighbours>,
    unreadable: Mutex<Unreadable>,
    jobs: Jobs,
    patience: Patience,
    counters: Counters,
    waits: Waits,
    started: Instant,
}

/// A read that has not been answered yet.
struct Pending {
    spans: Vec<Span>,
    found: Vec<Option<Found>>,
    missing: usize,
    /// Of these, spans outside the hot region.
    missing_cold: usize,
    at: Nanos,
    range: ByteRange,
    late_bytes: u64,
    missed: bool,
    /// Lasts as long as a program waits for this.
    wait: Option<Wait>,
    asker: Asker,
    answer: Answer,
}

/// Serves the disk of an [`Image`].
pub struct Reader {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Reader {
    /// A reader of `image`; starts its threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn new(
        image: Arc<Image>,
        options: ReaderOptions,
        policy: Arc<dyn HotPolicy>,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Self, ImageError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let decode_ahead = (cores * DECODED_AHEAD) as u64;
        let memory = Memory::new(&image, &options);
        let shared = Arc::new(Shared {
            policy,
            watch,
            memory: Mutex::new(memory),
            sequential: Mutex::new(Sequential::new(
                options.read_ahead_bytes / image.window_bytes(),
                decode_ahead,
            )),
            neighbours: Mutex::default(),
            unreadable: Mutex::default(),
            jobs: Jobs::new(options.queue, options.demand_threads),
            patience: Patience::new(options.read_timeout),
            counters: Counters::default(),
            waits: Waits::default(),
            started: Instant::now(),
            image,
        });
        let reader = Self { shared, threads: Mutex::new(Vec::new()) };
        for number in 0..options.demand_threads.max(1) {
            reader.spawn(format!("hs-demand-{number}"), Shared::work)?;
        }
        reader.spawn("hs-patience".to_owned(), Shared::watch_reads)?;
        Ok(reader)
    }

    fn spawn(&self, name: String, run: fn(&Shared)) -> Result<(), ImageError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || run(&shared))
            .map_err(ImageError::io(self.shared.image.name(), "start a thread"))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// The image that is read.
    #[must_use]
    pub fn image(&self) -> &Arc<Image> {
        &self.shared.image
    }

    /// Reads `len` bytes of the disk from `offset`; `answer` is called once, now or later, from any
    /// thread, with the bytes or with an error.
    pub fn submit(
        &self,
        offset: u64,
        len: u32,
        answer: impl FnOnce(Result<&[&[u8]], &ImageError>) + Send + 'static,
    ) {
        self.submit_for(Asker::SOMEBODY, offset, len, answer);
    }

    /// As [`Reader::submit`], where several clients share the disk or no program waits for the answer.
    pub fn submit_for(
        &self,
        asker: Asker,
        offset: u64,
        len: u32,
        answer: impl FnOnce(Result<&[&[u8]], &ImageError>) + Send + 'static,
    ) {
        self.shared.submit(asker, ByteRange::new(offset, u64::from(len)), Box::new(answer), None);
    }

    /// A client opened a connection: all that it has have one share of the medium.
    pub fn open_connection(&self, client: ClientKey) {
        self.shared.jobs.open_connection(client);
    }

    /// A client closed a connection.
    pub fn close_connection(&self, client: ClientKey) {
        self.shared.jobs.close_connection(client);
    }

    /// What was fetched for each class and client, and how long requests waited.
    #[must_use]
    pub fn queue_metrics(&self) -> QueueMetrics {
        self.shared.jobs.metrics()
    }

    /// The last events of the queue before the medium, at most so many, the oldest first; times are since the
    /// reader was made.
    #[must_use]
    pub fn queue_events(&self, most: usize) -> Vec<Recorded> {
        self.shared.jobs.events(most)
    }

    /// In which order chunks are fetched.
    #[must_use]
    pub fn queue_config(&self) -> QueueConfig {
        self.shared.jobs.config()
    }

    /// Reads into `buffer` and waits.
    ///
    /// # Errors
    /// When the bytes cannot be had or are not what their digests say.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ImageError> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let len = u32::try_from(buffer.len()).map_err(|_| ImageError::OutsideDisk {
            range: ByteRange::new(offset, buffer.len() as u64),
            disk_bytes: self.shared.image.disk_bytes(),
        })?;
        self.submit(offset, len, move |result| {
            let _ = sender.send(result.map(<[&[u8]]>::concat).map_err(Clone::clone));
        });
        let bytes = receiver.recv().map_err(|_| ImageError::Closed)??;
        buffer.copy_from_slice(&bytes);
        Ok(())
    }

    /// What the cache holds and how often that helped.
    #[must_use]
    pub fn cache_usage(&self) -> CacheUsage {
        self.shared.memory.lock().cache_usage()
    }

    /// Bytes in memory that readers have as well, and keep: of chunks that they do not have whole yet.
    #[must_use]
    pub fn handed_over_bytes(&self) -> u64 {
        self.shared.memory.lock().handed_over_bytes()
    }

    /// Which policy the cache evicts by.
    #[must_use]
    pub fn cache_policy(&self) -> PolicyKind {
        self.shared.memory.lock().cache_policy()
    }

    /// How use of prefetched chunks was seen where readers keep what they were given.
    #[must_use]
    pub fn marker_count(&self) -> MarkerCount {
        self.shared.memory.lock().marker_count()
    }

    /// The cache may hold so many bytes from now on; what is too much is freed before this returns.
    pub fn set_cache_budget(&self, bytes: u64) {
        let leaving = self.shared.memory.lock().set_cache_budget(bytes);
        // Here, where no reader waits for the lock.
        drop(leaving);
    }

    /// Time since the reader was made, the clock of [`DemandEvent::at`].
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.shared.started.elapsed().into()
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> ReaderStats {
        let counters = &self.shared.counters;
        let memory = self.shared.memory.lock();
        ReaderStats {
            demand_requests: counters.requests.load(Relaxed),
            demand_bytes: counters.bytes.load(Relaxed),
            waited_requests: counters.waited.load(Relaxed),
            demand_wait: Nanos(counters.wait_ns.load(Relaxed)),
            program_wait: self.shared.waits.time(),
            late_bytes: counters.late_bytes.load(Relaxed),
            outside_bytes: counters.outside_bytes.load(Relaxed),
            prefetch_bytes: counters.prefetch_bytes.load(Relaxed),
            unserved_prefetch_bytes: memory.unserved_bytes(),
            chunk_errors: counters.chunk_errors.load(Relaxed),
            failed_requests: counters.failed_requests.load(Relaxed),
            given_up_requests: counters.given_up_requests.load(Relaxed),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        self.shared.jobs.stop();
        self.shared.patience.end();
        for thread in threads {
            let _ = thread.join();
        }
        for pending in self.shared.memory.lock().abandon() {
            (pending.answer)(Err(&ImageError::Closed));
        }
    }
}

impl Shared {
    fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }

    fn submit(&self, asker: Asker, range: ByteRange, answer: Answer, since: Option<Nanos>) {
        let disk_bytes = self.image.disk_bytes();
        if !range.fits_in(disk_bytes) {
            return answer(Err(&ImageError::OutsideDisk { range, disk_bytes }));
        }
        let mut memory = self.memory.lock();
        let (mut pending, used) = self.begin(&mut memory, asker, range, answer, since);
        // Blocks of the hot region are scattered by nature: only cold windows show a sequential reader.
        let windows = cold_windows(&pending.spans);
        if pending.missing == 0 {
            self.mark_served(&mut memory, &pending);
            drop(memory);
            if used {
                self.policy.used();
            }
            self.answer(pending);
            return windows.for_each(|window| self.read_ahead(asker, window));
        }
        let (mut wanted, mut coming, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        // Windows that came before they were asked for: they take a processor, but not the medium.
        let mut come = Vec::new();
        for (span, found) in pending.spans.iter().zip(&pending.found) {
            if found.is_some() {
                continue;
            }
            match span.key {
                Key::Hot(chunk) => {
                    pending.late_bytes += u64::from(span.len);
                    if memory.asked_again(chunk) {
                        dropped.push(chunk);
                    }
                }
                Key::Cold(window) => {
                    pending.missing_cold += 1;
                    pending.missed |= !memory.has_come(window);
                    self.neighbours.lock().used(window);
                }
            }
            if memory.is_loading(span.key) {
                coming.push(span.key);
            } else if !wanted.contains(&span.key) {
                wanted.push(span.key);
                come.extend(
                    matches!(span.key, Key::Cold(window) if memory.has_come(window)).then_some(span.key),
                );
            }
        }
        if asker.class == Class::Demand && self.is_waited_for(&pending) {
            pending.wait = Some(self.waits.begin());
        }
        let missed = pending.missed;
        memory.wait(pending, &wanted);
        drop(memory);
        self.patience.somebody_waits();
        if used {
            self.policy.used();
        }
        if missed {
            log::debug!(
                "{}: miss at blocks {}",
                self.now(),
                hs_units::BlockRange::covering(range.offset, range.len)
            );
            self.policy.miss();
        }
        dropped.into_iter().for_each(|chunk| self.policy.dropped(chunk));
        for key in wanted {
            match key {
                Key::Hot(chunk) if self.join(chunk) => {}
                Key::Cold(window) if come.contains(&key) => self.decode(window),
                _ => self.load(asker, key),
            }
        }
        if asker.class == Class::Demand {
            coming.into_iter().for_each(|key| self.jobs.hurry(key));
        }
        windows.for_each(|window| self.read_ahead(asker, window));
    }

    /// A read with what of it is in memory; and whether it uses what was prefetched.
    fn begin(
        &self,
        memory: &mut Memory,
        asker: Asker,
        range: ByteRange,
        answer: Answer,
        since: Option<Nanos>,
    ) -> (Pending, bool) {
        let spans = self.cut(range, memory);
        // A read of a tripwire is a use of its chunk, whatever read the other blocks.
        let first = spans.first().filter(|_| asker.class == Class::Demand);
        let marker = first.and_then(|first| memory.hit_marker(range, first));
        marker.into_iter().for_each(|chunk| self.policy.marker_asked(chunk));
        let found: Vec<Option<Found>> = spans.iter().map(|span| memory.ask(span, &self.image)).collect();
        let missing = found.iter().filter(|found| found.is_none()).count();
        let found_marker = marker.is_some() && found.first().is_some_and(Option::is_some);
        let at = since.unwrap_or_else(|| self.now());
        let (missing_cold, late_bytes, missed) = (0, 0, false);
        let pending = Pending {
            spans,
            found,
            missing,
            missing_cold,
            at,
            range,
            late_bytes,
            missed,
            wait: None,
            asker,
            answer,
        };
        let used = asker.class == Class::Demand && (found_marker || self.uses_stream(&pending));
        (pending, used)
    }

    /// Whether the read is a demand read of a hot chunk that has come: neither the warmer's read-through nor
    /// kernel read-ahead.
    fn uses_stream(&self, pending: &Pending) -> bool {
        let here = |found: &Option<Found>| found.as_ref().is_some_and(|found| !found.is_marker);
        let mut spans = pending.spans.iter().zip(&pending.found).filter(|(_, found)| here(found));
        spans.any(|(span, _)| matches!(span.key, Key::Hot(chunk) if !self.policy.is_expected(chunk)))
    }

    /// Whether anything that is missing is demand, and not only the warmer's or the fill's.
    fn is_waited_for(&self, pending: &Pending) -> bool {
        let mut missing = pending.spans.iter().zip(&pending.found).filter(|(_, found)| found.is_none());
        missing.any(|(span, _)| match span.key {
            Key::Hot(chunk) => !self.policy.is_expected(chunk),
            Key::Cold(_) => pending.missed,
        })
    }

    /// Lets the readers of a hot chunk wait for the stream; false when they must fetch it.
    fn join(&self, chunk: u32) -> bool {
        let key = Key::Hot(chunk);
        if !self.policy.join(chunk) || !self.memory.lock().joined(key) {
            return false;
        }
        // The stream may have stalled before the memory knew of this reader, which would then be forgotten:
        // so it is asked again now that it is known.
        let joins = self.policy.join(chunk) || !self.memory.lock().leave(key);
        if joins && !self.policy.is_expected(chunk) {
            self.jobs.hurry_guests();
        }
        joins
    }

    /// Cuts a read into spans of chunks, hot where the hot region has the block.
    fn cut(&self, range: ByteRange, memory: &Memory) -> Vec<Span> {
        let mut spans = Vec::with_capacity(4);
        let mut at = range.offset;
        while at < range.end() {
            let lba = Lba::containing(at);
            let in_block = at - lba.byte_offset();
            let hot = self.image.hot_place(lba).filter(|place| !memory.is_bad(place.chunk));
            let span = if let Some(place) = hot {
                let len = (u64::from(place.run) * BLOCK_BYTES - in_block).min(range.end() - at);
                let from = u64::from(place.block_in_chunk) * BLOCK_BYTES + in_block;
                Span { key: Key::Hot(place.chunk), from: from as u32, len: len as u32 }
            } else {
                let window_bytes = self.image.window_bytes();
                let window = at / window_bytes;
                let mut end = range.end().min((window + 1) * window_bytes);
                if let Some(hot) = self.image.next_hot_after(lba) {
                    let bad = self.image.hot_place(hot).is_some_and(|place| memory.is_bad(place.chunk));
                    // A damaged hot chunk is read from its cold copies, block by block if need be.
                    end = end.min(if bad { (lba.0 + 1) * BLOCK_BYTES } else { hot.byte_offset() });
                }
                Span { key: Key::Cold(window), from: (at % window_bytes) as u32, len: (end - at) as u32 }
            };
            at += u64::from(span.len);
            spans.push(span);
        }
        spans
    }

    fn answer(&self, pending: Pending) {
        let pieces: Vec<&[u8]> = pending
            .spans
            .iter()
            .zip(&pending.found)
            .filter_map(|(span, found)| found.as_ref().map(|found| found.piece(span)))
            .collect();
        (pending.answer)(Ok(&pieces));
        drop(pending.wait);
        let waited = pending.missed || pending.late_bytes > 0;
        let cost = self.now().saturating_sub(pending.at);
        self.counters.requests.fetch_add(1, Relaxed);
        self.counters.bytes.fetch_add(pending.range.len, Relaxed);
        if waited {
            self.counters.waited.fetch_add(1, Relaxed);
            self.counters.wait_ns.fetch_add(cost.0, Relaxed);
            self.counters.late_bytes.fetch_add(pending.late_bytes, Relaxed);
        }
        if let Some(watch) = &self.watch {
            let (at, range, late_bytes) = (pending.at, pending.range, pending.late_bytes);
            watch.demand(&DemandEvent { at, range, cost, waited, late_bytes });
        }
    }

    fn mark_served(&self, memory: &mut Memory, pending: &Pending) {
        for span in &pending.spans {
            if memory.serve(span.key, span.from, span.len)
                && let Key::Hot(chunk) = span.key
            {
                self.policy.released(chunk);
            }
        }
    }

    /// A chunk is in memory: answers the reads that waited for nothing else.
    fn publish(&self, key: Key, bytes: &Bytes, from_stream: bool) {
        self.publish_after(key, bytes, from_stream, |_| {});
    }

    /// The same after `first`, which gets the blocks of the chunk that they wait for.
    fn publish_after(&self, key: Key, bytes: &Bytes, from_stream: bool, first: impl FnOnce(Vec<Range<u32>>)) {
        let mut memory = self.memory.lock();
        let waited_for = if from_stream { memory.waited_for(key) } else { Vec::new() };
        let arrived = memory.put(key, bytes, from_stream);
        // Before a read is served from it, or the policy would see it leave before it came.
        if arrived && let Key::Hot(chunk) = key {
            self.policy.arrived(chunk);
        }
        let (ready, misses_over) = memory.deliver(key, bytes);
        for pending in &ready {
            self.mark_served(&mut memory, pending);
        }
        drop(memory);
        (0..misses_over).for_each(|_| self.policy.miss_answered());
        // What is verified is answered, whatever becomes of the rest.
        let went = catch_unwind(AssertUnwindSafe(|| first(waited_for)));
        for pending in ready {
            self.answer(pending);
        }
        if let Err(panic) = went {
            resume_unwind(panic);
        }
    }

    /// A chunk cannot be had. Readers of a damaged hot chunk get the cold copies of its blocks.
    fn failed(&self, key: Key, error: &ImageError) {
        self.counters.chunk_errors.fetch_add(1, Relaxed);
        let (waiting, is_news) = {
            let mut memory = self.memory.lock();
            if let Key::Hot(chunk) = key {
                memory.set_bad(chunk);
            }
            (memory.fail(key), memory.tell(key))
        };
        // A program that needs a bad place asks for it again and again; one line says it. When the reader
        // ends, none does.
        let level = if is_news && !error.is_closed() { log::Level::Error } else { log::Level::Debug };
        match key {
            Key::Hot(chunk) => {
                log::log!(level, "{error}; the blocks of hot chunk {chunk} are read elsewhere")
            }
            Key::Cold(window) => {
                let bytes = self.image.window_bytes();
                let blocks = hs_units::BlockRange::covering(window * bytes, bytes);
                log::log!(level, "{error}; blocks {blocks} of the disk cannot be read, but for hot ones");
            }
        }
        for pending in waiting {
            if pending.missed && pending.missing_cold > 0 {
                self.policy.miss_answered();
            }
            match key {
                Key::Hot(_) => self.submit(pending.asker, pending.range, pending.answer, Some(pending.at)),
                Key::Cold(_) => {
                    if !error.is_closed() {
                        self.counters.failed_requests.fetch_add(1, Relaxed);
                    }
                    (pending.answer)(Err(error));
                }
            }
        }
    }

    /// A window was asked for: if it continues a sequence, fetches and decompresses ahead of it.
    fn read_ahead(&self, asker: Asker, window: u64) {
        let ahead = self.sequential.lock().observe(window);
        if ahead.fetch.is_empty() && ahead.decode.is_empty() {
            return;
        }
        let mut memory = self.memory.lock();
        let fetch = self.begin_next(&mut memory, &ahead.fetch);
        let decode: Vec<u64> = ahead.decode.filter(|window| memory.begin_decoding(*window)).collect();
        drop(memory);
        decode.into_iter().for_each(|window| self.decode(window));
        if let Some(first) = fetch {
            let asker = Asker { class: asker.class.max(Class::ReadAhead), ..asker };
            self.hand_in(asker, Job::Ahead(first..ahead.fetch.end));
        }
    }

    /// Has a chunk fetched by a thread.
    fn load(&self, asker: Asker, key: Key) {
        self.hand_in(asker, Job::Load(key));
    }

    /// Hands in a job whose chunk is marked as loading. A read may have begun to wait for it since, and have
    /// found no job to promote.
    fn hand_in(&self, asker: Asker, job: Job) {
        let key = job.key();
        self.jobs.push(asker, self.whereabouts(key), job);
        if asker.class > Class::Demand && self.memory.lock().somebody_waits_for(key) {
            self.jobs.hurry(key);
        }
    }

    /// Has a window that has come decompressed by a thread.
    fn decode(&self, window: u64) {
        self.jobs.push_ready(Job::Decode(window));
    }

    /// About where a chunk lies in the file. Cold windows lie in order, so it takes no index to know that.
    fn whereabouts(&self, key: Key) -> ByteRange {
        match key {
            // Hot chunks are asked for one by one: one byte is missing, so that none touches the next and
            // they do not merge.
            Key::Hot(chunk) => {
                let range = self.image.hot_chunk(chunk).1;
                ByteRange::new(range.offset, range.len.saturating_sub(1))
            }
            Key::Cold(window) => {
                let superblock = self.image.superblock();
                let (cold, windows) = (superblock.cold.range, superblock.windows().max(1));
                let len = cold.len / windows;
                ByteRange::new(cold.offset + len * window, len)
            }
        }
    }

    fn work(&self) {
        let mut tools = Decompressor::new();
        while let Some(turn) = self.jobs.take() {
            // A panic while fetching or decoding fails the reads of this chunk, and no others.
            let worked = catch_unwind(AssertUnwindSafe(|| self.work_in(&turn, &mut tools)));
            if worked.is_err() {
                tools = Decompressor::new();
                turn.work.iter().for_each(|job| self.panicked(job.key()));
            }
        }
    }

    /// The thread that was to bring a chunk panicked: the reads that wait for it fail.
    fn panicked(&self, key: Key) {
        let awaited = {
            let mut memory = self.memory.lock();
            memory.is_loading(key) && !memory.forget_unasked(key)
        };
        if awaited {
            self.failed(key, &ImageError::Panicked { path: self.image.name().to_owned() });
        }
    }

    fn work_in(&self, turn: &Turn<'_>, tools: &mut Decompressor) {
        let mut windows = Vec::with_capacity(turn.work.len());
        let mut further = Vec::new();
        for job in &turn.work {
            match job {
                Job::Load(Key::Hot(chunk)) => self.load_hot(*chunk, tools),
                Job::Load(Key::Cold(window)) => windows.push(*window),
                Job::Ahead(ahead) if turn.work.len() == 1 => self.load_ahead(ahead.clone(), turn, tools),
                // It was merged, so a read waits for the first of its windows by now: that comes with the
                // others, in one request.
                Job::Ahead(ahead) => {
                    windows.push(ahead.start);
                    further.push(ahead.start + 1..ahead.end);
                }
                Job::Decode(window) => self.decode_come(*window, tools),
            }
        }
        self.load_windows(&windows, turn, tools);
        further.iter().for_each(|windows| self.go_on_ahead(windows));
    }

    /// Brings a hot chunk with a request of its own.
    fn load_hot(&self, chunk: u32, tools: &mut Decompressor) {
        let key = Key::Hot(chunk);
        let (known, stored) = {
            let memory = self.memory.lock();
            (memory.peek(key), memory.stored_hot(chunk))
        };
        let load = || {
            // It was verified when it came; it is verified once more, since it may have lain long in memory.
            if let Some(Ok(raw)) = stored.map(|stored| self.image.decode_hot(chunk, &stored, tools)) {
                return Ok(Arc::new(raw));
            }
            let asked = Instant::now();
            let loaded = self.image.load_hot(chunk, tools).map(Arc::new);
            // What a failure costs says nothing of the medium elsewhere.
            if loaded.is_ok() {
                self.policy.fetched(asked, Instant::now(), self.image.hot_chunk(chunk).0.range.len);
            }
            loaded
        };
        match known.map_or_else(load, Ok) {
            Ok(bytes) => {
                self.policy.resident(chunk);
                self.publish(key, &bytes, false);
            }
            Err(error) => self.failed(key, &error),
        }
    }
}
