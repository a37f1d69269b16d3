//! What can be seen of the page cache: used, late and unused bytes are observed, never inferred.

use std::path::Path;

use crate::namespaces::User;
use crate::{Check, CheckState};

/// Where tracefs is mounted, on newer and on older systems.
const TRACEFS: &[&str] = &["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The tracepoints that fire when a page of the cache is read, faulted in or mapped.
const TRACEPOINTS: &[&str] = &["mm_filemap_get_pages", "mm_filemap_fault", "mm_filemap_map_pages"];

/// The one that fires when a page comes into the cache.
const RECORDS: &str = "mm_filemap_add_to_page_cache";
/// Name of a check.
pub(crate) const RECORDING: &str = "recorded starts of systems";

pub(crate) fn checks(user: User) -> Vec<Check> {
    let root = TRACEFS.iter().map(Path::new).find(|path| path.join("events").is_dir());
    vec![cachestat(), judge_tracepoints(root, user.is_root()), judge_recording(root, user.is_root())]
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

fn judge_tracepoints(tracefs: Option<&Path>, is_root: bool) -> Check {
    let name = "page cache tracepoints";
    let needed_for = "run, profile as root: sees which pushed pages are used";
    let Some(tracefs) = tracefs else {
        let advice = "run as root: without it, what became of prefetched bytes is not observed";
        let (found, advice) = without_tracefs(is_root, advice);
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

fn judge_recording(tracefs: Option<&Path>, is_root: bool) -> Check {
    let needed_for = "accelerate, media that record themselves: sees which pages a start reads";
    let Some(tracefs) = tracefs else {
        let (found, advice) = without_tracefs(is_root, "run as root");
        return Check::ok(RECORDING, found, needed_for).but(CheckState::Missing, advice);
    };
    if tracefs.join("events/filemap").join(RECORDS).is_dir() {
        return Check::ok(RECORDING, format!("{RECORDS} in {}", tracefs.display()), needed_for);
    }
    Check::ok(RECORDING, format!("not there: {RECORDS}"), needed_for)
        .but(CheckState::Missing, "a kernel with CONFIG_FTRACE and CONFIG_EVENT_TRACING")
}

/// What is found and what to do where tracefs is not seen.
const fn without_tracefs(is_root: bool, otherwise: &str) -> (&'static str, &str) {
    if is_root {
        ("no tracefs", "mount -t tracefs tracefs /sys/kernel/tracing")
    } else {
        ("tracefs is not readable", otherwise)
    }
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
        assert_eq!(judge_recording(Some(folder.path()), true).state, CheckState::Missing);
        std::fs::create_dir(events.join(RECORDS)).unwrap();
        assert_eq!(judge_recording(Some(folder.path()), true).state, CheckState::Ok);
        let user = judge_recording(None, false);
        assert_eq!((user.state, user.advice.as_str()), (CheckState::Missing, "run as root"));
    }
}
