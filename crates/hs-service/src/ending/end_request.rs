//! What happens when a command is told to end and cannot, because it waits for its disk.

use std::os::fd::OwnedFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// How long a command that was told to end may wait for its disk.
const PATIENCE: Duration = Duration::from_secs(2);
/// Signals that come together count as one: timeout(1) sends one to a process and one to its group.
const ONE_WORD: Duration = Duration::from_secs(1);
/// A command that is still there after so long, and does not wait for its disk, was not meant to end.
const MEMORY: Duration = Duration::from_secs(5);
/// A read that has waited so long may never be answered.
const STUCK: Duration = Duration::from_secs(1);
/// How often it is checked whether a read waits.
const LOOK: Duration = Duration::from_millis(200);

/// Whether a signal was passed on to a command of this process.
static WAS_TOLD: AtomicBool = AtomicBool::new(false);

type Act = Box<dyn Fn() + Send>;

/// The means to end a command that was told to end.
#[derive(Default)]
struct Means {
    /// When that was.
    since: Option<Instant>,
    /// Whether a read of the disk has waited so long.
    waits: Option<Box<dyn Fn(Duration) -> bool + Send>>,
    /// Fails reads that wait for the disk.
    close: Option<Act>,
    /// Ends the command.
    kill: Option<Act>,
    /// Whether reads of the disk fail.
    is_closed: bool,
}

/// For the one command that gets the signals of this process. Signal handlers belong to the whole process
/// too.
static MEANS: Mutex<Means> =
    Mutex::new(Means { since: None, waits: None, close: None, kill: None, is_closed: false });

/// Watches for INT and TERM, which are passed on to the command. When the command is still there after some
/// seconds in which its disk did not answer, reads of the disk fail. When a signal comes once more, the
/// command is killed. A command whose disk answers may ignore both signals.
pub struct EndRequest(());

impl EndRequest {
    /// Watches from now on, for one command at a time.
    pub fn hear() -> Self {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            if let Err(error) = start() {
                log::warn!("a command that waits for its disk may take long to end: {error}");
            }
        });
        Self(())
    }

    /// Sets, once the disk is known, how to see that a read has waited so long, and how to fail all reads.
    pub fn disk(&self, waits: impl Fn(Duration) -> bool + Send + 'static, close: impl Fn() + Send + 'static) {
        let mut means = MEANS.lock();
        means.waits = Some(Box::new(waits));
        means.close = Some(Box::new(close));
    }

    /// Sets, once the command is known, how to kill it.
    pub fn command(&self, kill: impl Fn() + Send + 'static) {
        MEANS.lock().kill = Some(Box::new(kill));
    }
}

impl Drop for EndRequest {
    fn drop(&mut self) {
        *MEANS.lock() = Means::default();
    }
}

/// Starts the thread, which goes with the process.
fn start() -> std::io::Result<()> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let heard = event.try_clone()?;
    std::thread::Builder::new().name("hs-told".to_owned()).spawn(move || watch(&heard))?;
    hs_linux::rootenv::tell_of_endings(event);
    Ok(())
}

/// Whether a command of this process was told to end. The user then does not want to wait for a store that
/// does not answer.
pub fn was_told() -> bool {
    WAS_TOLD.load(Relaxed)
}

fn watch(heard: &OwnedFd) {
    let look = Timespec::try_from(LOOK).ok();
    loop {
        let timeout = MEANS.lock().since.and(look);
        let came = matches!(poll(&mut [PollFd::new(heard, PollFlags::IN)], timeout.as_ref()), Ok(1..));
        if came {
            let _ = rustix::io::read(heard, &mut [0; 8]);
            WAS_TOLD.store(true, Relaxed);
        }
        MEANS.lock().act(came, Instant::now());
    }
}

impl Means {
    fn act(&mut self, came: bool, now: Instant) {
        let Some(since) = self.since else {
            self.since = came.then_some(now);
            return;
        };
        let elapsed = now.saturating_duration_since(since);
        if came && elapsed >= ONE_WORD {
            if self.is_closed || self.has_waited(STUCK) {
                log::warn!("told to end once more while its disk does not answer: the command is killed");
                self.close();
                self.kill.iter().for_each(|kill| kill());
            } else {
                // A command that handles such signals, as interactive programs do. Its later reads may wait
                // for long.
                self.since = Some(now);
            }
            return;
        }
        if self.is_closed {
            return;
        }
        if elapsed >= PATIENCE && self.has_waited(STUCK) {
            log::warn!("told to end while reads of the disk wait: they fail from now on");
            self.close();
        } else if elapsed >= MEMORY && self.kill.is_some() && !self.has_waited(LOOK) {
            self.since = None;
        }
    }

    fn has_waited(&self, time: Duration) -> bool {
        self.waits.as_ref().is_some_and(|waits| waits(time))
    }

    fn close(&mut self) {
        if let Some(close) = &self.close
            && !std::mem::replace(&mut self.is_closed, true)
        {
            close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// A command, and how long a read of its disk has waited.
    struct Command {
        means: Means,
        began: Instant,
        waited: Arc<AtomicU64>,
        closed: Arc<AtomicBool>,
        killed: Arc<AtomicBool>,
    }

    impl Command {
        fn new() -> Self {
            let waited = Arc::<AtomicU64>::default();
            let [closed, killed] = [(); 2].map(|()| Arc::<AtomicBool>::default());
            let set = |flag: &Arc<AtomicBool>| -> Option<Act> {
                let flag = Arc::clone(flag);
                Some(Box::new(move || flag.store(true, Relaxed)))
            };
            let waits = Arc::clone(&waited);
            let means = Means {
                waits: Some(Box::new(move |time| u128::from(waits.load(Relaxed)) >= time.as_millis())),
                close: set(&closed),
                kill: set(&killed),
                ..Means::default()
            };
            Self { means, began: Instant::now(), waited, closed, killed }
        }

        /// At that moment, in milliseconds, when a read has waited so long; whether the disk is closed, and
        /// the command killed.
        fn at(&mut self, moment: u64, came: bool, waited: u64) -> (bool, bool) {
            self.waited.store(waited, Relaxed);
            self.means.act(came, self.began + Duration::from_millis(moment));
            (self.closed.load(Relaxed), self.killed.load(Relaxed))
        }
    }

    #[test]
    fn a_command_that_goes_on_keeps_its_disk() {
        let mut command = Command::new();
        for moment in (0..100_000).step_by(200) {
            // Signals now and then, also in a row; its reads take a while.
            let came = matches!(moment, 0 | 2_000 | 4_000 | 60_000);
            assert_eq!(command.at(moment, came, moment % 1_000), (false, false), "{moment}");
        }
        // Long after the last signal a read may wait for as long as it takes.
        for waited in [200, 1_000, 20_000] {
            assert_eq!(command.at(100_000 + waited, false, waited), (false, false));
        }
    }

    #[test]
    fn a_command_that_waits_loses_its_disk_and_is_killed_when_told_again() {
        let mut command = Command::new();
        assert_eq!(command.at(0, true, 300), (false, false));
        assert_eq!(command.at(500, true, 800), (false, false), "one word");
        assert_eq!(command.at(1_900, false, 2_200), (false, false));
        assert_eq!(command.at(2_100, false, 2_400), (true, false));
        assert_eq!(command.at(30_000, false, 0), (true, false));
        assert_eq!(command.at(30_200, true, 0), (true, true));

        let mut command = Command::new();
        assert_eq!(command.at(0, true, 5_000), (false, false));
        assert_eq!(command.at(1_200, true, 6_200), (true, true));
    }

    #[test]
    fn a_command_that_has_not_begun_is_told_for_ever() {
        let mut command = Command::new();
        command.means.kill = None;
        assert_eq!(command.at(0, true, 0), (false, false));
        assert_eq!(command.at(9_000, false, 0), (false, false));
        assert_eq!(command.at(12_000, false, 1_000), (true, false));
    }
}
