//! What can be seen of the page cache: used, late and unused bytes are observed, never inferred.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::namespaces::User;
use super::{Check, CheckState};

/// `cachestat(2)` has one number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// Where tracefs is mounted, on newer and on older systems.
const TRACEFS: &[&str] = &["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The tracepoints that fire when a page of the cache is read, faulted in or mapped.
const TRACEPOINTS: &[&str] = &["mm_filemap_get_pages", "mm_filemap_fault", "mm_filemap_map_pages"];

pub(super) fn checks(user: User) -> Vec<Check> {
    vec![cachestat(), tracepoints(user)]
}

fn cachestat() -> Check {
    let needed_for = "run, profile: counts pages of the image that are cached";
    // The kernel tells this about other users' files only to root, so the test uses a file of its own.
    match tempfile::tempfile().and_then(|file| count_cached(&file)) {
        Ok(_) => Check::ok("cachestat(2)", "works (called)", needed_for),
        Err(error) => Check::ok("cachestat(2)", format!("failed: {error}"), needed_for)
            .but(CheckState::Degraded, "comes with Linux 6.5; a container's security profile may forbid it"),
    }
}

/// How many pages of the file are in the page cache.
fn count_cached(file: &File) -> io::Result<u64> {
    // struct cachestat_range: offset and length; length 0 means up to the end.
    let range = [0_u64; 2];
    // struct cachestat: cached, dirty, under write-back, evicted, recently evicted.
    let mut counts = [0_u64; 5];
    // SAFETY: the kernel reads two and writes five numbers of 64 bits, which is what the arrays hold.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0_u32) };
    if result == 0 { Ok(counts[0]) } else { Err(io::Error::last_os_error()) }
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

    #[test]
    fn cached_pages_are_counted_where_the_kernel_can() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[1; 8192]).unwrap();
        match count_cached(&file) {
            Ok(pages) => assert!(pages >= 1, "just written, so cached"),
            Err(error) => assert!(
                matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)),
                "{error}"
            ),
        }
    }
}
