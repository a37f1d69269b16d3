//! FUSE: the front end that shows an image as a file.

use std::fs::OpenOptions;
use std::io;

use crate::namespaces::{User, in_private_mounts};
use crate::trial::{checked, mount};
use crate::{Check, CheckState};

const NEEDED_FOR: &str = "mount, run, profile: shows the disk of an image as a file";

pub(crate) fn checks(user: User) -> Vec<Check> {
    let device = device();
    let works_so_far = device.state == CheckState::Ok;
    let mut checks = vec![device.on_main_path(true)];
    // Without the device a mount can only fail, and its error would say less than the device's.
    if works_so_far {
        checks.push(judge_mount(in_private_mounts(user, mount_once)).on_main_path(true));
    }
    checks
}

fn device() -> Check {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Check::ok("/dev/fuse", "opens", NEEDED_FOR),
        Err(error) => {
            let advice = match error.kind() {
                io::ErrorKind::NotFound => "modprobe fuse; in a container, pass --device /dev/fuse",
                io::ErrorKind::PermissionDenied => {
                    "apt install fuse3 (its udev rule opens it to users), or run as root"
                }
                _ => "modprobe fuse: the kernel has no FUSE",
            };
            Check::ok("/dev/fuse", format!("failed: {error}"), NEEDED_FOR).but(CheckState::Missing, advice)
        }
    }
}

fn judge_mount(outcome: io::Result<()>) -> Check {
    let name = "FUSE mount";
    match outcome {
        Ok(()) => Check::ok(name, "works (tried)", NEEDED_FOR),
        Err(error) => Check::ok(name, format!("failed: {error}"), NEEDED_FOR).but(
            CheckState::Missing,
            "run as root; without root it needs a user namespace, except for mount, which has fusermount3",
        ),
    }
}

/// Mounts a FUSE file system without a server, over the tmpfs of the child's own namespace. The kernel does
/// not wait for an answer, and the end of the child removes the mount.
fn mount_once() -> io::Result<()> {
    const DESCRIPTOR: libc::c_int = 100;
    // SAFETY: the path is a C string; the descriptors belong to this child, which ends at once.
    unsafe {
        let device = checked(libc::open(c"/dev/fuse".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC))?;
        checked(libc::dup2(device, DESCRIPTOR))?;
    }
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_RDONLY;
    mount(c"fuse", c"/tmp", flags, c"fd=100,rootmode=40000,user_id=0,group_id=0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_mount_is_missing() {
        let check = judge_mount(Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(check.state, CheckState::Missing);
        assert!(check.found.starts_with("failed"));
    }

    #[test]
    fn a_failed_mount_names_the_kernels_error() {
        // Options without a descriptor: the kernel, or the lack of rights, must refuse them.
        assert!(mount(c"fuse", c"/nonexistent", 0, c"").is_err());
    }
}
