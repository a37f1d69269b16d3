//! Mount and user namespaces: `run` mounts an image's root in a mount namespace of its own.

use std::ffi::CStr;
use std::io;

use crate::trial::{checked, in_child, mount, write_file};
use crate::{Check, CheckState};

/// Who runs this program, as far as mounting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    uid: libc::uid_t,
    gid: libc::gid_t,
}

impl User {
    pub(crate) fn current() -> Self {
        // SAFETY: these two calls only read numbers and cannot fail.
        unsafe { Self { uid: libc::geteuid(), gid: libc::getegid() } }
    }

    pub(crate) fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// Where the trials mount: in the child's own namespace, where no other process sees it.
const PLACE: &CStr = c"/tmp";

pub(crate) fn checks(user: User) -> Vec<Check> {
    let who = if user.is_root() { "root" } else { "not root: a user namespace is used" };
    let mut checks = vec![Check::ok("user", who, "run, mount: who may mount what")];
    if user.is_root() {
        let name = "mount namespace";
        checks.push(judge(name, in_private_mounts(user, || Ok(())), root_advice()).on_main_path(true));
    }
    // Root needs no user namespace, but `run` for others on this machine does.
    let outcome = in_user_namespace(user, || Ok(()));
    let advice = hs_linux::rootenv::user_namespace_advice();
    checks.push(judge("user namespace", outcome, advice).on_main_path(!user.is_root()));
    checks
}

fn judge(name: &str, outcome: io::Result<()>, advice: &str) -> Check {
    let needed_for = match name {
        "mount namespace" => "run, profile: the image's root is mounted for the command alone",
        _ => "run, profile without root",
    };
    match outcome {
        Ok(()) => Check::ok(name, "works (tried)", needed_for),
        Err(error) => {
            Check::ok(name, format!("failed: {error}"), needed_for).but(CheckState::Missing, advice)
        }
    }
}

fn root_advice() -> &'static str {
    "this root may not mount: in a container, give it CAP_SYS_ADMIN (docker run --privileged)"
}

/// Tries `work` in a child that has mounts of its own, with a fresh tmpfs on [`PLACE`]: in a user
/// namespace unless `user` is root. `work` is bound to what [`in_child`] demands.
pub(crate) fn in_private_mounts(user: User, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if user.is_root() {
        in_child(|| own_mounts().and_then(|()| work()))
    } else {
        in_user_namespace(user, work)
    }
}

fn in_user_namespace(user: User, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let uid_map = format!("0 {} 1", user.uid);
    let gid_map = format!("0 {} 1", user.gid);
    in_child(|| {
        // SAFETY: the child has one thread, and this changes only what it may see.
        checked(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
        // A user may map groups only after giving up the right to change them.
        write_file(c"/proc/self/setgroups", b"deny")?;
        write_file(c"/proc/self/uid_map", uid_map.as_bytes())?;
        write_file(c"/proc/self/gid_map", gid_map.as_bytes())?;
        own_mounts()?;
        work()
    })
}

/// Makes mounts of this process invisible to all others, then mounts a tmpfs: what is allowed to
/// unshare is not always allowed to mount.
fn own_mounts() -> io::Result<()> {
    // SAFETY: the child has one thread, and this changes only what it may see.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE, c"")?;
    mount(c"tmpfs", PLACE, libc::MS_NOSUID | libc::MS_NODEV, c"size=1m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trial_mounts_stays_in_the_child() {
        let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap().matches(" /tmp ").count();
        // Whether it works depends on who runs the test; that it leaves nothing behind does not.
        let _ = in_private_mounts(User::current(), || Ok(()));
        let after = std::fs::read_to_string("/proc/self/mountinfo").unwrap().matches(" /tmp ").count();
        assert_eq!(before, after);
    }

    #[test]
    fn a_refusal_is_missing_and_says_what_to_do() {
        let refused = Err(io::Error::from_raw_os_error(libc::EPERM));
        let check = judge("user namespace", refused, hs_linux::rootenv::user_namespace_advice());
        assert_eq!(check.state, CheckState::Missing);
        assert!(check.found.contains("not permitted") && !check.advice.is_empty());
    }
}
