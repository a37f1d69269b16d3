//! The processes of a command now: proc(5), `stat` and `children`.

use std::fs;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// More processes than this are not looked at.
const MOST: usize = 4096;

/// A process that lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessNow {
    /// Its number on this machine.
    pub pid: u32,
    /// That of its parent.
    pub parent: u32,
    /// Its name: at most 15 bytes, which may be anything.
    pub name: String,
    /// The time that it has had a processor, without its children; exact to a hundredth of a second.
    pub cpu: Duration,
}

/// What `init` has started, and what that has started, without `init` itself: a process whose parent ended
/// becomes a child of `init`, so all are found. `None` once `init` is gone.
pub(super) fn below(init: BorrowedFd<'_>) -> Option<Vec<ProcessNow>> {
    let mut open = children(super::cpu_time::pid_of(init)?)?;
    let mut found = Vec::new();
    while let Some(pid) = open.pop() {
        if found.len() == MOST {
            break;
        }
        // It may have ended meanwhile.
        let Some(process) = fs::read(format!("/proc/{pid}/stat")).ok().and_then(|stat| parse(pid, &stat))
        else {
            continue;
        };
        found.push(process);
        open.extend(children(pid).unwrap_or_default());
    }
    Some(found)
}

/// Those that any of its threads has started.
fn children(pid: u32) -> Option<Vec<u32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    Some(
        lists
            .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect(),
    )
}

fn parse(pid: u32, stat: &[u8]) -> Option<ProcessNow> {
    let stat = String::from_utf8_lossy(stat);
    let (before, fields) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let mut fields = fields.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let mut times = fields.skip(9).map(|field| field.parse::<u64>().ok());
    let ticks = times.next()?? + times.next()??;
    let cpu = Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1));
    Some(ProcessNow { pid, parent, name, cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_anything() {
        let stat = b"17 (a) b (c \xff) S 4 1 1 0 -1 4194560 100 0 0 0 10 20 300 4000 20 0 1 0 5 0 0";
        let found = parse(17, stat).expect("a process");
        assert_eq!((found.pid, found.parent, found.name.as_str()), (17, 4, "a) b (c \u{fffd}"));
        assert_eq!(found.cpu, Duration::from_millis(300));
        assert_eq!(parse(17, b"17 (a) S 1 1 1 0"), None);
        assert_eq!(parse(17, b""), None);
    }

    #[test]
    fn children_of_this_process_are_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let found = children(std::process::id()).expect("this process is there");
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(found.contains(&child.id()), "{found:?}");
    }
}
