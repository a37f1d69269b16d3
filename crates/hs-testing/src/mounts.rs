//! A table of mounts that stays as it is while a test compares it.

use std::fs;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};

/// In a mount namespace of this thread: keeps what the machine mounts meanwhile out of its table, and takes
/// out the mounts of other tests, which end when their folders are removed.
///
/// # Panics
/// If the namespace is not this thread's own.
pub fn keep_mounts_apart() {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .expect("mounts of its own");
    let table = fs::read("/proc/thread-self/mountinfo").expect("mounts");
    let folder = std::env::temp_dir();
    for line in String::from_utf8_lossy(&table).lines().rev() {
        let target = Path::new(line.split(' ').nth(4).unwrap_or_default());
        if target != folder && target.starts_with(&folder) {
            let _ = unmount(target, UnmountFlags::DETACH);
        }
    }
}
