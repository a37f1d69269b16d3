//! A boot: what the service does.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hs_accelerate::{Ending, EndingStep, PageList, Restraint};
use serde::{Deserialize, Serialize};

use crate::kept::write_private;
use crate::machine::ProcessorTime;
use crate::{
    Before, EarlyError, KeptList, OnlyOne, Recording, Root, Switch, Warmed, Warming, Watch, machine,
};

/// In an initramfs this program begins before the kernel's file systems, and /run, are where the system will
/// have them. A slow machine needs long for what is left of its initramfs.
const KERNELS_OWN: [&str; 2] = ["/proc/self/mountinfo", "/sys/kernel"];
const RUN: &str = "/run";
const PATIENCE: Duration = Duration::from_secs(60);
/// Where the kernel's own are there from the beginning on, /run may still be on its way, or be a folder of
/// the root.
const RUN_PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);
/// Pages are judged when they should have been used so long ago: a start that reads ahead is not slower than
/// the recorded one.
const GRACE_MS: u64 = 5_000;

/// See setpriority(2).
const NICENESS: i32 = -5;

/// How a boot's service ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BootEnd {
    /// It is switched off.
    Off,
    /// Another process does it already: that of the initramfs.
    Already,
    /// It was told to end, or was switched off meanwhile.
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
    /// How many of these pages were used until the end; nothing where that is not seen.
    pub used_pages: Option<u64>,
    /// Seconds that were recorded; nothing where the kernel does not show what comes.
    pub recorded_s: Option<f64>,
    /// The processors' time that asking and recording took, in seconds, and all that the machine took since
    /// it was switched on.
    #[serde(default)]
    pub processor_s: f64,
    /// See `processor_s`.
    #[serde(default)]
    pub machine_processor_s: f64,
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
    wait_for_what_moves();
    let Some(_only_one) = OnlyOne::take()? else { return Ok(BootEnd::Already) };
    // Ahead of the boot: it waits for the disk nearly all the time.
    let _ = rustix::process::setpriority_process(None, NICENESS);
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
    let mut goes_on = || switch.is_on() && !machine::is_going_down() && !is_told_to_end();
    // What was recorded until now, beside what was known before this boot.
    let keep = |recording: &Recording| {
        let mut list = (*list).clone();
        recording.merge_into(&root, &mut list, Before::Nothing)?;
        if switch.is_on() { kept.write(&list) } else { Ok(()) }
    };
    let (followed, asked) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| (!list.runs.is_empty()).then(|| warming.run(None)));
        let followed = recording.as_ref().map(|recording| follow(recording, &warming, &mut goes_on, keep));
        if matches!(followed, Ok(Ok(Followed::Idle)) | Err(_)) {
            // What is left of the list is still asked for.
            while warming.is_under_way() && goes_on() {}
        }
        warming.stop(None);
        (followed, asked.join().unwrap_or_default())
    });
    let end = match followed {
        Ok(Ok(Followed::Idle)) => BootEnd::Recorded,
        Ok(Ok(Followed::ToldToEnd)) => return Ok(BootEnd::Ended),
        Ok(Err(error)) => return Err(error),
        Err(_) => BootEnd::AskedOnly,
    };
    last.asked = asked;
    last.used_pages = recording
        .ok()
        .filter(|_| last.asked.is_some())
        .and_then(|recording| used_pages(&recording, &warming));
    last.recorded_s = (end == BootEnd::Recorded).then(|| began.elapsed().as_secs_f64());
    last.processor_s = machine::own_processor_s();
    last.machine_processor_s = ProcessorTime::now().busy_s();
    last.ended_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if switch.is_on() {
        last.write(&switch)?;
    }
    Ok(end)
}

/// How many of the pages that were asked for were used.
fn used_pages(recording: &Recording, warming: &Warming) -> Option<u64> {
    let asked = warming.due(u64::MAX, 0);
    recording.page_ins().usage(asked.into_iter()).ok().map(|(_, used)| used)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Followed {
    Idle,
    ToldToEnd,
}

/// Follows the boot, second by second, until the machine is idle. What is recorded is kept at the first idle
/// moment, and anew at the end: the machine may be switched off before its user comes.
fn follow(
    recording: &Recording,
    warming: &Warming,
    goes_on: &mut impl FnMut() -> bool,
    keep: impl Fn(&Recording) -> Result<(), EarlyError>,
) -> Result<Followed, EarlyError> {
    let (began, mut ending) = (Instant::now(), Ending::default());
    let mut watch = Watch::start(recording);
    let mut is_kept = false;
    loop {
        if !goes_on() {
            return Ok(Followed::ToldToEnd);
        }
        match ending.second(watch.second(recording, machine::has_session())) {
            EndingStep::Record => recording.page_ins().leave_out_others(false),
            EndingStep::Wait => {
                recording.page_ins().leave_out_others(true);
                if !is_kept {
                    keep(recording)?;
                    is_kept = true;
                }
            }
            EndingStep::End => return keep(recording).map(|()| Followed::Idle),
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

/// The lock is in /run: taken on the root's own folder, it would be covered when that of the initramfs comes.
fn wait_for_what_moves() {
    let began = Instant::now();
    let device = |path: &str| Path::new(path).metadata().map(|found| found.dev()).ok();
    let is_kernels_own_there = || KERNELS_OWN.iter().all(|path| Path::new(path).exists());
    let is_run_there = || device(RUN).is_some_and(|of_run| Some(of_run) != device("/"));
    let patience = if is_kernels_own_there() { RUN_PATIENCE } else { PATIENCE };
    while !(is_kernels_own_there() && is_run_there()) && began.elapsed() < patience {
        std::thread::sleep(PAUSE);
    }
}
