//! The thread that keeps time: it polls the engine when the engine wants to be polled, looks at the system's
//! memory, and says in the log that reads wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_linux::MemoryProbe;
use hs_units::Nanos;

use crate::disk::Shared;
use crate::figures::Waiting;
use crate::memory::keeper::Keeping;
use crate::outcomes::Outcomes;

/// How often the prefetch looks at the system's memory. On media where it matters a request takes at least as
/// long.
const MEMORY_PAUSE: Duration = Duration::from_millis(100);
/// How often reads that wait are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// After so long one line says that reads wait.
const TELL_AFTER: Duration = Duration::from_secs(30);
/// How much may still wait for its readers when memory is given back to the system after the prefetch: some
/// chunks are never read completely.
const LEFT_BYTES: u64 = 4 << 20;

/// What the thread knows.
struct Clock {
    probe: MemoryProbe,
    memory_due: Instant,
    keeping: Option<Keeping>,
    keeping_due: Instant,
    has_told: bool,
    gave_back: bool,
}

impl Shared {
    /// Keeps time until the disk is done.
    pub(crate) fn keep_time(self: &Arc<Self>) {
        let now = Instant::now();
        let mut clock = Clock {
            probe: MemoryProbe::of_this_process(),
            memory_due: now,
            keeping: Keeping::new(self.options.read.cache_bytes, self.options.read.cache_sizing),
            keeping_due: now,
            has_told: false,
            gave_back: false,
        };
        while self.tick(&mut clock) {}
    }

    /// Does what is due and sleeps; false when the disk is done.
    fn tick(self: &Arc<Self>, clock: &mut Clock) -> bool {
        self.look_at_memory(clock);
        self.apply_limit();
        let mut outcomes = Outcomes::default();
        let gives_back = {
            let mut state = self.lock();
            if state.is_done {
                return false;
            }
            let now = self.now();
            if state.wake_at.is_some_and(|then| then <= now) {
                state.pump(now, &mut outcomes);
                self.wake_others(&mut state);
            }
            let over = state.engine.prefetch().ended().is_some();
            over && !clock.gave_back && state.engine.usage().held_bytes <= LEFT_BYTES
        };
        outcomes.finish(self, None);
        if gives_back {
            clock.gave_back = true;
            hs_linux::give_back();
        }
        self.tell_of_waiting(&mut clock.has_told);
        self.sleep(clock)
    }

    fn sleep(&self, clock: &Clock) -> bool {
        let mut state = self.lock();
        if state.is_done {
            return false;
        }
        let now = self.now();
        let (waiting, _) = state.engine.waiting();
        let streams = state.engine.watches_memory() && !state.is_shut_down;
        let since = |then: Instant| Nanos::from(then.saturating_duration_since(self.began));
        let look = (waiting > 0).then(|| now + Nanos::from(LOOK));
        let memory = streams.then(|| since(clock.memory_due));
        let keeping = clock.keeping.as_ref().map(|_| since(clock.keeping_due));
        let until = self.limit.lock().map(|limit| since(limit.until)).filter(|then| *then > now);
        let then = [look, memory, keeping, until, state.wake_at].into_iter().flatten().min();
        match then {
            Some(then) if then <= now => {}
            Some(then) => {
                state.clock_until = then;
                let _ = self.clock.wait_for(&mut state, then.saturating_sub(now).into());
            }
            None => {
                state.clock_until = Nanos(u64::MAX);
                self.clock.wait(&mut state);
            }
        }
        state.locks += 1;
        state.clock_until = Nanos::ZERO;
        !state.is_done
    }

    fn look_at_memory(self: &Arc<Self>, clock: &mut Clock) {
        let now = Instant::now();
        if now >= clock.memory_due {
            clock.memory_due = now + MEMORY_PAUSE;
            let streams = self.lock().engine.watches_memory();
            // Without a sample it stays as it is: a system that does not tell is taken as it was.
            if streams && let Some(sample) = clock.probe.sample() {
                self.change(|state, now| state.engine.handle_memory(now, &sample));
            }
        }
        if let Some(keeping) = &mut clock.keeping
            && now >= clock.keeping_due
        {
            clock.keeping_due = now + keeping.tick(self);
        }
    }

    /// How long a read may wait now.
    pub(crate) fn apply_limit(self: &Arc<Self>) {
        let now = Instant::now();
        let limit = self.limit.lock().map(|limit| limit.at(now));
        let each = limit.into_iter().chain(self.options.read.read_timeout).min().map(Nanos::from);
        if self.lock().engine.config().read_timeout != each {
            self.change(|state, _| state.engine.set_read_timeout(each));
        }
    }

    pub(crate) fn waiting(&self) -> Waiting {
        let mut state = self.lock();
        let (reads, since) = state.engine.waiting();
        let oldest = since.map_or(Nanos::ZERO, |since| self.now().saturating_sub(since));
        Waiting { reads: reads as u64, oldest }
    }

    /// One line when reads have waited for long, until none has.
    fn tell_of_waiting(&self, has_told: &mut bool) {
        let Waiting { reads, oldest } = self.waiting();
        let limit = self.options.read.read_timeout;
        let after = limit.map_or(TELL_AFTER, |each| (each / 2).min(TELL_AFTER));
        let waits = reads > 0 && Duration::from(oldest) >= after;
        if waits && !*has_told {
            log::warn!(
                "no answer from {} for {:.0} s{}; {reads} {}",
                self.image.name(),
                Duration::from(oldest).as_secs_f64(),
                self.image.trouble(),
                if reads == 1 { "read waits" } else { "reads wait" }
            );
        }
        *has_told = waits;
    }
}
