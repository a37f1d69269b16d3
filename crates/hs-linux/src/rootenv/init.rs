//! The first process inside the root. It starts the command, reaps dead processes, passes signals on, and
//! ends all processes when the command, or the process that started it, is gone.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::masks;
use super::report::{Report, Step};
use super::signals::{from_the_terminal, sent_by_a_process};
use super::spec::{CommandUser, InitSpec};

/// Runs as init, with the arguments that follow [`super::INIT_ARGUMENT`]. The command line calls it first
/// thing in `main`, before any thread.
pub fn init_main(args: impl IntoIterator<Item = OsString>) -> ! {
    let inherited = args.into_iter().next().and_then(|number| number.to_str()?.parse::<RawFd>().ok());
    let Some((spec, report, liveness)) = inherited.and_then(read_orders) else {
        // A user typed the hidden argument. Nothing is set up, so nothing can be reported.
        std::process::exit(2);
    };
    if let Err((step, errno)) = run(&spec, &report, &liveness) {
        Report::Failed(step, errno).send(report.as_fd());
    }
    // SAFETY: ends the process at once; there is nothing to flush, and no destructor to run.
    unsafe { libc::_exit(0) }
}

/// Takes over the three inherited descriptors. The command must not get them.
fn read_orders(fd: RawFd) -> Option<(InitSpec, OwnedFd, OwnedFd)> {
    let mut bytes = Vec::new();
    adopt(fd).map(File::from)?.read_to_end(&mut bytes).ok()?;
    let spec = InitSpec::decode(&bytes)?;
    let (report, liveness) = (adopt(spec.report)?, adopt(spec.liveness)?);
    Some((spec, report, liveness))
}

fn adopt(fd: RawFd) -> Option<OwnedFd> {
    if fd <= 2 {
        return None;
    }
    // SAFETY: fcntl on a number that is no descriptor fails and touches nothing. When it succeeds, the
    // descriptor was left to this process for this purpose, and nothing else here owns it.
    unsafe { (libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) == 0).then(|| OwnedFd::from_raw_fd(fd)) }
}

fn run(spec: &InitSpec, report: &OwnedFd, liveness: &OwnedFd) -> Result<(), (Step, i32)> {
    let signals = block_signals().map_err(|error| (Step::Spec, errno_of(&error)))?;
    enter(spec).map_err(|(step, errno)| (step, errno.raw_os_error()))?;
    spec.confinement.enter().map_err(|errno| (Step::Confine, errno.raw_os_error()))?;
    // From now on the command gets the signals to the whole foreground itself. Earlier signals, which may
    // have been meant for it, are passed on here.
    let early: Vec<_> = std::iter::from_fn(|| next_signal(&signals)).collect();
    let main = start(spec).map_err(|error| (Step::Command, errno_of(&error)))?;
    for (signal, code) in early {
        if sent_by_a_process(code) || from_the_terminal(signal, code) {
            pass_on(signal, main);
        }
    }
    Report::Started.send(report.as_fd());
    if let Some(status) = look_after(main, &signals, liveness) {
        Report::Ended(status).send(report.as_fd());
    }
    Ok(())
}

/// Makes the prepared root the root of this process, and the old one unreachable.
fn enter(spec: &InitSpec) -> Result<(), (Step, Errno)> {
    let at = |step| move |errno| (step, errno);
    // In this namespace, which is a copy: whatever is taken off here must not go from the host.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", downstream).map_err(at(Step::Pivot))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::process::chdir(&*spec.root).map_err(at(Step::Pivot))?;
    // pivot_root(2): with "." twice, the old root lies on top of the new one and can be taken off.
    rustix::process::pivot_root(".", ".").map_err(at(Step::Pivot))?;
    // Before the old root goes: a user namespace may mount a proc only as long as it sees another one.
    rustix::mount::mount("proc", "/proc", "proc", flags, None).map_err(at(Step::Proc))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(at(Step::Pivot))?;
    rustix::process::chdir("/").map_err(at(Step::Pivot))?;
    if !spec.confinement.is_privileged() {
        masks::put_on().map_err(at(Step::Masks))?;
    }
    rustix::process::chdir(&*spec.cwd).map_err(at(Step::Cwd))
}

/// Starts the command and returns its process number.
fn start(spec: &InitSpec) -> io::Result<libc::pid_t> {
    let mut command = Command::new(&spec.argv[0]);
    let keeps_descriptors = spec.confinement.is_privileged();
    command.args(&spec.argv[1..]).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    let user = spec.user.clone();
    // SAFETY: the closure makes a few system calls, which are allowed after fork.
    unsafe {
        command.pre_exec(move || {
            if let Some(user) = &user {
                become_user(user)?;
            }
            if !keeps_descriptors {
                // What this program was started with, be it by a shell or a service manager, is not for the
                // command. A kernel before 5.11 does not know this flag.
                let kept = libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
                if kept != 0 {
                    let mut limit: libc::rlimit = std::mem::zeroed();
                    libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
                    for fd in 3..limit.rlim_cur.min(1 << 20) as libc::c_int {
                        libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
                    }
                }
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            match libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    // The handle is not waited on: init reaps its children itself, this one like those it inherits.
    command.spawn().map(|child| child.id() as libc::pid_t)
}

/// Changes the user of the calling process, which has one thread, for good.
fn become_user(user: &CommandUser) -> io::Result<()> {
    // For the kernel this number means the present user.
    if user.uid == u32::MAX || user.gid == u32::MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let checked = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the list of groups lives until the call returns, and has this length.
    checked(unsafe { libc::setgroups(user.groups.len(), user.groups.as_ptr()) })?;
    // SAFETY: this takes numbers only.
    checked(unsafe { libc::setresgid(user.gid, user.gid, user.gid) })?;
    // SAFETY: so does this.
    checked(unsafe { libc::setresuid(user.uid, user.uid, user.uid) })
}

/// Until the command ends; returns its status. `None` when the process that started init is gone.
fn look_after(main: libc::pid_t, signals: &OwnedFd, liveness: &OwnedFd) -> Option<i32> {
    loop {
        if let Some(status) = bury(main) {
            return Some(status);
        }
        let mut fds = [PollFd::new(signals, PollFlags::IN), PollFd::new(liveness, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        // Nothing is ever written to the pipe; any event on it is its end.
        if !fds[1].revents().is_empty() {
            return None;
        }
        if fds[0].revents().contains(PollFlags::IN) {
            match next_signal(signals) {
                Some((signal, code)) if sent_by_a_process(code) => pass_on(signal, main),
                _ => {}
            }
        }
    }
}

/// Collects all children that have ended; returns the command's status if it is among them.
fn bury(main: libc::pid_t) -> Option<i32> {
    loop {
        let mut status = 0;
        // SAFETY: the status lives until the call returns.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid == main {
            return Some(status);
        }
        if pid <= 0 {
            return None;
        }
    }
}

/// The next signal that waits to be read, and its `si_code`.
fn next_signal(signals: &OwnedFd) -> Option<(libc::c_int, libc::c_int)> {
    const SIZE: usize = size_of::<libc::signalfd_siginfo>();
    let mut bytes = [0_u8; SIZE];
    if rustix::io::read(signals, &mut bytes) != Ok(SIZE) {
        return None;
    }
    // SAFETY: the struct is plain numbers, valid for any bytes, and the buffer has its size.
    let info: libc::signalfd_siginfo = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
    Some((info.ssi_signo as libc::c_int, info.ssi_code))
}

/// Gives a signal to the command.
fn pass_on(signal: libc::c_int, main: libc::pid_t) {
    // The kernel sends this one to a parent; it is never meant for the command.
    if signal != libc::SIGCHLD {
        // SAFETY: main is a child that has not been waited for, so the number is still its own.
        unsafe { libc::kill(main, signal) };
    }
}

/// All signals wait to be read. Blocked signals reach even an init that has no handlers.
fn block_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set lives until the calls return; the new descriptor has no other owner.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        match libc::signalfd(-1, &raw const all, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn errno_of(error: &io::Error) -> i32 {
    // std reports a NUL in a string without an errno.
    error.raw_os_error().unwrap_or(libc::EINVAL)
}
