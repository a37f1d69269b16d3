//! What the machine is doing: memory, processors, users, power.

use std::fs;
use std::path::Path;

/// Memory that is available and that there is, in bytes; `None` where the kernel does not say.
#[must_use]
pub fn memory() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    Some((kib("MemAvailable:")? << 10, kib("MemTotal:")? << 10))
}

/// Whether the machine runs on its battery; `None` where it has none.
#[must_use]
pub fn is_on_battery() -> Option<bool> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let supplies: Vec<_> = fs::read_dir("/sys/class/power_supply").ok()?.flatten().collect();
    let of = |kind: &str| {
        let of_kind = |path: &Path| read(&path.join("type")).is_some_and(|text| text.trim() == kind);
        supplies.iter().map(fs::DirEntry::path).filter(|path| of_kind(path)).collect::<Vec<_>>()
    };
    if of("Battery").is_empty() {
        return None;
    }
    let is_online = |path: &Path| read(&path.join("online")).is_some_and(|text| text.trim() == "1");
    Some(!["Mains", "USB"].iter().flat_map(|kind| of(kind)).any(|path| is_online(&path)))
}

/// The processors' time so far, all, idle and waiting for the disk, in ticks.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ProcessorTime {
    all: u64,
    idle: u64,
    waiting: u64,
}

/// /proc/stat counts in hundredths of a second.
const TICKS_A_SECOND: f64 = 100.0;

impl ProcessorTime {
    /// The first line of /proc/stat: user, nice, system, idle, iowait, …
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let numbers = text.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
        let ticks: Vec<u64> = numbers.take(8).filter_map(|ticks| ticks.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        Self { all: ticks.iter().sum(), idle: at(3), waiting: at(4) }
    }

    /// Seconds of work.
    pub(crate) fn busy_s(self) -> f64 {
        self.all.saturating_sub(self.idle + self.waiting) as f64 / TICKS_A_SECOND
    }

    /// The share that was idle since `earlier`, in percent.
    pub(crate) fn idle_percent_since(self, earlier: Self) -> u8 {
        let all = self.all.saturating_sub(earlier.all);
        let idle = self.idle.saturating_sub(earlier.idle);
        (idle * 100).checked_div(all).map_or(100, |percent| percent.min(100) as u8)
    }
}

/// The processor's time that this process has taken, in seconds.
pub(crate) fn own_processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Whether a user is logged in, as logind has it; the greeter of a display manager is none.
pub(crate) fn has_session() -> bool {
    let Ok(sessions) = fs::read_dir("/run/systemd/sessions") else { return false };
    sessions.flatten().any(|session| {
        fs::read_to_string(session.path())
            .is_ok_and(|text| text.lines().any(|line| line == "CLASS=user" || line == "CLASS=user-early"))
    })
}

/// Whether systemd has ended everything else, and only unmounts: it does not tell those whose name keeps them
/// from being ended.
pub(crate) fn is_going_down() -> bool {
    fs::read_to_string("/proc/1/comm").is_ok_and(|name| name.starts_with("systemd-shut"))
}
