//! How long the processes of a PID namespace have had a processor: proc(5), fields 14 to 17 of `stat`.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The time of the living processes, and of the processes that they have waited for. `init` is the pidfd of
/// the namespace's first process; `None` when that is gone.
pub(super) fn of_namespace(init: BorrowedFd<'_>) -> Option<Duration> {
    let namespace = namespace_of(pid_of(init)?)?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let members = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| namespace_of(*pid).as_ref() == Some(&namespace));
    let ticks: u64 =
        members.filter_map(|pid| ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).sum();
    let a_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_millis(ticks * 1000 / a_second.max(1)))
}

/// The number of the process that a pidfd is of, while that lives.
pub(super) fn pid_of(pidfd: BorrowedFd<'_>) -> Option<u32> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    about.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

fn namespace_of(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// User and system time, with that of children that were waited for. The second field, a name in parentheses,
/// may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11).take(4);
    let ticks = times.by_ref().map_while(|field| field.parse::<u64>().ok()).collect::<Vec<_>>();
    (ticks.len() == 4).then(|| ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn names_do_not_matter_and_half_a_line_is_nothing() {
        let fields = "S 1 1 1 0 -1 4194560 100 0 0 0 10 20 300 4000 20 0 1 0 5 0 0";
        assert_eq!(ticks(&format!("17 (a) b (c) {fields}")), Some(4330));
        assert_eq!(ticks("17 (a) S 1 1 1 0 -1 4194560 100 0 0 0 10 20"), None);
        assert_eq!(ticks(""), None);
    }
}
