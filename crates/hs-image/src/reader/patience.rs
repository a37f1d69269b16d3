//! How long reads wait: waiting reads are counted and logged, and a read that has waited too long gets an
//! error.
//!
//! A thread looks now and then while reads wait, and sleeps otherwise. What it gives up may still come: it
//! goes into the cache, and the next reader finds it there.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use hs_units::Nanos;
use parking_lot::{Condvar, Mutex};

use super::{Reader, Shared};
use crate::ImageError;

/// After so long one line says that reads wait.
const TELL_AFTER: Duration = Duration::from_secs(30);
/// How often waiting reads are looked at, at least.
const LOOK: Duration = Duration::from_secs(1);

/// Reads that wait now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many there are.
    pub reads: u64,
    /// For how long the one waits that has waited longest.
    pub oldest: Nanos,
}

/// Reads may wait no longer than this, whatever else was said.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    /// Each of them.
    pub each: Duration,
    /// All of them, until this moment: later ones fail at once.
    pub until: Instant,
}

/// The limits, and what wakes the thread that looks after them.
pub(super) struct Patience {
    read_timeout: Option<Duration>,
    limit: Mutex<Option<ReadLimit>>,
    changed: Condvar,
    /// The thread sleeps until a read waits.
    sleeps: AtomicBool,
    has_ended: AtomicBool,
}

impl Patience {
    pub(super) fn new(read_timeout: Option<Duration>) -> Self {
        let (sleeps, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { read_timeout, limit: Mutex::default(), changed: Condvar::new(), sleeps, has_ended }
    }

    /// A read has begun to wait.
    pub(super) fn somebody_waits(&self) {
        if self.sleeps.load(SeqCst) && self.sleeps.swap(false, SeqCst) {
            self.wake();
        }
    }

    /// The thread is to end.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Relaxed);
        self.wake();
    }

    fn wake(&self) {
        // Not between its look and its sleep.
        drop(self.limit.lock());
        self.changed.notify_all();
    }

    /// How long a read may wait now; without a limit when none.
    fn each(&self, limit: Option<ReadLimit>) -> Option<Duration> {
        let now = Instant::now();
        let limit = limit.map(|limit| if now >= limit.until { Duration::ZERO } else { limit.each });
        limit.into_iter().chain(self.read_timeout).min()
    }
}

impl Reader {
    /// The reads that wait now.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.shared.waiting()
    }

    /// Sets a further limit of how long reads wait, or takes it away.
    pub fn limit_reads(&self, limit: Option<ReadLimit>) {
        *self.shared.patience.limit.lock() = limit;
        self.shared.patience.changed.notify_all();
    }

    /// How long a read may wait; without a limit when none.
    #[must_use]
    pub fn read_timeout(&self) -> Option<Duration> {
        self.shared.patience.read_timeout
    }
}

impl Shared {
    fn waiting(&self) -> Waiting {
        let (reads, since) = self.memory.lock().waiting();
        let oldest = since.map_or(Nanos::ZERO, |since| self.now().saturating_sub(since));
        Waiting { reads: reads as u64, oldest }
    }

    /// The thread that looks after reads that wait, until the reader ends.
    pub(super) fn watch_reads(&self) {
        let patience = &self.patience;
        let mut told = false;
        while !patience.has_ended.load(Relaxed) {
            let each = {
                let mut limit = patience.limit.lock();
                let each = patience.each(*limit);
                let look = each.map_or(LOOK, |each| (each / 8).clamp(Duration::from_millis(20), LOOK));
                // Set before the look, so that a read that begins to wait after it wakes this thread.
                patience.sleeps.store(true, SeqCst);
                let waits = self.memory.lock().waiting().0 > 0;
                if patience.has_ended.load(Relaxed) {
                    return;
                }
                if !waits {
                    if patience.sleeps.load(SeqCst) {
                        patience.changed.wait(&mut limit);
                    }
                    continue;
                }
                patience.sleeps.store(false, SeqCst);
                patience.changed.wait_for(&mut limit, look);
                patience.each(*limit)
            };
            told = self.tell_of_waiting(each, told);
            if let Some(each) = each {
                self.give_up_after(each);
            }
        }
    }

    /// One line when reads have waited for long, until none has.
    fn tell_of_waiting(&self, each: Option<Duration>, told: bool) -> bool {
        let Waiting { reads, oldest } = self.waiting();
        let after = each.map_or(TELL_AFTER, |each| (each / 2).min(TELL_AFTER));
        let waits = reads > 0 && Duration::from(oldest) >= after;
        if waits && !told {
            log::warn!(
                "no answer from {} for {:.0} s; {reads} {}",
                self.image.name(),
                Duration::from(oldest).as_secs_f64(),
                if reads == 1 { "read waits" } else { "reads wait" }
            );
        }
        waits
    }

    /// Answers the reads that have waited for so long with an error.
    fn give_up_after(&self, each: Duration) {
        let now = self.now();
        let Some(since) = now.0.checked_sub(Nanos::from(each).0).map(Nanos) else { return };
        let given_up = self.memory.lock().give_up(since);
        let Some(first) = given_up.first() else { return };
        let waited = Duration::from(now.saturating_sub(first.at));
        let error = ImageError::NoAnswer { path: self.image.name().to_owned(), waited };
        log::error!("{error}: {} reads were given up", given_up.len());
        for pending in given_up {
            if pending.missed && pending.missing_cold > 0 {
                self.policy.miss_answered();
            }
            self.counters.failed_requests.fetch_add(1, Relaxed);
            self.counters.given_up_requests.fetch_add(1, Relaxed);
            (pending.answer)(Err(&error));
        }
    }
}
