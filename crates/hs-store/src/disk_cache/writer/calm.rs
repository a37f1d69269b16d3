//! Whether others need the processors: more threads can run than there are processors, or a thread of low
//! priority wakes late from a pause.
//!
//! Neither is enough alone. Schedulers prefer a thread that has slept, whatever its priority, and what runs
//! at one moment may sleep at the next.

use std::time::Duration;

/// The shortest pause, while it is calm.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest, while it is not.
const LONG_PAUSE: Duration = Duration::from_millis(160);
/// A wake-up later than this is late. Timers of threads are 0.05 ms late by default (`timer_slack_ns` of
/// proc(5)), and waking takes as long.
const LATE: Duration = Duration::from_millis(2);
/// After this long the thread writes anyway: what is not written is lost if this process is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The result of pauses, from the first of them on.
#[derive(Debug)]
pub(super) struct Calm {
    pause: Duration,
    waited: Duration,
}

impl Default for Calm {
    fn default() -> Self {
        Self { pause: PAUSE, waited: Duration::ZERO }
    }
}

impl Calm {
    /// How long to pause next.
    pub(super) const fn pause(&self) -> Duration {
        self.pause
    }

    /// Reports a pause that took this long in all, and whether the processors are crowded. Returns whether it
    /// is calm, or has not been for as long as an entry may wait.
    pub(super) fn handle_pause(&mut self, took: Duration, is_crowded: bool) -> bool {
        self.waited += took;
        let is_calm = (took < self.pause + LATE && !is_crowded) || self.waited >= PATIENCE;
        self.pause = (self.pause * 2).min(LONG_PAUSE);
        is_calm
    }
}

/// Threads of the whole machine that run or could, including the calling one, from `/proc/loadavg` (proc(5));
/// `None` when it has no such number.
pub(super) fn runnable(loadavg: &str) -> Option<usize> {
    loadavg.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_in_time_writes_and_who_is_late_waits_longer_and_longer_but_not_for_ever() {
        assert!(Calm::default().handle_pause(PAUSE + LATE / 2, false));
        for (late, is_crowded) in [(LATE, false), (Duration::ZERO, true), (LATE, true)] {
            let mut calm = Calm::default();
            let mut pauses = Vec::new();
            loop {
                pauses.push(calm.pause());
                if calm.handle_pause(calm.pause() + late, is_crowded) {
                    break;
                }
            }
            assert_eq!(pauses[..6], [5, 10, 20, 40, 80, 160].map(Duration::from_millis));
            assert!(pauses[6..].iter().all(|pause| *pause == LONG_PAUSE));
            let waited: Duration = pauses.iter().map(|pause| *pause + late).sum();
            assert!(waited >= PATIENCE && waited < PATIENCE + 2 * LONG_PAUSE, "{waited:?}");
        }
    }

    #[test]
    fn the_kernel_tells_how_many_threads_want_to_go_on() {
        assert_eq!(runnable("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        for not_that in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 many/80 1", "a b c /"] {
            assert_eq!(runnable(not_that), None, "{not_that}");
        }
        let here = std::fs::read_to_string("/proc/loadavg").unwrap();
        assert!(runnable(&here).is_some(), "{here}");
    }
}
