//! The machine, described beside its figures.

use std::fs;

use serde::Serialize;

/// The facts about the machine that its figures depend on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) cpu: String,
    pub(super) memory_bytes: Option<u64>,
    pub(super) kernel: String,
    /// What else it did when the demo began: processes that ran or waited for a disk, over the last minute.
    pub(super) load_before: Option<f64>,
}

impl Machine {
    /// This one.
    pub(super) fn here() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: cpu(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            memory_bytes: memory_bytes(&meminfo),
            kernel: version(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()),
            load_before: load(&fs::read_to_string("/proc/loadavg").unwrap_or_default()),
        }
    }
}

/// The version of a kernel alone: what builders add to it may name a host.
fn version(release: &str) -> String {
    release.trim().split('-').next().unwrap_or_default().to_owned()
}

fn load(loadavg: &str) -> Option<f64> {
    loadavg.split(' ').next()?.parse().ok()
}

/// The name of the first processor; other architectures than x86 do not always give one.
fn cpu(cpuinfo: &str) -> String {
    let name =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.trim_start().strip_prefix(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |name| name.trim().to_owned())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_named_without_what_its_builder_added() {
        assert_eq!(["6.18.44-host-7\n", "6.1"].map(version), ["6.18.44", "6.1"]);
    }

    #[test]
    fn processors_and_memory_are_read() {
        assert_eq!(cpu("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(cpu("processor\t: 0\n"), std::env::consts::ARCH);
        assert_eq!(memory_bytes("MemTotal:    2048 kB\n"), Some(2 << 20));
        assert_eq!(memory_bytes(""), None);
        assert_eq!(load("10.25 9.00 8.00 3/400 77\n"), Some(10.25));
        assert_eq!(load(""), None);
    }
}
