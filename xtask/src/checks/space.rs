//! Disks that are full, which fail steps in many ways.

use std::path::{Path, PathBuf};

use super::cargo;

/// With less, what a step writes does not fit.
const LEAST_FREE: u64 = 256 << 20;

/// One line for each folder of the checks whose disk is full.
pub(super) fn full_disks(root: &Path) -> Vec<String> {
    let folders = [cargo::target(root), std::env::temp_dir()];
    let full = folders.into_iter().filter_map(|folder| Some((free(&folder)?, folder)));
    full.filter(|(free, _)| *free < LEAST_FREE).map(|(free, folder)| line(free, &folder)).collect()
}

fn line(free: u64, folder: &Path) -> String {
    let mib = free >> 20;
    format!("the disk of {} is full: {mib} MiB are free; make room, and run the same again", folder.display())
}

/// Bytes that are free for files in a folder.
fn free(folder: &Path) -> Option<u64> {
    // Where nothing was made yet, its parent has the disk.
    let there: PathBuf = folder.ancestors().find(|path| path.exists())?.to_owned();
    let disk = rustix::fs::statvfs(there).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named() {
        assert_eq!(
            line(3 << 20, Path::new("/a")),
            "the disk of /a is full: 3 MiB are free; make room, and run the same again"
        );
        assert!(free(&std::env::temp_dir().join("none/at/all")).is_some_and(|free| free > 0));
        assert!(free(Path::new("/dev/full")).is_some());
    }
}
