//! Requests to the medium. Each is carried out by one worker, unless the store lets it be
//! [begun](hs_store::Store::begin): then no thread waits for it, and the store's thread reports what comes.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hs_engine::disk::{ChunkKey, FetchId, Worker};
use hs_format::{Decompressor, WindowRef};
use hs_image::{
    ChunkPlace, ChunkReceiver, Head, HeadMessage, ImageError, PageReceiver, Stored, StoredPage, StreamEvent,
};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos};

use crate::bytes::StoredChunk;
use crate::disk::Shared;
use crate::figures::{FetchEvent, FetchPurpose};
use crate::jobs::{DecodeJob, FetchJob, Fetched, Job, Progress, Wanted};
use crate::outcomes::Outcomes;
use crate::state::DiskState;

impl Shared {
    /// Reads what a fetch is for, or what of it is in the cache on disk where requests can be begun.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        mut job: FetchJob,
        tools: &mut Decompressor,
    ) -> (Outcomes, Option<Job>) {
        let mut progress = std::mem::take(&mut job.progress);
        let bring = || match &job.what {
            Fetched::Page(number, page) => self.image.fetch_page(page).map(|stored| {
                let bytes = stored.len();
                let stored = StoredChunk::Page(*page, stored);
                progress.last = Some((ChunkKey::Page(*number), bytes, Some(stored)));
                progress.came = 1;
            }),
            Fetched::Chunks(chunks) => self.fetch_chunks(&job, chunks, &mut progress, tools),
        };
        let brought = catch_unwind(AssertUnwindSafe(bring)).ok();
        let lacks_some = progress.came < job.what.count() && !job.is_cancelled();
        if !lacks_some {
            self.tell_job(&job, &progress);
        }
        let mut state = self.lock();
        state.jobs.worker_fetches -= 1;
        if lacks_some && !state.is_shut_down && matches!(brought, Some(Ok(()))) {
            job.progress = progress;
            let (mut outcomes, next) = self.go_on(state, None);
            outcomes.begun.push(job);
            return (outcomes, next);
        }
        self.end(&mut state, &job, &mut progress, brought);
        self.go_on(state, None)
    }

    /// Reports the last chunk and the end of a fetch; it was lost when nothing was brought.
    fn end(
        &self,
        state: &mut DiskState,
        job: &FetchJob,
        progress: &mut Progress,
        brought: Option<Result<(), ImageError>>,
    ) {
        let now = self.now();
        if let Some((key, bytes, stored)) = progress.last.take() {
            if job.is_stream {
                state.stream_log.note(now, bytes);
            }
            state.take_stored(now, job.id, key, bytes, stored);
        }
        let missing = job.missing(progress.came);
        match brought {
            Some(Ok(())) => {}
            Some(Err(error)) => self.note_failures(state, &missing, &error, job.is_cancelled()),
            None => {
                let error = ImageError::Panicked { path: self.image.name().to_owned() };
                self.note_failures(state, &missing, &error, false);
                state.engine.handle_worker_lost(now, Worker::Fetcher(job.id));
            }
        }
        state.end_fetch(now, job.id);
    }

    /// Begins the next request of a fetch. A worker brings what is in the cache on disk.
    pub(crate) fn begin(self: &Arc<Self>, job: FetchJob) {
        let mut places: Vec<ChunkPlace> = match &job.what {
            Fetched::Page(_, page) if !self.image.is_page_kept(page) => {
                let page = *page;
                self.image.begin_page(&page, Box::new(Begun::new(self, job, Vec::new())));
                return;
            }
            Fetched::Page(..) => Vec::new(),
            Fetched::Chunks(chunks) => {
                let known = chunks[job.progress.came..].iter().map_while(|chunk| chunk.place);
                known.take_while(|place| !self.image.is_kept(&place.chunk)).collect()
            }
        };
        let Some(run) = runs(&places).into_iter().next() else {
            let mut state = self.lock();
            state.jobs.push_fetch(job);
            self.wake_others(&mut state);
            return;
        };
        places.truncate(run.end);
        self.image.begin_chunks(run.places, Box::new(Begun::new(self, job, places)));
    }

    fn tell_job(&self, job: &FetchJob, progress: &Progress) {
        let purpose = match (job.is_stream, job.is_background) {
            (true, _) => FetchPurpose::Prefetch,
            (false, true) => FetchPurpose::Background,
            (false, false) => FetchPurpose::Demand,
        };
        self.tell_fetched(job.asked, purpose, job.came(progress.came));
    }

    /// Tells the watch what a request has brought.
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
        let start = progress.came;
        let mut places = self.places(&chunks[start..])?;
        if self.image.can_begin() && chunks[start].place.is_some() {
            let kept = places.iter().take_while(|place| self.image.is_kept(&place.chunk)).count();
            places.truncate(kept);
        }
        for run in runs(&places) {
            let request = Request { job, chunks, start, places: &places, run: &run };
            self.image.stream_chunks(&run.places, &mut |event| {
                self.take_event(&request, progress, event, Some(tools))
            })?;
            if job.is_cancelled() {
                break;
            }
        }
        Ok(())
    }

    /// Reports what a request has brought. A thread that has `tools` decompresses what reads wait for.
    fn take_event(
        self: &Arc<Self>,
        request: &Request<'_>,
        progress: &mut Progress,
        event: StreamEvent<'_>,
        mut tools: Option<&mut Decompressor>,
    ) -> ControlFlow<()> {
        let Request { job, places, run, .. } = *request;
        match event {
            StreamEvent::FirstBytes(bytes) => {
                // A worker's request is to a medium of this machine, and costs no more locks than it must.
                let tells = job.is_stream || tools.is_none();
                if !std::mem::replace(&mut progress.has_begun, true) && tells {
                    self.first_bytes(job, bytes);
                }
            }
            StreamEvent::Chunk(number, stored) => {
                let stored: Stored = stored.into_owned().convert();
                for number in run.chunks(number as usize) {
                    let (chunk, from_stream) = (places[number].chunk, job.is_stream);
                    let stored = StoredChunk::Blocks { chunk, bytes: stored.clone(), from_stream };
                    self.chunk_came(request, number, stored, progress, tools.as_deref_mut());
                }
            }
        }
        if job.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn chunk_came(
        self: &Arc<Self>,
        request: &Request<'_>,
        number: usize,
        stored: StoredChunk,
        progress: &mut Progress,
        tools: Option<&mut Decompressor>,
    ) {
        let Request { job, chunks, start, .. } = *request;
        let number = start + number;
        let wanted = &chunks[number];
        let bytes = stored.len();
        let stored = wanted.is_brought.then_some(stored);
        progress.came = number + 1;
        if progress.came == chunks.len() {
            progress.last = Some((wanted.key, bytes, stored));
            return;
        }
        // More is to come, which must not wait for the medium of a base.
        let waits = stored.as_ref().is_some_and(StoredChunk::waits_for_base);
        let is_own = tools.is_some() && matches!(wanted.key, ChunkKey::Cold(_)) && !waits;
        let own = self.came(job.id, wanted.key, bytes, stored, job.is_stream, is_own);
        if let (Some(decode), Some(tools)) = (own, tools) {
            self.decode_at_once(decode, tools);
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

    fn first_bytes(self: &Arc<Self>, job: &FetchJob, bytes: u64) {
        let now = self.now();
        let mut outcomes = Outcomes::default();
        {
            let mut state = self.lock();
            if job.is_stream {
                state.stream_log.begin(now);
            }
            state.engine.handle_first_byte(now, job.id, bytes);
            state.pump(now, &mut outcomes);
            self.wake_others(&mut state);
        }
        outcomes.finish(self, None);
    }

    /// A chunk has come, and more will. If it `is_own` and a read waits for it, this thread decompresses it:
    /// its bytes lie in the processor's cache, and no other thread has to be woken.
    fn came(
        self: &Arc<Self>,
        id: FetchId,
        key: ChunkKey,
        bytes: u64,
        stored: Option<StoredChunk>,
        is_stream: bool,
        is_own: bool,
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
            own = if is_own { state.jobs.take_decode(key) } else { None };
            self.wake_others(&mut state);
        }
        outcomes.finish(self, None);
        own
    }

    /// Some chunks of a fetch did not come. The engine asks again for each that a read waits for; the stream
    /// passes over the first one.
    fn note_failures(
        &self,
        state: &mut DiskState,
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
    pub(crate) fn take_head(self: &Arc<Self>, id: FetchId, head: Head) {
        let (shared, chunks, mut next) = (Arc::clone(self), head.chunks, 0);
        head.receive(Box::new(move |message| {
            let fault = match message {
                HeadMessage::Chunk(number, bytes) => {
                    next = number + 1;
                    let len = bytes.len() as u64;
                    let chunk = shared.image.hot_chunk(number).0;
                    let stored = StoredChunk::Blocks { chunk, bytes, from_stream: true };
                    let own = shared.came(id, ChunkKey::Hot(number), len, Some(stored), true, false);
                    debug_assert!(own.is_none(), "hot chunks are other workers'");
                    if !shared.lock().is_shut_down {
                        return ControlFlow::Continue(());
                    }
                    None
                }
                HeadMessage::Finished(result) => result.err(),
            };
            shared.tell_fetched(shared.opened, FetchPurpose::Prefetch, (0..next).map(ChunkKey::Hot));
            shared.change(|state, now| {
                if let Some(error) = fault {
                    let missing: Vec<ChunkKey> = (next..chunks).map(ChunkKey::Hot).collect();
                    shared.note_failures(state, &missing, &error, false);
                }
                state.end_fetch(now, id);
            });
            ControlFlow::Break(())
        }));
    }
}

/// One of a fetch's requests.
struct Request<'a> {
    job: &'a FetchJob,
    chunks: &'a [Wanted],
    /// Which chunk of the fetch is the first of `places`.
    start: usize,
    places: &'a [ChunkPlace],
    run: &'a Run,
}

/// Chunks that lie one behind another.
#[derive(Default)]
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

/// A fetch that is under way at the store, and that no thread waits for.
struct Begun {
    shared: Arc<Shared>,
    /// None when it has ended.
    job: Option<FetchJob>,
    /// Which chunk is the first that the request brings.
    start: usize,
    places: Vec<ChunkPlace>,
    run: Run,
}

impl Begun {
    fn new(shared: &Arc<Shared>, job: FetchJob, places: Vec<ChunkPlace>) -> Self {
        let run = runs(&places).pop().unwrap_or_default();
        Self { shared: Arc::clone(shared), start: job.progress.came, job: Some(job), places, run }
    }

    fn end(&mut self, brought: Result<(), ImageError>) {
        let Some(job) = self.job.take() else { return };
        let came = job.progress.came;
        if brought.is_ok() && (self.start + 1..job.what.count()).contains(&came) && !job.is_cancelled() {
            return self.shared.begin(job);
        }
        self.report(job, Some(brought));
    }

    fn report(&self, mut job: FetchJob, brought: Option<Result<(), ImageError>>) {
        let mut progress = std::mem::take(&mut job.progress);
        self.shared.tell_job(&job, &progress);
        self.shared.change(|state, _| self.shared.end(state, &job, &mut progress, brought));
    }
}

impl ChunkReceiver for Begun {
    fn event(&mut self, event: StreamEvent<'_>) -> ControlFlow<()> {
        let Self { shared, job: Some(job), start, places, run } = self else { return ControlFlow::Break(()) };
        let mut progress = std::mem::take(&mut job.progress);
        let Fetched::Chunks(chunks) = &job.what else { return ControlFlow::Break(()) };
        let request = Request { job, chunks, start: *start, places, run };
        // Decompressing is for the workers: other requests go on with this thread.
        let flow = shared.take_event(&request, &mut progress, event, None);
        job.progress = progress;
        flow
    }

    fn done(mut self: Box<Self>, result: Result<(), ImageError>) {
        self.end(result);
    }
}

impl PageReceiver for Begun {
    fn first_bytes(&mut self, bytes: u64) {
        let Some(job) = &self.job else { return };
        self.shared.first_bytes(job, bytes);
    }

    fn done(mut self: Box<Self>, result: Result<StoredPage, ImageError>) {
        let Some(job) = &mut self.job else { return };
        let brought = result.map(|stored| {
            let Fetched::Page(number, page) = job.what else { return };
            let (bytes, stored) = (stored.len(), StoredChunk::Page(page, stored));
            job.progress.last = Some((ChunkKey::Page(number), bytes, Some(stored)));
            job.progress.came = 1;
        });
        self.end(brought);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.report(job, None);
        }
    }
}

impl Fetched {
    /// How many chunks it is.
    fn count(&self) -> usize {
        match self {
            Self::Page(..) => 1,
            Self::Chunks(chunks) => chunks.len(),
        }
    }
}

impl FetchJob {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

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
