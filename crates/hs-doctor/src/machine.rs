//! Memory, its limits, and cores.

use std::path::PathBuf;

use hs_units::ByteSize;

use crate::{Check, CheckState};

const MIB: u64 = 1 << 20;
/// The server's own memory, its default budget and room for the pages it pushes.
const COMFORTABLE_BYTES: u64 = 512 * MIB;

pub(crate) fn checks() -> Vec<Check> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    vec![judge_memory(available_bytes(&meminfo)), judge_cgroup(memory_group(&cgroups)), judge_cores(cores)]
}

fn judge_memory(available: Option<u64>) -> Check {
    let needed_for = "run, mount: pushed blocks stay cached; build: chunks in flight";
    let Some(available) = available else {
        return Check::ok("memory", "unknown", needed_for)
            .but(CheckState::Degraded, "/proc/meminfo cannot be read");
    };
    let check = Check::ok("memory", format!("{} available", ByteSize(available)), needed_for);
    if available >= COMFORTABLE_BYTES {
        return check;
    }
    check.but(CheckState::Degraded, "a small memory budget leaves room for the program that is started")
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The memory cgroup that this process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MemoryGroup {
    version: u8,
    /// File with the limit in bytes, or `max`.
    limit_file: PathBuf,
}

/// Finds the memory cgroup in `/proc/self/cgroup`: a line with the controller in version 1, the line
/// that begins with `0::` in version 2. A system with both keeps memory in version 1.
fn memory_group(cgroups: &str) -> Option<MemoryGroup> {
    let fields = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.trim_start_matches('/').to_owned()))
    };
    let lines: Vec<(String, String)> = cgroups.lines().filter_map(fields).collect();
    if let Some((_, path)) = lines.iter().find(|(names, _)| names.split(',').any(|name| name == "memory")) {
        let limit_file = PathBuf::from("/sys/fs/cgroup/memory").join(path).join("memory.limit_in_bytes");
        return Some(MemoryGroup { version: 1, limit_file });
    }
    let (_, path) = lines.iter().find(|(names, _)| names.is_empty())?;
    Some(MemoryGroup {
        version: 2,
        limit_file: PathBuf::from("/sys/fs/cgroup").join(path).join("memory.max"),
    })
}

fn judge_cgroup(group: Option<MemoryGroup>) -> Check {
    let needed_for = "run, mount: pushed pages are charged to the server's cgroup";
    let Some(group) = group else {
        return Check::ok("memory cgroup", "none", needed_for);
    };
    match std::fs::read_to_string(&group.limit_file) {
        Ok(text) => judge_limit(group.version, parse_limit(&text), needed_for),
        // The root group has no limit and, in version 2, no file for one.
        Err(_) => {
            Check::ok("memory cgroup", format!("version {}, no limit to be seen", group.version), needed_for)
        }
    }
}

fn judge_limit(version: u8, limit: Option<u64>, needed_for: &'static str) -> Check {
    let Some(limit) = limit else {
        return Check::ok("memory cgroup", format!("version {version}, no limit"), needed_for);
    };
    let check =
        Check::ok("memory cgroup", format!("version {version}, limit {}", ByteSize(limit)), needed_for);
    if limit >= COMFORTABLE_BYTES {
        return check;
    }
    check.but(
        CheckState::Degraded,
        "raise the limit, or expect pushed pages to be dropped before they are used",
    )
}

/// A limit in bytes; `None` for none, which version 1 writes as a number near 2^63.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|limit| *limit < 1 << 62)
}

fn judge_cores(cores: usize) -> Check {
    let check =
        Check::ok("cores", cores.to_string(), "run, mount: decompress while the next read is under way");
    if cores >= 2 {
        return check;
    }
    check.but(CheckState::Degraded, "with one core, decompression delays the program that is started")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 * MIB));
        assert_eq!(available_bytes("MemAvailable: many kB\n"), None);
        assert_eq!(available_bytes(""), None);
    }

    #[test]
    fn the_memory_group_is_found_in_both_versions() {
        let v1 = memory_group("4:memory:/a/b\n0::/\n").unwrap();
        assert_eq!(v1.limit_file, PathBuf::from("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"));
        let v2 = memory_group("0::/user.slice/x:y\n").unwrap();
        assert_eq!(
            (v2.version, v2.limit_file),
            (2, PathBuf::from("/sys/fs/cgroup/user.slice/x:y/memory.max"))
        );
        assert_eq!(memory_group("8:pids:/\n"), None);
    }

    #[test]
    fn limits_are_numbers_or_none() {
        assert_eq!(parse_limit("1048576\n"), Some(MIB));
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("9223372036854771712\n"), None);
    }

    #[test]
    fn little_memory_a_low_limit_and_one_core_are_limits() {
        assert_eq!(judge_memory(Some(100 * MIB)).state, CheckState::Degraded);
        assert_eq!(judge_memory(Some(1024 * MIB)).state, CheckState::Ok);
        assert_eq!(judge_limit(2, Some(100 * MIB), "x").state, CheckState::Degraded);
        assert_eq!(judge_limit(2, None, "x").state, CheckState::Ok);
        assert_eq!(judge_cores(1).state, CheckState::Degraded);
    }
}
