//! A boot: what the service does.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hs_accelerate::{Ending, EndingStep, PageList, Restraint};
use serde::{Deserialize, Serialize};

use crate::kept::write_private;
use crate::switch::lock;
use crate::{EarlyError, KeptList, Recording, Root, Switch, Warmed, Warming, Watch, machine};

/// In an initramfs this program begins before /proc is where the system will have it.
const PROC_PATIENCE: Duration = Duration::from_secs(10);
const PROC_PAUSE: Duration = Duration::from_millis(5);
/// Pages are judged when they should have been used so long ago: a start that reads ahead is not slower than
/// the recorded one.
const GRACE_MS: u64 = 5_000;

/// How a boot's service ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BootEnd {
    /// It is switched off.
    Off,
    /// Another process does it already: that of the initramfs.
    Already,
    /// It was told to end, or was switched off meanwhile: nothing was kept.
    Ended,
    /// The boot was recorded, and the list is kept.
    Recorded,
    /// Pages were asked for, and the boot could not be recorded.
    AskedOnly,
}

/// What the last boot's service did, for people.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct LastBoot {
    /// When it ended, in seconds since 1970.
    pub ended_s: u64,
    /// What was asked for; nothing at the first boot.
    pub asked: Option<Warmed>,
    /// Seconds that were recorded; nothing where the kernel does not show what comes.
    pub recorded_s: Option<f64>,
    /// What went wrong.
    pub problem: Option<String>,
}

impl LastBoot {
    const NAME: &str = "last.json";
    /// More is not read.
    const MAX_BYTES: usize = 64 << 10;

    /// What is kept of the last boot; nothing when that cannot be read.
    #[must_use]
    pub fn read(switch: &Switch) -> Option<Self> {
        let bytes = std::fs::read(switch.folder().join(Self::NAME)).ok()?;
        serde_json::from_slice(&bytes[..bytes.len().min(Self::MAX_BYTES)]).ok()
    }

    fn write(&self, switch: &Switch) -> Result<(), EarlyError> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        write_private(&switch.folder().join(Self::NAME), &text)
    }
}

/// Asks for the pages of the list, records the boot and keeps it, until the machine is idle. `is_told_to_end`
/// waits for up to a second.
///
/// # Errors
/// What keeps it from doing anything at all; a list that cannot be used is said in the log and made anew.
pub fn boot(mut is_told_to_end: impl FnMut() -> bool) -> Result<BootEnd, EarlyError> {
    let switch = Switch::of(Path::new("/"));
    if !switch.is_on() {
        return Ok(BootEnd::Off);
    }
    let Some(_lock) = lock().map_err(EarlyError::io("lock", "headstart-accelerate"))? else {
        return Ok(BootEnd::Already);
    };
    wait_for_proc();
    let root = Arc::new(Root::open(Path::new("/"))?);
    let kept = KeptList::of(&root);
    let mut last = LastBoot::default();
    let list = kept.read(&root).unwrap_or_else(|error| {
        log::warn!("{error}");
        last.problem = Some(error.to_string());
        None
    });
    let list = Arc::new(list.unwrap_or_else(|| PageList::empty(root.identity)));
    let recording = Recording::start(&root).inspect_err(|error| {
        log::warn!("{error}");
        last.problem = Some(error.to_string());
    });
    let began = Instant::now();
    let warming = Warming::new(Arc::clone(&root), Arc::clone(&list));
    let goes_on = || switch.is_on() && !is_told_to_end();
    let (ended, asked) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| (!list.runs.is_empty()).then(|| warming.run(None)));
        let ended = match &recording {
            Ok(recording) => follow(recording, &warming, goes_on),
            Err(_) => Followed::Idle,
        };
        if ended == Followed::ToldToEnd {
            warming.stop(None);
        }
        (ended, asked.join().unwrap_or_default())
    });
    if ended == Followed::ToldToEnd || !switch.is_on() {
        return Ok(BootEnd::Ended);
    }
    last.asked = asked;
    let mut end = BootEnd::AskedOnly;
    if let Ok(recording) = recording {
        last.recorded_s = Some(began.elapsed().as_secs_f64());
        let mut list = Arc::unwrap_or_clone(list);
        recording.finish(&root, &mut list)?;
        kept.write(&list)?;
        end = BootEnd::Recorded;
    }
    last.ended_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    last.write(&switch)?;
    Ok(end)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Followed {
    Idle,
    ToldToEnd,
}

/// Follows the boot, second by second, until the machine is idle.
fn follow(recording: &Recording, warming: &Warming, mut goes_on: impl FnMut() -> bool) -> Followed {
    let (began, mut ending) = (Instant::now(), Ending::default());
    let mut watch = Watch::start(recording);
    loop {
        if !goes_on() {
            return Followed::ToldToEnd;
        }
        match ending.second(watch.second(recording, machine::has_session())) {
            EndingStep::Record => recording.page_ins().leave_out_others(false),
            EndingStep::Wait => recording.page_ins().leave_out_others(true),
            EndingStep::End => return Followed::Idle,
        }
        if !warming.is_under_way() {
            continue;
        }
        let now_ms = began.elapsed().as_millis() as u64;
        let usage = recording.page_ins().usage(warming.due(now_ms, GRACE_MS).into_iter());
        if let Ok((due, used)) = usage
            && let Some(reason) = Restraint::usage(due, used)
        {
            warming.stop(Some(reason));
        }
    }
}

fn wait_for_proc() {
    let began = Instant::now();
    while !Path::new("/proc/self/mountinfo").exists() && began.elapsed() < PROC_PATIENCE {
        std::thread::sleep(PROC_PAUSE);
    }
}
