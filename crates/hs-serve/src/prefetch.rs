//! Runs the prefetch that `hs-engine` decides: reads the hot region ahead of its readers.
//!
//! ```text
//! stream threads ──stored chunks──► decoding threads ──► Reader::supply_hot ──► reads that wait
//!   ask the engine what to read        one a core       │
//!                                                       └──► before that, Deliver: blocks without a
//!                                                            waiting read go into the kernel
//! ```
//!
//! While one request is under way the chunks of the last are verified and decompressed.

mod held_memory;
mod hot_policy;
mod push;
mod running;
mod warmer_place;

use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use hs_engine::{ChunkSize, EndReason, Next, Prefetch, PrefetchConfig, RequestId};
use hs_image::{Decompressor, Head, HeadMessage, Image, ImageError, Reader, StreamEvent, StreamTurn};
use hs_units::Nanos;
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::held_memory::HeldMemory;
pub(crate) use self::push::parts;
use self::push::{Decoded, Pushing};
pub use self::push::{Deliver, Sight};
pub use self::running::Running;
use self::running::spawn;
pub(crate) use self::warmer_place::WarmerPlace;
use self::warmer_place::WarmerSeen;
use crate::streamed::StreamLog;
use crate::{ServeError, Streamed};

/// Threads that read: as many as the engine has requests under way.
const STREAMS: usize = Prefetch::MOST_UNDER_WAY;
/// Chunks that may wait for a decoding thread, for each of these.
const QUEUED_CHUNKS: usize = 16;

/// Hot chunks in a row that cannot be read before the prefetch gives up. The stream goes on behind each bad
/// place, which takes hours where the medium is gone. Twice as many places as `hs_store::Retry` retries in
/// full.
const UNREADABLE_IN_A_ROW: u32 = 16;

/// The prefetch of one image: the engine behind a lock, and the threads that wait for its decisions.
pub struct Driver {
    engine: Mutex<Prefetch>,
    /// For the stream that asks the engine what to read next.
    changed: Condvar,
    /// For other threads that watch the engine.
    watched: Condvar,
    /// Held by the stream that asks the engine what to read next; the other streams wait for the lock. Every
    /// chunk that comes wakes that one stream instead of all of them.
    asking: Mutex<()>,
    started: Instant,
    /// Chunks whose blocks are read by the warmer, not by a program: see [`Driver::expect`].
    expected: Vec<AtomicBool>,
    /// Whether a message has said why the prefetch ended.
    end_is_told: AtomicBool,
    /// Whether a report of use would change the engine's state.
    asks_for_use: AtomicBool,
    arrived_at: Mutex<Vec<Option<Nanos>>>,
    unreadable_in_a_row: AtomicU32,
    stream_log: Mutex<StreamLog>,
    memory: HeldMemory,
    warmer: WarmerSeen,
}

/// One stored chunk on its way from the medium to a decoding thread.
struct Stored {
    chunk: u32,
    bytes: hs_image::Stored,
}

impl Driver {
    /// A prefetch of the hot chunks of `image`, or of none when `enabled` is false. `began` is when the image
    /// was requested: the opening request is the first measurement of the medium.
    #[must_use]
    pub fn new(image: &Image, config: PrefetchConfig, enabled: bool, began: Instant) -> Arc<Self> {
        let chunks = if enabled { image.hot_chunk_count() } else { 0 };
        let size = |chunk| {
            let (chunk, _) = image.hot_chunk(chunk);
            ChunkSize { stored_bytes: chunk.range.len as u32, raw_bytes: chunk.raw_bytes }
        };
        let sizes: Vec<ChunkSize> = (0..chunks).map(size).collect();
        let needed = (0..chunks).map(|chunk| image.hot_needed(chunk)).collect();
        let mut engine = Prefetch::new(config, sizes);
        // The driver's clock begins when the image is requested, which is when the start begins.
        engine.set_deadlines(Nanos::ZERO, needed);
        Arc::new(Self {
            memory: HeldMemory::new(config.budget_bytes),
            expected: (0..chunks).map(|_| AtomicBool::new(false)).collect(),
            end_is_told: AtomicBool::new(false),
            asks_for_use: AtomicBool::new(config.sees_use),
            arrived_at: Mutex::new(vec![None; chunks as usize]),
            stream_log: Mutex::default(),
            engine: Mutex::new(engine),
            changed: Condvar::new(),
            watched: Condvar::new(),
            asking: Mutex::new(()),
            unreadable_in_a_row: AtomicU32::new(0),
            warmer: WarmerSeen::default(),
            started: began,
        })
    }

    /// Starts reading. `head` is the rest of the request that opened the image.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        self: &Arc<Self>,
        reader: &Arc<Reader>,
        head: Option<Head>,
        deliver: Option<Arc<dyn Deliver>>,
    ) -> Result<Running, ServeError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (stored_tx, stored_rx) = bounded(cores * QUEUED_CHUNKS);
        let mut running = Running {
            driver: Arc::clone(self),
            reader: Arc::clone(reader),
            threads: Vec::new(),
            decoders: Vec::new(),
            pushers: Vec::new(),
            pushing: None,
        };
        if deliver.as_ref().is_some_and(|deliver| deliver.sight() == Sight::Hidden) {
            self.hide_use();
        }
        let pushing = match deliver {
            Some(deliver) => Some(running.start_pushers(reader, deliver, cores)?),
            None => None,
        };
        // At least two: while one of them pushes, which may wait for a chunk that is not decoded yet, the
        // other decodes.
        for number in 0..cores.max(2) {
            let (driver, reader, stored) = (Arc::clone(self), Arc::clone(reader), stored_rx.clone());
            let pushing = pushing.clone();
            let decode = move || driver.decode(&reader, &stored, pushing.as_deref());
            running.decoders.push(spawn(format!("hs-decode-{number}"), decode)?);
        }
        if self.is_enabled() {
            reader.image().expect_hot_stream(head.as_ref().map_or(0, |head| head.chunks));
        }
        if let Some(head) = head.filter(|head| head.chunks > 0 && self.is_enabled()) {
            let mut engine = self.engine.lock();
            let id = engine.handle_head(self.at(head.asked), head.chunks, head.bytes_before);
            engine.handle_first_byte(self.at(head.first_byte), id, head.first_bytes);
            self.stream_log.lock().begin(self.at(head.first_byte));
            drop(engine);
            let (driver, reader, stored) = (Arc::clone(self), Arc::clone(reader), stored_tx.clone());
            let take = move || driver.take_head(id, &head, &reader, &stored);
            running.threads.push(spawn("hs-head".to_owned(), take)?);
        }
        for number in 0..STREAMS {
            let (driver, reader, stored) = (Arc::clone(self), Arc::clone(reader), stored_tx.clone());
            let stream = move || driver.stream(&reader, &stored);
            running.threads.push(spawn(format!("hs-stream-{number}"), stream)?);
        }
        Ok(running)
    }

    fn is_enabled(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Announces reads of this chunk's blocks that can wait, such as those of the warmer of a page cache:
    /// these reads join the stream however far ahead it is.
    pub fn expect(&self, chunk: u32) {
        if let Some(expected) = self.expected.get(chunk as usize) {
            expected.store(true, Relaxed);
        }
    }

    /// Whether a report of use would change the engine's state: cheap, unlike
    /// [`used`](hs_image::HotPolicy::used).
    #[must_use]
    pub(crate) fn asks_for_use(&self) -> bool {
        self.asks_for_use.load(Relaxed)
    }

    /// From now on unused chunks and misses do not lower the confidence in the profile.
    pub(crate) fn hide_use(&self) {
        self.engine.lock().handle_use_hidden();
        self.asks_for_use.store(false, Relaxed);
        self.wake();
    }

    /// Use is seen by markers alone: until there is one, unused chunks and misses do not lower the
    /// confidence.
    pub(crate) fn sees_by_markers(&self) {
        self.engine.lock().handle_use_by_markers();
    }

    /// Whether a block of a hot chunk should be left out when the chunk is delivered. Readers then find the
    /// chunk without the server, and only a request for the missing block shows use. See [`Driver::mark`].
    #[must_use]
    pub fn wants_marker(&self, chunk: u32) -> bool {
        self.engine.lock().handle_delivery(self.now(), chunk)
    }

    /// Notes that a block of this chunk is left out, as [`Driver::wants_marker`] wants; false when the chunk
    /// has left again.
    #[must_use]
    pub fn mark(&self, reader: &Reader, chunk: u32, block_in_chunk: u32) -> bool {
        let has_come = self.engine.lock().has_arrived(chunk);
        let marked = reader.mark(chunk, block_in_chunk, has_come);
        if marked {
            let mut engine = self.engine.lock();
            engine.handle_marker(chunk);
            self.asks_for_use.store(engine.has_doubts(), Relaxed);
        }
        marked
    }

    /// Whether the stream makes no requests because its chunks are not used and other reads wait for the
    /// medium.
    #[must_use]
    pub fn stands_back(&self) -> bool {
        self.engine.lock().stands_back()
    }

    /// Notes where the warmer is now.
    pub fn set_warmer(&self, place: WarmerPlace) {
        self.warmer.set(place);
    }

    /// Waits until `condition` holds of the engine or the prefetch has ended.
    pub fn wait_until(&self, mut condition: impl FnMut(&Prefetch) -> bool) {
        let mut engine = self.engine.lock();
        while engine.ended().is_none() && !condition(&engine) {
            self.watched.wait(&mut engine);
        }
    }

    /// Makes no more requests.
    pub(crate) fn stop(&self) {
        self.engine.lock().stop();
        self.wake();
    }

    /// Wakes all waiting threads, to look again.
    pub fn wake(&self) {
        self.changed.notify_all();
        self.watched.notify_all();
    }

    /// Wakes waiting threads after a chunk came or went. The stream is woken only when the engine is not
    /// full, or has ended.
    fn stirred(&self, engine: &Prefetch) {
        if !engine.is_full() || engine.ended().is_some() {
            self.changed.notify_all();
        }
        self.watched.notify_all();
    }

    /// Whether `condition` holds of the engine or the prefetch has ended.
    #[must_use]
    pub fn is(&self, condition: impl Fn(&Prefetch) -> bool) -> bool {
        let engine = self.engine.lock();
        engine.ended().is_some() || condition(&engine)
    }

    /// Hot chunks that have come, and how many there are to come in all.
    #[must_use]
    pub fn progress(&self) -> (u32, u32) {
        let arrived_at = self.arrived_at.lock();
        (arrived_at.iter().flatten().count() as u32, arrived_at.len() as u32)
    }

    /// Why the prefetch ended, once it has.
    #[must_use]
    pub fn ended(&self) -> Option<EndReason> {
        self.engine.lock().ended()
    }

    /// When each chunk was verified and decompressed, on the driver's clock; `None` for those that
    /// did not come by the stream.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Option<Nanos>> {
        self.arrived_at.lock().clone()
    }

    /// The stream's least lead over need, in seconds: negative when a chunk came too late; `None` when the
    /// image has no deadlines.
    #[must_use]
    pub fn least_slack_s(&self) -> Option<f64> {
        self.engine.lock().least_slack_s()
    }

    /// The chunks that came by the stream after the profile says that they were needed, ascending.
    #[must_use]
    pub fn overdue_chunks(&self) -> Vec<u32> {
        self.engine.lock().overdue().map(|(chunk, _)| chunk).collect()
    }

    /// Uncompressed bytes of the overdue chunks.
    #[must_use]
    pub fn overdue_bytes(&self) -> u64 {
        self.engine.lock().overdue().map(|(_, bytes)| u64::from(bytes)).sum()
    }

    /// How fast the hot chunks came from the medium until now.
    #[must_use]
    pub fn streamed(&self) -> Streamed {
        self.stream_log.lock().streamed()
    }

    /// The start of the driver's clock.
    #[must_use]
    pub const fn started(&self) -> Instant {
        self.started
    }

    fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }

    fn at(&self, instant: Instant) -> Nanos {
        instant.saturating_duration_since(self.started).into()
    }

    /// One stream: asks the engine what to read next until there is nothing more.
    fn stream(&self, reader: &Reader, stored: &Sender<Stored>) {
        while let Some((id, run)) = self.next_request(reader) {
            let Some(turn) = reader.stream_turn(run.clone(), || self.stopped()) else {
                self.finished(id, None);
                continue;
            };
            self.engine.lock().handle_begun(self.now(), id);
            log::debug!("{}: prefetching hot chunks {run:?}", self.now());
            let bring = || self.bring(id, run, reader, Some(&turn), stored);
            // A panic ends the prefetch, and readers that have joined it fetch the chunk themselves.
            let bytes = catch_unwind(AssertUnwindSafe(bring)).unwrap_or(None);
            drop(turn);
            self.finished(id, bytes);
        }
        if self.stopped() {
            reader.stream_ended();
        }
    }

    /// Reads a run of chunks, and goes on behind each one that cannot be read. Returns the bytes that came,
    /// or nothing when so much is unreadable that the prefetch is to end.
    fn bring(
        &self,
        id: RequestId,
        mut run: Range<u32>,
        reader: &Reader,
        turn: Option<&StreamTurn<'_>>,
        stored: &Sender<Stored>,
    ) -> Option<u64> {
        let mut bytes_before = 0;
        while !run.is_empty() {
            let mut next = run.start;
            let mut bytes = 0;
            let outcome = reader.image().stream_hot(run.clone(), &mut |event| {
                match event {
                    StreamEvent::FirstBytes(first) => {
                        let now = self.now();
                        self.stream_log.lock().begin(now);
                        self.engine.lock().handle_first_byte(now, id, first);
                    }
                    StreamEvent::Chunk(chunk, piece) => {
                        next = chunk + 1;
                        bytes += piece.len() as u64;
                        self.progressed(id, chunk, &piece);
                        let piece = Stored { chunk, bytes: piece.into_owned().into() };
                        if !hand_over(stored, piece, turn) {
                            return ControlFlow::Break(());
                        }
                    }
                }
                if self.stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            match outcome {
                Ok(bytes) => return Some(bytes_before + bytes),
                // No read waits for it any more.
                Err(_) if self.stopped() => return Some(bytes_before),
                Err(error) => run = self.skip(next..run.end, reader, &error)?,
            }
            bytes_before += bytes;
        }
        Some(bytes_before)
    }

    /// The first chunk of `rest` cannot be read: its readers get cold copies. Returns the chunks behind it,
    /// or `None` when too many in a row cannot be read.
    fn skip(&self, rest: Range<u32>, reader: &Reader, error: &ImageError) -> Option<Range<u32>> {
        if rest.is_empty() {
            return Some(rest);
        }
        reader.fail_hot(rest.start, error);
        self.passed(rest.start);
        if self.unreadable_in_a_row.fetch_add(1, Relaxed) + 1 >= UNREADABLE_IN_A_ROW {
            log::error!("prefetch ends: {UNREADABLE_IN_A_ROW} hot chunks in a row cannot be read");
            return None;
        }
        Some(rest.start + 1..rest.end)
    }

    /// The stream has skipped a chunk.
    fn passed(&self, chunk: u32) {
        let mut engine = self.engine.lock();
        engine.handle_arrived(chunk);
        engine.handle_released(chunk);
        self.stirred(&engine);
    }

    fn next_request(&self, reader: &Reader) -> Option<(RequestId, Range<u32>)> {
        let _asking = self.asking.lock();
        let mut engine = self.engine.lock();
        let mut told = false;
        loop {
            self.memory.observe(&mut engine);
            let then = match engine.poll(self.now()) {
                Next::Request(id, run) => return Some((id, run)),
                Next::Wait => None,
                Next::WaitUntil(then) => Some(then),
                Next::Done(reason) => {
                    // Each stream thread comes here; the message is logged once.
                    if !self.end_is_told.swap(true, Relaxed) {
                        log::info!("{}: prefetch ended: {}", self.now(), reason.as_str());
                    }
                    self.memory.give_back_when_over(&engine);
                    self.wake();
                    return None;
                }
            };
            if engine.stands_still() && !told {
                // A read that joined the stream must not wait for memory that other chunks hold, or for a
                // pause that other reads do not leave. The engine may change meanwhile, so it is polled
                // again.
                MutexGuard::unlocked(&mut engine, || reader.stream_pauses());
                told = true;
                continue;
            }
            match then {
                None => self.changed.wait(&mut engine),
                Some(then) => {
                    let pause = then.saturating_sub(self.now());
                    let _ = self.changed.wait_for(&mut engine, pause.into());
                }
            }
            told = false;
        }
    }

    fn finished(&self, id: RequestId, bytes: Option<u64>) {
        self.engine.lock().handle_finished(self.now(), id, bytes);
        self.wake();
    }

    fn progressed(&self, id: RequestId, chunk: u32, stored: &[u8]) {
        let now = self.now();
        self.unreadable_in_a_row.store(0, Relaxed);
        self.stream_log.lock().note(now, stored.len() as u64);
        let mut engine = self.engine.lock();
        engine.handle_progress(now, id, chunk);
        self.stirred(&engine);
    }

    fn stopped(&self) -> bool {
        self.engine.lock().ended().is_some_and(|reason| !reason.is_complete())
    }

    fn take_head(&self, id: RequestId, head: &Head, reader: &Reader, stored: &Sender<Stored>) {
        let mut next = 0;
        for message in &head.messages {
            match message {
                HeadMessage::Chunk(chunk, bytes) => {
                    next = chunk + 1;
                    self.progressed(id, chunk, &bytes);
                    if stored.send(Stored { chunk, bytes }).is_err() || self.stopped() {
                        break;
                    }
                }
                HeadMessage::Finished(Ok(bytes)) => return self.finished(id, Some(bytes)),
                HeadMessage::Finished(Err(error)) => {
                    let bring = || {
                        let rest = self.skip(next..head.chunks, reader, &error)?;
                        self.bring(id, rest, reader, None, stored)
                    };
                    let bytes = catch_unwind(AssertUnwindSafe(bring)).unwrap_or(None);
                    return self.finished(id, bytes);
                }
            }
        }
        // The thread that was to send the rest may have panicked.
        let is_whole = next == head.chunks || self.stopped();
        self.finished(id, is_whole.then_some(0));
    }

    fn decode(&self, reader: &Reader, stored: &Receiver<Stored>, pushing: Option<&Pushing>) {
        let mut tools = Decompressor::new();
        for Stored { chunk, bytes } in stored {
            let decode = || self.decode_one(reader, Stored { chunk, bytes }, pushing, &mut tools);
            if catch_unwind(AssertUnwindSafe(decode)).is_err() {
                // Its readers get cold copies, and the stream is past it.
                tools = Decompressor::new();
                let path = reader.image().name().to_owned();
                reader.fail_hot(chunk, &ImageError::Panicked { path });
                self.passed(chunk);
            }
        }
    }

    fn decode_one(
        &self,
        reader: &Reader,
        Stored { chunk, bytes }: Stored,
        pushing: Option<&Pushing>,
        tools: &mut Decompressor,
    ) {
        let mut later = None;
        let push = |raw: &Arc<Vec<u8>>, asked_for| {
            let decoded = Decoded { chunk, raw: Arc::clone(raw), asked_for };
            later = pushing.and_then(|pushing| pushing.push_at_once(self, reader, decoded));
        };
        match reader.supply_hot_after(chunk, bytes, tools, || self.warmer.wait(chunk), push) {
            Ok(Some(bytes)) => {
                if let Some((pushing, decoded)) = pushing.zip(later) {
                    pushing.push_later(decoded);
                }
                // It is pushed, and there is no other reference: the next chunk reuses the memory.
                if let Some(raw) = Arc::into_inner(bytes) {
                    tools.reuse(raw);
                }
            }
            // A demand read had it already, or it is damaged and its readers get cold copies:
            // either way the stream is past it.
            Ok(None) | Err(_) => self.passed(chunk),
        }
    }
}

/// Gives a chunk to the decoding threads; false when there are none any more. When they cannot keep up, the
/// stream does not wait for the medium, and gives up its permit `turn`.
fn hand_over(stored: &Sender<Stored>, piece: Stored, turn: Option<&StreamTurn<'_>>) -> bool {
    match stored.try_send(piece) {
        Ok(()) => true,
        Err(TrySendError::Disconnected(_)) => false,
        Err(TrySendError::Full(piece)) => {
            if let Some(turn) = turn {
                turn.end();
            }
            stored.send(piece).is_ok()
        }
    }
}
