//! Requests to the medium, each on the thread of one worker.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hs_engine::disk::{ChunkKey, FetchId, Worker};
use hs_format::{Decompressor, WindowRef};
use hs_image::{ChunkPlace, Head, HeadMessage, ImageError, Stored, StreamEvent};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos};

use crate::bytes::StoredChunk;
use crate::disk::Shared;
use crate::figures::{FetchEvent, FetchPurpose};
use crate::jobs::{DecodeJob, FetchJob, Fetched, Job, Wanted};
use crate::outcomes::Outcomes;

/// What of a fetch has come and was not reported yet.
#[derive(Default)]
struct Progress {
    /// How many chunks have come.
    came: usize,
    /// The last one is reported with the end of the fetch.
    last: Option<(ChunkKey, u64, Option<StoredChunk>)>,
}

impl Shared {
    /// Reads what a fetch is for.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        job: FetchJob,
        tools: &mut Decompressor,
    ) -> (Outcomes, Option<Job>) {
        let began = self.now();
        let mut progress = Progress::default();
        let bring = || match &job.what {
            Fetched::Page(number, page) => self.image.fetch_page(page).map(|stored| {
                let bytes = stored.len();
                let stored = StoredChunk::Page(*page, stored);
                progress.last = Some((ChunkKey::Page(*number), bytes, Some(stored)));
                progress.came = 1;
            }),
            Fetched::Chunks(chunks) => self.fetch_chunks(&job, chunks, &mut progress, tools),
        };
        let brought = catch_unwind(AssertUnwindSafe(bring));
        let purpose = match (job.is_stream, job.is_background) {
            (true, _) => FetchPurpose::Prefetch,
            (false, true) => FetchPurpose::Background,
            (false, false) => FetchPurpose::Demand,
        };
        self.tell_fetched(began, purpose, job.came(progress.came));
        let mut state = self.lock();
        let now = self.now();
        if let Some((key, bytes, stored)) = progress.last.take() {
            if job.is_stream {
                state.stream_log.note(now, bytes);
            }
            state.take_stored(now, job.id, key, bytes, stored);
        }
        let missing = job.missing(progress.came);
        match brought {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.note_failures(&mut state, &missing, &error, job.cancelled.load(Relaxed)),
            Err(_) => {
                let error = ImageError::Panicked { path: self.image.name().to_owned() };
                self.note_failures(&mut state, &missing, &error, false);
                state.engine.handle_worker_lost(now, Worker::Fetcher(job.id));
            }
        }
        state.end_fetch(now, job.id);
        self.go_on(state, None)
    }

    /// Tells who watches what a request has brought.
    fn tell_fetched(&self, began: Nanos, purpose: FetchPurpose, keys: impl Iterator<Item = ChunkKey>) {
        let Some(watch) = &self.watch else { return };
        let window_blocks = self.image.window_bytes() / BLOCK_BYTES;
        let disk_blocks = self.image.disk_bytes().div_ceil(BLOCK_BYTES);
        let mut blocks = Vec::new();
        for key in keys {
            match key {
                ChunkKey::Hot(chunk) => blocks.extend(self.image.hot_extents(chunk)),
                ChunkKey::Cold(window) => {
                    let first = window * window_blocks;
                    let count = window_blocks.min(disk_blocks.saturating_sub(first));
                    blocks.push(BlockRange::new(Lba(first), count));
                }
                ChunkKey::Page(_) => {}
            }
        }
        if !blocks.is_empty() {
            let cost = self.now().saturating_sub(began);
            let at = began.saturating_sub(self.opened);
            watch.fetched(FetchEvent { at, cost, purpose, blocks });
        }
    }

    fn fetch_chunks(
        self: &Arc<Self>,
        job: &FetchJob,
        chunks: &[Wanted],
        progress: &mut Progress,
        tools: &mut Decompressor,
    ) -> Result<(), ImageError> {
        let places = self.places(chunks)?;
        let mut is_first = true;
        for run in runs(&places) {
            self.image.stream_chunks(&run.places, &mut |event| {
                match event {
                    StreamEvent::FirstBytes(bytes) => {
                        if std::mem::take(&mut is_first) && job.is_stream {
                            self.first_bytes(job.id, bytes);
                        }
                    }
                    StreamEvent::Chunk(number, stored) => {
                        let stored: Stored = stored.into_owned().convert();
                        for number in run.chunks(number as usize) {
                            let (chunk, from_stream) = (places[number].chunk, job.is_stream);
                            let stored = StoredChunk::Blocks { chunk, bytes: stored.clone(), from_stream };
                            let own = self.chunk_came(job, chunks, number, stored, progress);
                            if let Some(decode) = own {
                                self.decode_at_once(decode, tools);
                            }
                        }
                    }
                }
                if job.cancelled.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if job.cancelled.load(Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn chunk_came(
        self: &Arc<Self>,
        job: &FetchJob,
        chunks: &[Wanted],
        number: usize,
        stored: StoredChunk,
        progress: &mut Progress,
    ) -> Option<DecodeJob> {
        let wanted = &chunks[number];
        let bytes = stored.len();
        let stored = wanted.is_brought.then_some(stored);
        progress.came = number + 1;
        if progress.came == chunks.len() {
            progress.last = Some((wanted.key, bytes, stored));
            None
        } else {
            self.came(job.id, wanted.key, bytes, stored, job.is_stream)
        }
    }

    /// Where the chunks of a fetch lie. The page of the index that says so may have left memory since it was
    /// decided; then it is read once more.
    fn places(&self, chunks: &[Wanted]) -> Result<Vec<ChunkPlace>, ImageError> {
        let place = |wanted: &Wanted| match (wanted.place, wanted.key) {
            (Some(place), _) => Ok(place),
            (None, ChunkKey::Cold(window)) => match self.image.window(window)? {
                WindowRef::Chunk(chunk) => Ok(ChunkPlace { chunk, at: self.image.cold_range(&chunk) }),
                WindowRef::Zero => Err(ImageError::Closed),
            },
            (None, _) => Err(ImageError::Closed),
        };
        chunks.iter().map(place).collect()
    }

    fn first_bytes(self: &Arc<Self>, id: FetchId, bytes: u64) {
        let now = self.now();
        let mut outcomes = Outcomes::default();
        {
            let mut state = self.lock();
            state.stream_log.begin(now);
            state.engine.handle_first_byte(now, id, bytes);
            state.pump(now, &mut outcomes);
            self.wake_others(&mut state);
        }
        outcomes.finish(self, None);
    }

    /// A chunk has come, and more will. A cold one that a read waits for is this thread's to decompress: its
    /// bytes lie in the processor's cache, and no other thread has to be woken.
    fn came(
        self: &Arc<Self>,
        id: FetchId,
        key: ChunkKey,
        bytes: u64,
        stored: Option<StoredChunk>,
        is_stream: bool,
    ) -> Option<DecodeJob> {
        let now = self.now();
        let mut outcomes = Outcomes::default();
        let own;
        {
            let mut state = self.lock();
            if is_stream {
                state.stream_log.note(now, bytes);
            }
            state.take_stored(now, id, key, bytes, stored);
            state.pump(now, &mut outcomes);
            own = matches!(key, ChunkKey::Cold(_)).then(|| state.jobs.take_decode(key)).flatten();
            self.wake_others(&mut state);
        }
        outcomes.finish(self, None);
        own
    }

    /// Some chunks of a fetch did not come. The engine asks again for each that a read waits for; the stream
    /// passes over the first one.
    fn note_failures(
        &self,
        state: &mut crate::state::DiskState,
        missing: &[ChunkKey],
        error: &ImageError,
        is_cancelled: bool,
    ) {
        if is_cancelled || state.is_shut_down {
            return;
        }
        for (number, key) in missing.iter().enumerate() {
            if number == 0 {
                self.note_failure(state, *key, error);
            } else {
                state.errors.note(*key, error);
            }
        }
    }

    /// Takes what the request that opened the image still brings.
    pub(crate) fn take_head(self: &Arc<Self>, id: FetchId, head: Head) -> (Outcomes, Option<Job>) {
        let mut next = 0;
        let mut fault = None;
        for message in &head.messages {
            match message {
                HeadMessage::Chunk(number, bytes) => {
                    next = number + 1;
                    let len = bytes.len() as u64;
                    let chunk = self.image.hot_chunk(number).0;
                    let stored = StoredChunk::Blocks { chunk, bytes, from_stream: true };
                    let own = self.came(id, ChunkKey::Hot(number), len, Some(stored), true);
                    debug_assert!(own.is_none(), "hot chunks are other workers'");
                }
                HeadMessage::Finished(Err(error)) => {
                    fault = Some(error);
                    break;
                }
                HeadMessage::Finished(Ok(_)) => break,
            }
            if self.lock().is_shut_down {
                break;
            }
        }
        self.tell_fetched(self.opened, FetchPurpose::Prefetch, (0..next).map(ChunkKey::Hot));
        let mut state = self.lock();
        if let Some(error) = fault {
            let missing: Vec<ChunkKey> = (next..head.chunks).map(ChunkKey::Hot).collect();
            self.note_failures(&mut state, &missing, &error, false);
        }
        state.end_fetch(self.now(), id);
        self.go_on(state, None)
    }
}

/// Chunks that lie one behind another.
struct Run {
    /// Each once.
    places: Vec<ChunkPlace>,
    /// Which of a fetch's chunks is the first that has each of the places.
    first: Vec<usize>,
    /// Where the run ends among the fetch's chunks.
    end: usize,
}

impl Run {
    /// The chunks of the fetch that have the place with this number.
    fn chunks(&self, number: usize) -> std::ops::Range<usize> {
        self.first[number]..self.first.get(number + 1).copied().unwrap_or(self.end)
    }
}

/// What a fetch reads with one request each: all of it, unless the image's author has made chunks overlap.
/// Windows that are equal share a chunk, which is read once.
fn runs(places: &[ChunkPlace]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::with_capacity(1);
    for (number, place) in places.iter().enumerate() {
        if let Some(run) = runs.last_mut()
            && let Some(last) = run.places.last()
        {
            let is_shared = last.at == place.at && last.chunk.digest == place.chunk.digest;
            if is_shared || last.at.end() == place.at.offset {
                run.end = number + 1;
                if !is_shared {
                    run.places.push(*place);
                    run.first.push(number);
                }
                continue;
            }
        }
        runs.push(Run { places: vec![*place], first: vec![number], end: number + 1 });
    }
    runs
}

impl FetchJob {
    /// The first `came` chunks, without those that only lay in between.
    fn came(&self, came: usize) -> impl Iterator<Item = ChunkKey> + '_ {
        let chunks = match &self.what {
            Fetched::Page(..) => &[][..],
            Fetched::Chunks(chunks) => &chunks[..came],
        };
        chunks.iter().filter(|chunk| chunk.is_brought).map(|chunk| chunk.key)
    }

    /// The chunks that were to be brought behind the first `came`.
    fn missing(&self, came: usize) -> Vec<ChunkKey> {
        match &self.what {
            Fetched::Page(number, _) if came == 0 => vec![ChunkKey::Page(*number)],
            Fetched::Page(..) => Vec::new(),
            Fetched::Chunks(chunks) => {
                chunks[came..].iter().filter(|chunk| chunk.is_brought).map(|chunk| chunk.key).collect()
            }
        }
    }
}
