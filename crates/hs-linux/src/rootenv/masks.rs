//! Kernel files that a confined command cannot see, or sees and cannot write: the files that container
//! engines mask. Root could write them without any capability, since root owns them.

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};

/// Seen, and not written: settings, devices, the key that restarts the machine.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Not seen: memory, keys, timings of other processes, firmware, power.
const HIDDEN: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

const READ_ONLY_FLAGS: MountFlags =
    MountFlags::RDONLY.union(MountFlags::NOSUID).union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Masks what the root of this process has of them. Its `/dev/null` stands for files that are hidden.
pub(super) fn put_on() -> Result<(), Errno> {
    for path in READ_ONLY {
        if is_there(mount_bind(path, path))? {
            mount_remount(path, MountFlags::BIND | READ_ONLY_FLAGS, "")?;
        }
    }
    for path in HIDDEN {
        match mount_bind("/dev/null", path) {
            // Not over a directory.
            Err(Errno::NOTDIR) => mount("none", path, "tmpfs", READ_ONLY_FLAGS, c"mode=755,size=0")?,
            done => {
                is_there(done)?;
            }
        }
    }
    Ok(())
}

/// Kernels differ in what they have.
fn is_there(done: Result<(), Errno>) -> Result<bool, Errno> {
    match done {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}
