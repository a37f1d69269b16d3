//! A user namespace: a user who is not root may mount in it, as a root without rights outside.

use std::fs;
use std::io;

use crate::LinuxError;

/// Puts the calling process, which must have one thread, into a user namespace where its user and group
/// are root, and no others exist.
pub(super) fn enter() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: CLONE_NEWUSER changes what this process is allowed; no descriptor or memory is affected.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // user_namespaces(7): without privilege, groups can be mapped only after giving up to change them.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// True when this process is not in the machine's first user namespace: the kernel then mounts no file
/// system of a disk for it, whatever its user is called.
#[must_use]
pub fn is_in_one() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !maps_all(&map))
}

/// Only the first namespace maps all users, to themselves.
fn maps_all(uid_map: &str) -> bool {
    uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

pub(super) fn refused(source: io::Error) -> LinuxError {
    LinuxError::UserNamespace { source, advice: advice() }
}

/// What to do when a user namespace, or mounting in it, is refused: by what the kernel's settings say.
#[must_use]
pub fn advice() -> &'static str {
    let reads =
        |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|setting| setting.trim() == value);
    if reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor restricts user namespaces (Ubuntu 24.04 does): run as root, or \
         sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    } else if reads("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "run as root, or sysctl kernel.unprivileged_userns_clone=1"
    } else if reads("/proc/sys/user/max_user_namespaces", "0") {
        "run as root, or sysctl user.max_user_namespaces=10000"
    } else {
        "run as root; a container's security profile may forbid it"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_namespace_maps_all_users() {
        assert!(maps_all("         0          0 4294967295\n"));
        for other in ["0 65534 1\n", "0 1000 1\n1 100000 65536\n", "0 0 65536\n", ""] {
            assert!(!maps_all(other), "{other}");
        }
    }
}
