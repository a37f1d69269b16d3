//! The served disk: reads from any thread, and the threads behind it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hs_engine::cache::CacheUsage;
use hs_engine::disk::{DiskEngine, FetchId, PermitId, Requester, TripwireCount};
use hs_engine::queue::{ClientKey, QueueConfig, QueueMetrics, Recorded};
use hs_format::Decompressor;
use hs_image::{Head, Image, ImageError, UseBase};
use hs_store::Store;
use hs_units::{BlockRange, ByteRange, Lba, Nanos};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::config::DiskOptions;
use crate::figures::{DiskFigures, ReadLimit, Waiting, Watch};
use crate::map::DiskMap;
use crate::outcomes::{Answer, Outcomes};
use crate::pack_check::PackComparison;
use crate::state::DiskState;
use crate::warmer_place::WarmerSeen;

/// Events of the queue that are kept, for `headstart status`: 64 KiB.
const KEPT_EVENTS: usize = 1024;

thread_local! {
    /// For a thread of a front end, which decompresses what it finds compressed.
    static DECOMPRESSOR: Cell<Option<Decompressor>> = const { Cell::new(None) };
}

/// What the threads of a disk share.
pub(crate) struct Shared {
    pub(crate) image: Arc<Image>,
    pub(crate) options: DiskOptions,
    state: Mutex<DiskState>,
    /// For workers that wait for a job.
    pub(crate) work: Condvar,
    /// For the delivery thread.
    pub(crate) delivery: Condvar,
    /// For the clock thread.
    pub(crate) clock: Condvar,
    /// For threads that watch the prefetch, or wait for a permit.
    pub(crate) watched: Condvar,
    pub(crate) watch: Option<Arc<dyn Watch>>,
    /// A further limit of how long reads wait.
    pub(crate) limit: Mutex<Option<ReadLimit>>,
    /// Whether a report of use would change what the prefetch does.
    pub(crate) asks_for_use: AtomicBool,
    pub(crate) warmer: WarmerSeen,
    /// The engine's clock begins when the image is asked for, which is when a start begins.
    pub(crate) began: Instant,
    /// When the image was open.
    pub(crate) opened: Nanos,
    /// Workers, beside those that carry fetches out.
    decoders: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Of a pack.
    pub(crate) pack_comparison: Mutex<PackComparison>,
}

/// The disk in an image: answers reads, and prefetches its hot region.
///
/// Dropping it ends its threads; reads that wait fail. The base of its image, if that has one, ends with it.
pub struct ServedDisk {
    pub(crate) shared: Arc<Shared>,
    /// The rest of the request that opened the image, until the prefetch begins.
    pub(crate) head: Mutex<Option<(FetchId, Head)>>,
}

/// Tables of a file system that are fetched before they are asked for, at most: those of a hundred thousand
/// files, a megabyte as they are stored.
const MOST_TABLE_BLOCKS: u64 = 8192;

/// The tables of the file system (R38), where no profile knows better what a start reads first.
fn tables_first(image: &Image) -> Option<BlockRange> {
    let superblock = image.superblock();
    let blocks = superblock.features.table_blocks().min(superblock.disk_blocks()).min(MOST_TABLE_BLOCKS);
    (superblock.hot.is_empty() && blocks > 0).then(|| BlockRange::new(Lba(0), blocks))
}

impl ServedDisk {
    /// Opens the image in `store`. With a prefetch, the first request brings the beginning of the hot region
    /// too, which waits for [`ServedDisk::begin_prefetch`].
    ///
    /// # Errors
    /// When the image is not one, or a thread cannot be started.
    pub fn open(
        store: Arc<dyn Store>,
        options: &DiskOptions,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Arc<Self>, ImageError> {
        let (image, head) = match options.prefetch {
            Some(prefetch) => {
                let first_bytes = 2 * prefetch.first_request_bytes;
                let (image, head) = Image::open_streaming(store, first_bytes, &options.image)?;
                (image, Some(head))
            }
            None => (Image::open_as(store, &options.image)?, None),
        };
        Self::new(Arc::new(image), head, options, watch)
    }

    /// The disk in an image that is open, without the rest of the request that opened it.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn of_image(
        image: Arc<Image>,
        options: &DiskOptions,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Arc<Self>, ImageError> {
        Self::new(image, None, options, watch)
    }

    fn new(
        image: Arc<Image>,
        head: Option<Head>,
        options: &DiskOptions,
        watch: Option<Arc<dyn Watch>>,
    ) -> Result<Arc<Self>, ImageError> {
        if !matches!(options.image.base, UseBase::Later) {
            image.check_has_base()?;
        }
        let began = head.as_ref().map_or_else(Instant::now, |head| head.asked);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // At least two: while one of them delivers, which may wait for a chunk that is not decompressed yet,
        // the other goes on.
        let mut decoders = cores.max(2);
        if image.superblock().base.is_some() {
            // So many may wait for the medium of the base, as fetchers wait for that of the image, while the
            // others decompress.
            decoders += options.read.fetchers;
        }
        let config = options.engine(decoders as u32);
        let mut engine = DiskEngine::new(Nanos::ZERO, config, DiskMap::new(Arc::clone(&image)));
        engine.start_recording(KEPT_EVENTS);
        engine.hold_prefetch();
        if let Some(tables) = tables_first(&image) {
            let _ = engine.handle_learned([tables]);
        }
        let mut state = DiskState::new(engine);
        let head = head.and_then(|head| {
            let id = state.engine.handle_opening(Nanos::ZERO, head.chunks, head.bytes_before)?;
            Some((id, head))
        });
        state.workers = 1;
        state.waking = 1;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            delivery: Condvar::new(),
            clock: Condvar::new(),
            watched: Condvar::new(),
            watch,
            limit: Mutex::default(),
            asks_for_use: AtomicBool::new(config.prefetch.is_some_and(|prefetch| prefetch.sees_use)),
            warmer: WarmerSeen::default(),
            began,
            opened: began.elapsed().into(),
            decoders,
            threads: Mutex::default(),
            pack_comparison: Mutex::default(),
            options: options.clone(),
            image,
        });
        let disk = Self { shared, head: Mutex::new(head) };
        disk.shared.spawn("hs-disk", Shared::work)?;
        disk.shared.spawn("hs-clock", Shared::keep_time)?;
        if disk.image().pack().is_some() && disk.image().hot_chunk_count() > 0 {
            disk.shared.spawn("hs-pack-check", Shared::check_pack)?;
        }
        Ok(Arc::new(disk))
    }

    /// How far the blocks of a pack are compared with its disk; none of another image, and of a pack without
    /// a hot region.
    #[must_use]
    pub fn pack_comparison(&self) -> Option<PackComparison> {
        let compares = self.image().pack().is_some() && self.image().hot_chunk_count() > 0;
        compares.then(|| *self.shared.pack_comparison.lock())
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
        self.submit_for(Requester::default(), offset, len, answer);
    }

    /// As [`ServedDisk::submit`], where several clients share the disk or no program waits for the answer.
    pub fn submit_for(
        &self,
        requester: Requester,
        offset: u64,
        len: u32,
        answer: impl FnOnce(Result<&[&[u8]], &ImageError>) + Send + 'static,
    ) {
        self.shared.submit(requester, ByteRange::new(offset, u64::from(len)), Box::new(answer));
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

    /// A client opened a connection: all that it has have one share of the medium.
    pub fn open_connection(&self, client: ClientKey) {
        self.shared.lock().engine.open_connection(client);
    }

    /// A client closed a connection.
    pub fn close_connection(&self, client: ClientKey) {
        self.shared.lock().engine.close_connection(client);
    }

    /// What was fetched for each class and client, and how long requests waited.
    #[must_use]
    pub fn queue_metrics(&self) -> QueueMetrics {
        let now = self.shared.now();
        self.shared.lock().engine.queue().metrics(now)
    }

    /// The last events of the queue before the medium, at most so many, the oldest first; times are since the
    /// image was asked for.
    #[must_use]
    pub fn queue_events(&self, most: usize) -> Vec<Recorded> {
        let state = self.shared.lock();
        state.engine.queue().recorder().map_or_else(Vec::new, |recorder| recorder.last(most).collect())
    }

    /// In which order chunks are fetched.
    #[must_use]
    pub fn queue_config(&self) -> QueueConfig {
        *self.shared.lock().engine.queue().config()
    }

    /// What the cache holds and how often that helped.
    #[must_use]
    pub fn cache_usage(&self) -> CacheUsage {
        self.shared.lock().engine.usage().cache
    }

    /// Bytes in memory that readers have as well, and keep: of chunks that they do not have whole yet.
    #[must_use]
    pub fn duplicate_bytes(&self) -> u64 {
        self.shared.lock().engine.shared_bytes().duplicate
    }

    /// How use of prefetched chunks was seen where readers keep what they were given.
    #[must_use]
    pub fn tripwire_count(&self) -> TripwireCount {
        self.shared.lock().engine.tripwire_count()
    }

    /// The cache may hold so many bytes from now on; what is too much is freed before this returns.
    pub fn set_cache_budget(&self, bytes: u64) {
        self.shared.change(|state, _| state.engine.set_cache_budget(bytes));
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> DiskFigures {
        let now = self.shared.now();
        let state = self.shared.lock();
        let stats = state.engine.stats();
        DiskFigures {
            program_wait: state.engine.program_wait(now),
            outside_bytes: stats.outside_bytes,
            background_bytes: stats.background_bytes,
            background_used_bytes: stats.background_used_bytes,
            prefetch_bytes: stats.streamed_bytes,
            unserved_prefetch_bytes: state.engine.shared_bytes().unserved,
            chunk_errors: stats.chunk_errors,
            ..state.figures
        }
    }

    /// How often the disk's lock was taken so far.
    #[must_use]
    pub fn lock_count(&self) -> u64 {
        self.shared.lock().locks
    }

    /// The reads that wait now.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.shared.waiting()
    }

    /// Sets a further limit of how long reads wait, or takes it away.
    pub fn limit_reads(&self, limit: Option<ReadLimit>) {
        *self.shared.limit.lock() = limit;
        self.shared.apply_limit();
    }

    /// How long a read may wait; without a limit when none.
    #[must_use]
    pub fn read_timeout(&self) -> Option<Duration> {
        self.shared.options.read.read_timeout
    }

    /// Waits for a permit to fetch about this range of the file as background fill, after all that was asked
    /// for. None when the caller `gives_up` before, which is looked at after [`ServedDisk::wake`], or when
    /// the disk ends.
    pub fn fill_permit(&self, range: ByteRange, gives_up: impl Fn() -> bool) -> Option<FillPermit<'_>> {
        self.shared.fill_permit(range, gives_up)
    }

    /// Waiting threads check whether what they wait for holds, or whether to give up.
    pub fn wake(&self) {
        // Under the lock, so that no thread is between looking and waiting.
        let _state = self.shared.lock();
        self.shared.watched.notify_all();
    }

    /// The disk is no longer needed: the prefetch stops, and reads that wait, or come later, fail. Call it
    /// before anything is taken down that may wait for a read. Its base is closed too.
    pub fn close(&self) {
        self.shared.shut_down(self.head.lock().take());
        self.shared.image.store().close();
        self.close_base();
    }

    /// Ends what the threads of this disk may wait for.
    fn close_base(&self) {
        if let Some(base) = self.shared.image.base() {
            base.close();
        }
    }
}

impl Drop for ServedDisk {
    fn drop(&mut self) {
        self.shared.shut_down(self.head.lock().take());
        self.close_base();
        if self.image().pack().is_some() {
            // The thread that compares the disk may wait for it.
            self.image().store().close();
        }
        loop {
            let threads = std::mem::take(&mut *self.shared.threads.lock());
            if threads.is_empty() {
                break;
            }
            for thread in threads {
                let _ = thread.join();
            }
        }
        // The thread that has reported the end of the last request is about to leave.
        while Arc::strong_count(&self.shared) > 1 {
            std::thread::yield_now();
        }
    }
}

/// A permit to read the medium as background fill, until it is dropped.
pub struct FillPermit<'a> {
    shared: &'a Arc<Shared>,
    id: PermitId,
}

impl Drop for FillPermit<'_> {
    fn drop(&mut self) {
        let id = self.id;
        self.shared.change(|state, now| {
            state.granted.remove(&id);
            state.engine.handle_permit_done(now, id);
        });
    }
}

impl Shared {
    /// The engine's time.
    pub(crate) fn now(&self) -> Nanos {
        self.began.elapsed().into()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, DiskState> {
        let mut state = self.state.lock();
        state.locks += 1;
        state
    }

    pub(crate) fn spawn(self: &Arc<Self>, name: &str, run: fn(&Arc<Self>)) -> Result<(), ImageError> {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        let thread = thread.map_err(|cause| ImageError::Io {
            path: self.image.name().into(),
            what: "start a thread",
            cause: Arc::new(cause),
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// See [`ServedDisk::fill_permit`].
    pub(crate) fn fill_permit(
        self: &Arc<Self>,
        range: ByteRange,
        gives_up: impl Fn() -> bool,
    ) -> Option<FillPermit<'_>> {
        let mut id = PermitId::default();
        self.change(|state, now| id = state.engine.handle_permit(now, range));
        let mut state = self.lock();
        let is_granted = loop {
            if state.granted.remove(&id) {
                break true;
            }
            if state.is_shut_down || gives_up() {
                break false;
            }
            state.watchers += 1;
            self.watched.wait(&mut state);
            state.watchers -= 1;
        };
        drop(state);
        let permit = FillPermit { shared: self, id };
        is_granted.then_some(permit)
    }

    fn submit(self: &Arc<Self>, requester: Requester, range: ByteRange, answer: Answer) {
        let mut outcomes = Outcomes::default();
        let own;
        {
            let mut state = self.lock();
            let now = self.now();
            state.read(now, requester, range, answer);
            state.pump(now, &mut outcomes);
            own = state.jobs.take_own_decode();
            self.wake_for_jobs(&mut state);
        }
        outcomes.finish(self, None);
        if let Some(job) = own {
            // Taken out, because an answer may submit the next read.
            let mut tools = DECOMPRESSOR.take().unwrap_or_default();
            self.decode_at_once(job, &mut tools);
            DECOMPRESSOR.set(Some(tools));
        }
    }

    /// Does something to the engine, and what follows from it.
    pub(crate) fn change(self: &Arc<Self>, change: impl FnOnce(&mut DiskState, Nanos)) {
        let mut outcomes = Outcomes::default();
        {
            let mut state = self.lock();
            let now = self.now();
            change(&mut state, now);
            state.pump(now, &mut outcomes);
            self.wake_others(&mut state);
        }
        outcomes.finish(self, None);
    }

    /// Wakes the threads that have something to do.
    pub(crate) fn wake_others(self: &Arc<Self>, state: &mut DiskState) {
        self.wake_for_jobs(state);
        if state.watchers > 0 {
            self.watched.notify_all();
        }
    }

    /// The same after a read, which changes nothing that other threads watch.
    fn wake_for_jobs(self: &Arc<Self>, state: &mut DiskState) {
        self.asks_for_use.store(state.engine.prefetch().lacks_confidence(), Relaxed);
        let needed = state.jobs.len();
        // Where requests are begun, a worker that fetches only reads from the cache on disk.
        let fetchers = if state.can_begin { 0 } else { state.jobs.worker_fetches };
        let most_workers = self.decoders + fetchers;
        while state.waking < needed && (state.idle > state.waking || state.workers < most_workers) {
            if state.idle > state.waking {
                self.work.notify_one();
            } else if self.spawn("hs-disk", Self::work).is_ok() {
                state.workers += 1;
            } else {
                // The workers that there are do it.
                break;
            }
            state.waking += 1;
        }
        if state.jobs.delivery.is_some() || state.is_done {
            self.delivery.notify_all();
        }
        if state.is_done {
            self.work.notify_all();
            self.clock.notify_all();
        } else if state.wake_at.is_some_and(|then| then < state.clock_until) {
            self.clock.notify_all();
        }
    }

    pub(crate) fn shut_down(self: &Arc<Self>, head: Option<(FetchId, Head)>) {
        self.change(|state, now| {
            state.is_shut_down = true;
            state.engine.handle_shutdown(now);
            // What no worker has begun is not done any more.
            let ids: Vec<FetchId> = state.jobs.fetches.drain(..).map(|job| job.id).collect();
            state.jobs.worker_fetches -= ids.len();
            for id in ids.into_iter().chain(head.map(|(id, _)| id)) {
                state.end_fetch(now, id);
            }
        });
        let state = self.lock();
        self.watched.notify_all();
        self.clock.notify_all();
        drop(state);
    }
}
