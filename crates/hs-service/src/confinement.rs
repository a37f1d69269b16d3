//! What a server gives up before it opens anything: privileges, programs, and files that it has no business
//! with.
//!
//! A server decodes what others wrote and answers what others ask. So the process that does, and every thread
//! that it starts, keeps few capabilities, can gain none, starts no program, makes none of the system calls
//! that change a machine, and, where the kernel has Landlock and nothing is mounted, opens only files of its
//! own.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::seccomp;

/// Rights of Landlock that are taken away where none are given: those of Linux 6.2; an older kernel knows
/// fewer.
const LANDLOCK: ABI = ABI::V3;

/// What a server keeps.
#[derive(Debug)]
pub struct Confinement {
    /// Capabilities, where this process has any.
    pub capabilities: CapabilitySet,
    /// Files that may be opened; none are refused when it is `None`.
    pub files: Option<Files>,
    /// Whether other programs are started: helpers that know logins of registries.
    pub starts_programs: bool,
    /// Whether file systems are mounted and unmounted. Landlock forbids it.
    pub mounts: bool,
    /// Whether it goes on with rings of io_uring that it has made before, and restricted; it makes no others.
    pub has_rings: bool,
}

/// Files and folders with all that is in them; what does not exist is left out.
#[derive(Debug, Default)]
pub struct Files {
    /// What is read.
    pub read: Vec<PathBuf>,
    /// What is read, written, made and removed.
    pub written: Vec<PathBuf>,
    /// Folders in which sockets are made and removed.
    pub sockets: Vec<PathBuf>,
    /// Folders in which files are made and written to, and nothing is read.
    pub made: Vec<PathBuf>,
}

impl Confinement {
    /// Gives up everything else, for this thread and those that it starts; call it while there is one. What
    /// the kernel cannot do is said, and the server goes on with the rest.
    pub fn enforce(self) {
        let kept = self.capabilities;
        if let Err(error) = keep_capabilities(kept) {
            log::warn!("this server keeps all of its capabilities: {error}");
        }
        if let Err(error) = rustix::thread::set_no_new_privs(true) {
            log::warn!("what this server starts could gain privileges: {error}");
        }
        match self.files.as_ref().map(Files::restrict) {
            None => {}
            Some(Ok(RulesetStatus::NotEnforced)) => {
                log::info!("this kernel has no Landlock: the server could open any file that its user may");
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => log::warn!("this server could open any file that its user may: {error}"),
        }
        // Last: it refuses some of the calls above.
        if let Err(error) = seccomp::refuse(self.starts_programs, self.mounts, self.has_rings) {
            log::warn!("this server is not kept from unusual system calls: {error}");
        }
    }
}

/// Gives up what only the beginning takes, in all threads: call it when everything is open and bound. From
/// then on modes and owners of files stay, and so does this process's user; and where `unix_sockets` is false
/// no socket in the file system is connected to. Root's own user id opens many of these, and Landlock covers
/// neither.
pub fn settle(unix_sockets: bool) {
    if let Err(error) = seccomp::refuse_beginnings(unix_sockets) {
        log::warn!("this server is not kept from what only its beginning takes: {error}");
    }
}

impl Files {
    fn restrict(&self) -> Result<RulesetStatus, landlock::RulesetError> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        // Programs are for seccomp: where they may be started, they lie anywhere.
        let handled = AccessFs::from_all(LANDLOCK) & !BitFlags::from(AccessFs::Execute);
        let written = handled & !(AccessFs::MakeChar | AccessFs::MakeBlock);
        let sockets = AccessFs::ReadDir | AccessFs::MakeSock | AccessFs::RemoveFile;
        // Signals go to processes that are confined as well: Linux 6.12.
        let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(handled)?;
        let mut rules = rules.scope(Scope::Signal)?.create()?;
        let made = AccessFs::MakeReg | AccessFs::WriteFile;
        let lists =
            [(&self.read, read), (&self.written, written), (&self.sockets, sockets), (&self.made, made)];
        for (paths, access) in lists {
            for path in paths {
                let Ok(found) = std::fs::metadata(path) else { continue };
                let fd = match PathFd::new(path) {
                    Ok(fd) => fd,
                    Err(error) => {
                        log::warn!("this server will not open {}: {error}", path.display());
                        continue;
                    }
                };
                let access = if found.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
                rules = rules.add_rule(PathBeneath::new(fd, access))?;
            }
        }
        Ok(rules.restrict_self()?.ruleset)
    }
}

/// Drops all other capabilities, also from what programs could be given. A user who is not root has none.
fn keep_capabilities(kept: CapabilitySet) -> rustix::io::Result<()> {
    let held = rustix::thread::capabilities(None)?;
    if held.permitted.is_empty() {
        return Ok(());
    }
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter().filter(|capability| !kept.contains(*capability)) {
            // An older kernel does not know the newest ones.
            if rustix::thread::capability_is_in_bounding_set(capability).unwrap_or(false) {
                rustix::thread::remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let left = CapabilitySets {
        effective: held.effective & kept,
        permitted: held.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, left)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// A thread cannot take its confinement off again, so the test is run once more in a process of its own.
    const TEST: &str = "confinement::tests::a_confined_thread_opens_and_starts_nothing_else";
    const FOLDER: &str = "HEADSTART_TEST_CONFINED_IN";

    /// The error of a signal, of none in particular, to the process that has started this one.
    fn signalled_outside() -> Option<i32> {
        let outside = rustix::process::getppid().expect("a process");
        rustix::process::test_kill_process(outside).err().map(|error| error.raw_os_error())
    }

    fn has_landlock_of(version: libc::c_long) -> bool {
        // SAFETY: with no attributes and this flag the call only gives a number: landlock_create_ruleset(2).
        let found = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
        found >= version
    }

    #[test]
    fn a_confined_thread_opens_and_starts_nothing_else() {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
            let folder = tempfile::tempdir().expect("a folder");
            let mut again = Command::new(std::env::current_exe().expect("this test"));
            let ran = again.args(["--exact", TEST, "--nocapture"]).env(FOLDER, folder.path()).output();
            let ran = ran.expect("started");
            let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success() && said.contains("1 passed"), "{said}");
            return;
        };
        for name in ["image", "other", "cache"] {
            match name {
                "cache" => fs::create_dir(folder.join(name)).expect("made"),
                _ => fs::write(folder.join(name), "content").expect("written"),
            }
        }
        let opened_before = fs::File::open(folder.join("other")).expect("open");
        let (read, written) = (vec![folder.join("image")], vec![folder.join("cache")]);
        let files = Files { read, written, sockets: vec![folder.join("missing")], made: Vec::new() };
        let capabilities = CapabilitySet::DAC_READ_SEARCH;
        Confinement {
            capabilities,
            files: Some(files),
            starts_programs: false,
            mounts: false,
            has_rings: false,
        }
        .enforce();
        let has_landlock =
            fs::read_to_string("/sys/kernel/security/lsm").map_or(true, |list| list.contains("landlock"));
        // Threads that are started from now on are confined as well.
        std::thread::spawn(move || {
            assert_eq!(fs::read(folder.join("image")).expect("its own"), b"content");
            fs::write(folder.join("cache/a"), "x")
                .and_then(|()| fs::remove_file(folder.join("cache/a")))
                .expect("its own");
            drop(opened_before);
            let refused = |result: std::io::Result<()>| result.expect_err("refused").raw_os_error();
            if has_landlock {
                assert_eq!(refused(fs::File::open("/etc/shadow").map(drop)), Some(libc::EACCES));
                assert_eq!(refused(fs::File::open(folder.join("other")).map(drop)), Some(libc::EACCES));
                assert_eq!(refused(fs::write(folder.join("image"), "x")), Some(libc::EACCES));
                assert_eq!(refused(fs::write(folder.join("new"), "x")), Some(libc::EACCES));
            }
            assert_eq!(refused(Command::new("/bin/true").status().map(drop)), Some(libc::EPERM));
            // SAFETY: it is refused; if it were not, this thread alone would have a mount namespace of its
            // own.
            let unshared = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
            assert_eq!(refused(unshared.map_err(Into::into)), Some(libc::EPERM));
            let namespace = |flags: libc::c_int| {
                // SAFETY: it is refused; if it were not, the child would share nothing with this process, and
                // end at once.
                match unsafe {
                    libc::syscall(libc::SYS_clone, libc::c_long::from(flags | libc::SIGCHLD), 0, 0, 0, 0)
                } {
                    // SAFETY: the child has nothing to clean up.
                    0 => unsafe { libc::_exit(0) },
                    child => (child, std::io::Error::last_os_error().raw_os_error()),
                }
            };
            assert_eq!(namespace(libc::CLONE_NEWUSER), (-1, Some(libc::EPERM)));
            // SAFETY: without arguments there is nothing that the call could do.
            let clone3 = unsafe { libc::syscall(libc::SYS_clone3, 0, 0) };
            assert_eq!((clone3, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOSYS)));
            assert_eq!(signalled_outside(), has_landlock_of(6).then_some(libc::EPERM));
            // It settles in another thread than those that are there.
            let chmod = {
                let path = folder.join("cache");
                move || fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            };
            chmod().expect("until it settles");
            std::os::unix::net::UnixDatagram::unbound().expect("until it settles");
            std::thread::spawn(|| settle(false)).join().expect("settled");
            assert_eq!(refused(chmod()), Some(libc::EPERM));
            assert_eq!(refused(std::os::unix::net::UnixDatagram::unbound().map(drop)), Some(libc::EPERM));
            std::net::UdpSocket::bind("127.0.0.1:0").expect("another kind of socket");
            let left = rustix::thread::capabilities(None).expect("asked");
            assert!(CapabilitySet::DAC_READ_SEARCH.contains(left.permitted), "{left:?}");
            assert!(rustix::thread::no_new_privs().expect("asked"));
        })
        .join()
        .expect("as it should be");
    }
}
