//! How much of the machine a command gets: everything, what a container gets, or nothing.

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};
use rustix::{process, thread};

use super::filter;

/// What a command is kept from.
///
/// Each but the first has UTS, IPC and cgroup namespaces of its own besides those of every command (PID and
/// mounts), gets no descriptor but 0, 1 and 2, and cannot be traced by, nor trace, the process that started
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// Nothing: as root it is the machine's root, in another root directory.
    Privileged,
    /// What a container engine withholds: most capabilities, devices, settings of the kernel in `/proc` and
    /// `/sys`, and system calls that are no concern of a container's. The network is the machine's.
    Container {
        /// Whether set-user-id programs raise a process within what is left.
        set_user_id: bool,
    },
    /// Everything: no capability, a user of its own, and no network unless it is given the machine's. For a
    /// program that a root of its own holds all that it needs for.
    Jail(JailUser),
}

/// The user that a jailed program runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JailUser {
    /// The user, and the group of the same number. `None` is the user that started it: in a user namespace
    /// there may be no other.
    pub id: Option<u32>,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Its memory is mapped in small pages: what asks for huge ones is refused. With huge pages, each fault
    /// of a mapped file reads 2 MiB.
    pub small_pages: bool,
    /// It has the machine's network instead of an empty one.
    pub has_network: bool,
}

/// What Podman leaves a container, and Docker but for three that concern the machine where its network is the
/// machine's: `MKNOD` makes device nodes, `NET_RAW` listens to all that its network cards receive,
/// `AUDIT_WRITE` writes its log of audits.
const OF_A_CONTAINER: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SETFCAP);

impl Confinement {
    /// True when nothing is withheld.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        *self == Self::Privileged
    }

    /// The namespaces that its processes have of their own, as flags of clone(2).
    pub(super) fn namespaces(&self) -> libc::c_int {
        let every = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
        let contained = every | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC | libc::CLONE_NEWCGROUP;
        match self {
            Self::Privileged => every,
            Self::Container { .. } => contained,
            Self::Jail(user) if user.has_network => contained,
            Self::Jail(_) => contained | libc::CLONE_NEWNET,
        }
    }

    /// Takes from the calling process, which must have one thread, what its command is not to have. What it
    /// was to mount it has mounted.
    pub(super) fn enter(&self) -> Result<(), Errno> {
        let kept = match self {
            Self::Privileged => return Ok(()),
            Self::Container { .. } => OF_A_CONTAINER,
            Self::Jail(_) => CapabilitySet::empty(),
        };
        // The command must not have the keys of the user who started it.
        join_new_session_keyring();
        if !matches!(self, Self::Container { set_user_id: true }) {
            thread::set_no_new_privs(true)?;
        }
        // After this, nothing could be put back; before the capability goes without which it may need
        // no_new_privs.
        filter::install(matches!(self, Self::Jail(user) if user.small_pages))?;
        drop_from_bounding_set(kept)?;
        if let Self::Jail(user) = self {
            user.become_it()?;
        }
        thread::clear_ambient_capability_set()?;
        let inheritable = CapabilitySet::empty();
        thread::set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
        // A process with the same capabilities could look into this one, and through it at the machine's
        // files.
        process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        // The change of user and capabilities has cleared this setting.
        process::set_parent_process_death_signal(Some(Signal::KILL))
    }

    /// For init's orders.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Privileged => "privileged".to_owned(),
            Self::Container { set_user_id } => format!("container {set_user_id}"),
            Self::Jail(JailUser { id, groups, small_pages, has_network }) => {
                let ids = id.iter().chain(groups).map(|id| format!(" {id}")).collect::<String>();
                format!("jail {} {small_pages} {has_network}{ids}", id.is_some())
            }
        }
    }

    /// What [`Self::encode`] made.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        if kind == "privileged" {
            return words.next().is_none().then_some(Self::Privileged);
        }
        let mut flag = || words.next()?.parse::<bool>().ok();
        let (first, is_jail) = (flag()?, kind == "jail");
        let (small_pages, has_network) = (is_jail && flag()?, is_jail && flag()?);
        let mut ids = words.map(|word| word.parse().ok());
        match kind {
            "container" => ids.next().is_none().then_some(Self::Container { set_user_id: first }),
            "jail" => {
                let id = if first { Some(ids.next()??) } else { None };
                let groups = ids.collect::<Option<_>>()?;
                Some(Self::Jail(JailUser { id, groups, small_pages, has_network }))
            }
            _ => None,
        }
    }
}

impl JailUser {
    fn become_it(&self) -> Result<(), Errno> {
        let Some(id) = self.id else { return Ok(()) };
        let groups: Vec<_> = self.groups.iter().map(|id| process::Gid::from_raw(*id)).collect();
        thread::set_thread_groups(&groups)?;
        let (uid, gid) = (process::Uid::from_raw(id), process::Gid::from_raw(id));
        thread::set_thread_res_gid(gid, gid, gid)?;
        thread::set_thread_res_uid(uid, uid, uid)
    }
}

fn drop_from_bounding_set(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel has no more of them.
            Err(Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A kernel without keys has none to keep.
fn join_new_session_keyring() {
    /// `KEYCTL_JOIN_SESSION_KEYRING` of keyctl(2).
    const JOIN: libc::c_long = 1;
    // SAFETY: a null name asks for a keyring without one; nothing is read or written.
    unsafe { libc::syscall(libc::SYS_keyctl, JOIN, std::ptr::null::<libc::c_char>()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive() {
        let jail = |id, groups: &[u32], small_pages, has_network| {
            Confinement::Jail(JailUser { id, groups: groups.into(), small_pages, has_network })
        };
        for confinement in [
            Confinement::Privileged,
            Confinement::Container { set_user_id: true },
            Confinement::Container { set_user_id: false },
            jail(None, &[], false, true),
            jail(Some(1_879_048_200), &[], true, false),
            jail(Some(65_534), &[106, 4], false, false),
        ] {
            assert_eq!(Confinement::decode(&confinement.encode()), Some(confinement));
        }
        for text in [
            "",
            "privileged x",
            "container",
            "container maybe",
            "container true 1",
            "jail true false",
            "jail true false true",
            "jail true 7",
            "jail false true x",
            "jail false true false x",
        ] {
            assert_eq!(Confinement::decode(text), None, "{text}");
        }
    }
}
