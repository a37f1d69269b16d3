//! Figures about the memory of this process.

/// The largest resident set of this process so far.
pub fn peak_rss_bytes() -> Option<u64> {
    memory_bytes("VmHWM")
}

/// Resets the largest resident set, so that a later one is that of the work from now on.
pub fn reset_peak_rss() {
    // See proc_pid_clear_refs(5). Where it is not allowed the peak is that of the whole process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// A figure about this process's memory, by its name in proc_pid_status(5).
pub fn memory_bytes(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
