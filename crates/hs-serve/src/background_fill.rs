//! Fills the cache on disk with the blocks that no reader has asked for. The server of the disk does it,
//! because it knows when its readers leave the medium alone.
//!
//! It begins when the prefetch has ended. It makes small requests in the lowest class of the disk's queue,
//! and only when no reader has waited for the medium for a while ([`FillPace`]). Stored chunks are not
//! fetched again, so a server that takes over goes on.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hs_disk::ServedDisk;
use hs_image::{FillReport, Progress, fill_cache};
use hs_linux::LinuxError;
use hs_units::ByteRange;
use parking_lot::{Condvar, Mutex};

use crate::fill_pace::{FillPace, LEAST_REQUEST_BYTES};

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

#[derive(Default)]
struct FillState {
    progress: FillProgress,
    stopped: bool,
}

impl BackgroundFill {
    /// Begins. The disk's image must have a cache on disk.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(disk: &Arc<ServedDisk>) -> Result<Self, LinuxError> {
        let filling =
            Arc::new(Filling { disk: Arc::clone(disk), state: Mutex::default(), changed: Condvar::new() });
        let thread = std::thread::Builder::new()
            .name("hs-fill-cache".to_owned())
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
        while !self.is_stopped() {
            match self.fill() {
                Ok(report) => {
                    if report.is_complete {
                        self.state.lock().progress.is_complete = true;
                        log::info!(
                            "the cache has all of the image: {} bytes were fetched, {} were there",
                            report.fetched_bytes,
                            report.kept_bytes
                        );
                    }
                    return;
                }
                Err(error) => {
                    let level = if std::mem::replace(&mut has_complained, true) {
                        log::Level::Debug
                    } else {
                        log::Level::Warn
                    };
                    log::log!(
                        level,
                        "the cache is not filled any further for {} s: {error}",
                        FAULT_PAUSE.as_secs()
                    );
                    let _ = self.pause(FAULT_PAUSE);
                }
            }
        }
    }

    fn fill(&self) -> Result<FillReport, hs_image::ImageError> {
        // The permit of one request ends when the next request wants to begin.
        let mut permit = None;
        let mut seen = None;
        let mut pace = FillPace::new();
        let mut began: Option<(Instant, u64)> = None;
        let mut between = |progress: Progress| {
            permit = None;
            if let Some((began, done_bytes)) = began.take() {
                pace.handle_request(progress.done_bytes - done_bytes, began.elapsed());
            }
            {
                let mut state = self.state.lock();
                state.progress.done_bytes = progress.done_bytes;
                state.progress.total_bytes = progress.total_bytes;
            }
            self.wait_for_quiet(&mut seen, pace.quiet())?;
            let range = ByteRange::new(progress.done_bytes, pace.request_bytes());
            permit = self.disk.fill_permit(range, || self.is_stopped());
            if permit.is_none() {
                return ControlFlow::Break(());
            }
            began = Some((Instant::now(), progress.done_bytes));
            ControlFlow::Continue(pace.request_bytes())
        };
        fill_cache(self.disk.image(), LEAST_REQUEST_BYTES, &mut between)
    }

    /// Waits until the prefetch has ended and no reader has waited for the medium for `quiet`; breaks when
    /// the fill must end. `seen` is how many readers had waited, and since when.
    fn wait_for_quiet(&self, seen: &mut Option<(u64, Instant)>, quiet: Duration) -> ControlFlow<()> {
        loop {
            let waited = self.disk.stats().waited_requests;
            let has_streamed = self.disk.ended().is_some();
            match seen {
                Some((before, since)) if *before == waited && has_streamed => {
                    let Some(rest) = quiet.checked_sub(since.elapsed()).filter(|rest| !rest.is_zero()) else {
                        return ControlFlow::Continue(());
                    };
                    self.pause(rest.min(LOOKS_EVERY))?;
                }
                _ => {
                    *seen = Some((waited, Instant::now()));
                    self.pause(quiet.min(LOOKS_EVERY))?;
                }
            }
        }
    }

    fn pause(&self, pause: Duration) -> ControlFlow<()> {
        let mut state = self.state.lock();
        let _ = self.changed.wait_while_for(&mut state, |state| !state.stopped, pause);
        if state.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}
