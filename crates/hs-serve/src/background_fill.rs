//! Fills the cache on disk with the blocks that no reader has asked for. The server of the disk does it,
//! because it knows when its readers leave the medium alone.
//!
//! It begins when the prefetch has ended. It makes small requests in the lowest class of the disk's queue,
//! two at once where the medium is quick, and only when no reader has waited for the medium for a while
//! ([`FillPace`]). Stored chunks are not fetched again, so a server that takes over goes on.
//!
//! ```text
//! thread 1: ├ begin ┤├── fetch, verify, keep ──┤        ├ begin ┤├── fetch, verify, keep ──┤
//! thread 2:          ├ begin ┤├── fetch, verify, keep ──┤        ├ begin ┤├── ...
//! ```
//!
//! The threads begin requests in turn: the one whose turn it is waits for readers, and for room beside the
//! other's request. In memory are a chunk of each request, and the 16 MiB that may wait for the disk.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use hs_disk::{FillPermit, ServedDisk};
use hs_image::{ImageError, MissingRun, MissingRuns};
use hs_linux::LinuxError;
use parking_lot::{Condvar, Mutex};

use crate::fill_pace::FillPace;

/// What the system calls the threads.
const THREAD: &str = "hs-fill-cache";

/// How often the fill checks whether a read has waited for the medium.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// How long to leave a medium alone that has failed.
const FAULT_PAUSE: Duration = Duration::from_secs(60);

/// How far the filling is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillProgress {
    /// Bytes of chunks that were handled: fetched, or there already.
    pub done_bytes: u64,
    /// Bytes of the image's file, which contains more than chunks.
    pub total_bytes: u64,
    /// Whether everything is there.
    pub is_complete: bool,
}

/// Fills the cache until everything is there, or this is dropped.
pub struct BackgroundFill {
    filling: Arc<Filling>,
    thread: Option<JoinHandle<()>>,
}

struct Filling {
    disk: Arc<ServedDisk>,
    state: Mutex<FillState>,
    changed: Condvar,
}

struct FillState {
    progress: FillProgress,
    pace: FillPace,
    /// Requests that were begun and are not over.
    under_way: u64,
    fetched_bytes: u64,
    /// A request has failed: the other one is the last for a while.
    failed: bool,
    stopped: bool,
}

impl FillState {
    const fn is_over(&self) -> bool {
        self.stopped || self.failed
    }
}

/// What is fetched next, and when: locked by the thread that begins a request.
struct RunPlan<'a> {
    missing: MissingRuns<'a>,
    /// How many readers had waited, and since when.
    seen: Option<(u64, Instant)>,
    /// A run was not fetched, because the disk or the fill has ended.
    is_cut: bool,
}

/// A request that was begun. The medium is used until the permit is dropped.
struct Begun<'a> {
    run: MissingRun,
    permit: FillPermit<'a>,
    at: Instant,
}

impl BackgroundFill {
    /// Begins. The disk's image must have a cache on disk.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(disk: &Arc<ServedDisk>) -> Result<Self, LinuxError> {
        let state = FillState {
            progress: FillProgress::default(),
            pace: FillPace::new(),
            under_way: 0,
            fetched_bytes: 0,
            failed: false,
            stopped: false,
        };
        let (disk, state, changed) = (Arc::clone(disk), Mutex::new(state), Condvar::new());
        let filling = Arc::new(Filling { disk, state, changed });
        let thread = Builder::new()
            .name(THREAD.to_owned())
            .spawn({
                let filling = Arc::clone(&filling);
                move || filling.run()
            })
            .map_err(LinuxError::io("start a thread for", "filling the cache"))?;
        Ok(Self { filling, thread: Some(thread) })
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> FillProgress {
        self.filling.state.lock().progress
    }
}

impl Drop for BackgroundFill {
    fn drop(&mut self) {
        self.filling.state.lock().stopped = true;
        self.filling.changed.notify_all();
        self.filling.disk.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Filling {
    fn run(&self) {
        let mut has_complained = false;
        while !self.state.lock().stopped {
            let Err(error) = self.fill() else { return };
            let level = if std::mem::replace(&mut has_complained, true) {
                log::Level::Debug
            } else {
                log::Level::Warn
            };
            log::log!(level, "the cache is not filled any further for {} s: {error}", FAULT_PAUSE.as_secs());
            let _ = self.pause(FAULT_PAUSE);
        }
    }

    /// Goes through the image once, to its end if nothing ends it before.
    fn fill(&self) -> Result<(), ImageError> {
        let image = self.disk.image();
        {
            let mut state = self.state.lock();
            (state.pace, state.fetched_bytes) = (FillPace::new(), 0);
            state.progress.total_bytes = image.superblock().image_bytes;
        }
        let plan = Mutex::new(RunPlan { missing: MissingRuns::new(image), seen: None, is_cut: false });
        let fetched = std::thread::scope(|scope| {
            let other = Builder::new().name(THREAD.to_owned());
            // Where there is no second thread, requests come one after another.
            let other = other.spawn_scoped(scope, || self.fetch_runs(&plan)).ok();
            let own = self.fetch_runs(&plan);
            let other =
                other.map_or(Ok(()), |other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            own.and(other)
        });
        let RunPlan { missing, is_cut, .. } = plan.into_inner();
        let kept_bytes = missing.kept_bytes();
        let mut state = self.state.lock();
        state.failed = false;
        fetched?;
        if !is_cut && !state.stopped {
            let fetched_bytes = state.fetched_bytes;
            state.progress.done_bytes = kept_bytes + fetched_bytes;
            state.progress.is_complete = true;
            log::info!(
                "the cache has all of the image: {fetched_bytes} bytes were fetched, {kept_bytes} were there"
            );
        }
        Ok(())
    }

    /// Makes one request after the other until all is there, or the fill is over.
    fn fetch_runs(&self, plan: &Mutex<RunPlan<'_>>) -> Result<(), ImageError> {
        // Unlocked here, and not at the end of the loop's body.
        let begin = || self.begin(&mut plan.lock());
        let fetched = (|| {
            while let Some(begun) = begin()? {
                self.fetch(begun)?;
            }
            Ok(())
        })();
        if fetched.is_err() {
            self.state.lock().failed = true;
            self.changed.notify_all();
            self.disk.wake();
        }
        fetched
    }

    /// Waits until the next request may begin. `None` when nothing is missing, or the fill is over.
    fn begin(&self, plan: &mut RunPlan<'_>) -> Result<Option<Begun<'_>>, ImageError> {
        let (request_bytes, quiet) = {
            let mut state = self.state.lock();
            let is_full =
                |state: &mut FillState| !state.is_over() && state.under_way >= state.pace.requests();
            self.changed.wait_while(&mut state, is_full);
            if state.is_over() {
                return Ok(None);
            }
            (state.pace.request_bytes(), state.pace.quiet())
        };
        let Some(run) = plan.missing.next(request_bytes)? else { return Ok(None) };
        {
            let mut state = self.state.lock();
            state.progress.done_bytes = plan.missing.kept_bytes() + state.fetched_bytes;
        }
        let Some(permit) = self.permit(&run, &mut plan.seen, quiet) else {
            plan.is_cut = true;
            return Ok(None);
        };
        self.state.lock().under_way += 1;
        Ok(Some(Begun { run, permit, at: Instant::now() }))
    }

    /// The permit of the queue. It may come late, where the medium serves one request at a time; a reader
    /// that waited meanwhile goes before.
    fn permit(
        &self,
        run: &MissingRun,
        seen: &mut Option<(u64, Instant)>,
        quiet: Duration,
    ) -> Option<FillPermit<'_>> {
        loop {
            if self.wait_for_quiet(seen, quiet).is_break() {
                return None;
            }
            let permit = self.disk.fill_permit(run.range(), || self.state.lock().is_over())?;
            if self.is_quiet(seen) {
                return Some(permit);
            }
        }
    }

    fn fetch(&self, begun: Begun<'_>) -> Result<(), ImageError> {
        let Begun { run, permit, at } = begun;
        let mut first_byte = None;
        let fetched = run.fetch(self.disk.image(), &mut || first_byte = Some(at.elapsed()));
        drop(permit);
        let mut state = self.state.lock();
        state.under_way -= 1;
        if fetched.is_ok() {
            let bytes = run.range().len;
            state.pace.handle_request(bytes, first_byte.unwrap_or_default(), at.elapsed());
            state.fetched_bytes += bytes;
            state.progress.done_bytes += bytes;
        }
        drop(state);
        self.changed.notify_all();
        fetched
    }

    /// Waits until the prefetch has ended and no reader has waited for the medium for `quiet`; breaks when
    /// the fill is over.
    fn wait_for_quiet(&self, seen: &mut Option<(u64, Instant)>, quiet: Duration) -> ControlFlow<()> {
        loop {
            let is_quiet = self.is_quiet(seen);
            let since = seen.map_or_else(Instant::now, |(_, since)| since);
            let rest = quiet.saturating_sub(since.elapsed());
            if is_quiet && rest.is_zero() {
                return ControlFlow::Continue(());
            }
            self.pause(if is_quiet { rest } else { quiet }.min(LOOKS_EVERY))?;
        }
    }

    /// Whether the prefetch has ended, and no reader waits or has waited since `seen`, which is renewed
    /// otherwise.
    fn is_quiet(&self, seen: &mut Option<(u64, Instant)>) -> bool {
        let waited = self.disk.stats().waited_requests;
        let is_quiet = self.disk.ended().is_some()
            && self.disk.waiting().reads == 0
            && seen.is_some_and(|(before, _)| before == waited);
        if !is_quiet {
            *seen = Some((waited, Instant::now()));
        }
        is_quiet
    }

    /// Pauses; breaks when the fill is over.
    fn pause(&self, pause: Duration) -> ControlFlow<()> {
        let mut state = self.state.lock();
        let _ = self.changed.wait_while_for(&mut state, |state| !state.is_over(), pause);
        if state.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
