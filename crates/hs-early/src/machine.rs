//! What the machine is doing: memory, processors, users, power.

use std::fs;
use std::path::{Path, PathBuf};

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
    on_battery(Path::new("/sys/class/power_supply"))
}

/// The folder is as the kernel's Documentation/ABI/testing/sysfs-class-power has it.
fn on_battery(folder: &Path) -> Option<bool> {
    let read = |supply: &Path, name: &str| {
        fs::read_to_string(supply.join(name)).unwrap_or_default().trim().to_owned()
    };
    let supplies = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    // That of a mouse or a pen says nothing of the machine.
    let supplies: Vec<_> = supplies.filter(|supply| read(supply, "scope") != "Device").collect();
    let of = |kind: &str| -> Vec<&PathBuf> {
        supplies.iter().filter(|supply| read(supply, "type").starts_with(kind)).collect()
    };
    let (batteries, chargers) = (of("Battery"), [of("Mains"), of("USB")].concat());
    if batteries.is_empty() {
        return None;
    }
    // One means connected, two connected with a voltage that can be chosen.
    if chargers.iter().any(|charger| matches!(read(charger, "online").as_str(), "1" | "2")) {
        return Some(false);
    }
    let is_one =
        |states: &[&str]| batteries.iter().any(|each| states.contains(&read(each, "status").as_str()));
    if is_one(&["Discharging"]) {
        return Some(true);
    }
    // Not every charger is a supply of its own.
    Some(!chargers.is_empty() && !is_one(&["Charging", "Full", "Not charging"]))
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

/// The processor's time that this process has taken, in seconds, without what it has started.
#[must_use]
pub fn own_processor_s() -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found where these supplies are, each with what its files say.
    fn found(supplies: &[&[(&str, &str)]]) -> Option<bool> {
        let folder = tempfile::tempdir().expect("a folder");
        for (number, files) in supplies.iter().enumerate() {
            let supply = folder.path().join(number.to_string());
            fs::create_dir(&supply).expect("a folder");
            for (name, says) in *files {
                fs::write(supply.join(name), format!("{says}\n")).expect("written");
            }
        }
        on_battery(folder.path())
    }

    #[test]
    fn a_battery_is_used_when_nothing_else_is_there() {
        let battery = |status| [("type", "Battery"), ("status", status)];
        let mains = |online| [("type", "Mains"), ("online", online)];
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[&mains("1")]), None, "no battery");
        assert_eq!(found(&[&battery("Discharging"), &mains("0")]), Some(true));
        assert_eq!(found(&[&battery("Charging"), &mains("1")]), Some(false));
        // One that keeps its charge at a threshold, with another supply.
        assert_eq!(found(&[&battery("Not charging"), &[("type", "USB_PD"), ("online", "2")]]), Some(false));
        assert_eq!(found(&[&battery("Unknown"), &mains("0")]), Some(true));
        // Without a supply that tells of the charger.
        assert_eq!(found(&[&battery("Discharging")]), Some(true));
        assert_eq!(found(&[&battery("Full")]), Some(false));
        assert_eq!(found(&[&battery("Full"), &battery("Discharging"), &mains("0")]), Some(true));
        // A mouse.
        assert_eq!(found(&[&[("type", "Battery"), ("status", "Discharging"), ("scope", "Device")]]), None);
        assert_eq!(on_battery(Path::new("/nonexistent")), None);
    }
}
