//! What can be seen of the page cache: used, late and unused bytes are observed, never inferred.

use std::path::Path;

use crate::namespaces::User;
use crate::{Check, CheckState};

/// Where tracefs is mounted, on newer and on older systems.
const TRACEFS: &[&str] = &["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The tracepoints that fire when a page of the cache is read, faulted in or mapped.
const TRACEPOINTS: &[&str] = &["mm_filemap_get_pages", "mm_filemap_fault", "mm_filemap_map_pages"];

pub(crate) fn checks(user: User) -> Vec<Check> {
    vec![cachestat(), tracepoints(user)]
}

fn cachestat() -> Check {
    let needed_for = "run, profile: counts pages of the image that are cached";
    // The kernel tells this about other users' files only to root, so the test uses a file of its own.
    match tempfile::tempfile().and_then(|file| hs_linux::count_cached(&file)) {
        Ok(_) => Check::ok("cachestat(2)", "works (called)", needed_for),
        Err(error) => Check::ok("cachestat(2)", format!("failed: {error}"), needed_for)
            .but(CheckState::Degraded, "comes with Linux 6.5; a container's security profile may forbid it"),
    }
}

fn tracepoints(user: User) -> Check {
    let root = TRACEFS.iter().map(Path::new).find(|path| path.join("events").is_dir());
    judge_tracepoints(root, user.is_root())
}

fn judge_tracepoints(tracefs: Option<&Path>, is_root: bool) -> Check {
    let name = "page cache tracepoints";
    let needed_for = "run, profile as root: sees which pushed pages are used";
    let Some(tracefs) = tracefs else {
        let (found, advice) = if is_root {
            ("no tracefs", "mount -t tracefs tracefs /sys/kernel/tracing")
        } else {
            (
                "tracefs is not readable",
                "run as root: without it, what became of prefetched bytes is not observed",
            )
        };
        return Check::ok(name, found, needed_for).but(CheckState::Degraded, advice);
    };
    let missing: Vec<&str> = TRACEPOINTS
        .iter()
        .copied()
        .filter(|tracepoint| !tracefs.join("events/filemap").join(tracepoint).is_dir())
        .collect();
    if missing.is_empty() {
        return Check::ok(name, format!("all three in {}", tracefs.display()), needed_for);
    }
    Check::ok(name, format!("not there: {}", missing.join(", ")), needed_for)
        .but(CheckState::Degraded, "newer kernels have them, see docs/KERNELS.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracepoints_are_looked_for_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let events = folder.path().join("events/filemap");
        for tracepoint in &TRACEPOINTS[..2] {
            std::fs::create_dir_all(events.join(tracepoint)).unwrap();
        }
        let check = judge_tracepoints(Some(folder.path()), true);
        assert_eq!(
            (check.state, check.found.as_str()),
            (CheckState::Degraded, "not there: mm_filemap_map_pages")
        );
        std::fs::create_dir(events.join(TRACEPOINTS[2])).unwrap();
        assert_eq!(judge_tracepoints(Some(folder.path()), true).state, CheckState::Ok);
        assert_eq!(judge_tracepoints(None, false).state, CheckState::Degraded);
    }
}
