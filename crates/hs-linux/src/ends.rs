//! The signals that end a process, waited for like any other event.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Whether SIGHUP is to be taken for a wish to read files again: of a process without a terminal it is
/// nothing else, while a terminal says with it that its user is gone.
pub fn hangup_reloads() -> bool {
    File::options().read(true).custom_flags(libc::O_NOCTTY).open("/dev/tty").is_err()
}

/// A command inherits which signals are blocked: this one has none of them.
pub fn let_signals_through(command: &mut Command) -> &mut Command {
    let unblock = || {
        // SAFETY: a signal set is plain data, and sigemptyset initialises it.
        let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `none` is valid for writes; the old mask is not asked for.
        let changed = unsafe {
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
        };
        if changed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec it calls only what signal-safety(7) allows, and allocates nothing.
    unsafe { command.pre_exec(unblock) }
}

/// SIGINT, SIGTERM and SIGHUP, blocked and turned into a readable descriptor.
#[derive(Debug)]
pub struct Ends(OwnedFd);

impl Ends {
    /// Blocks them in this thread and every thread that it starts: call it before there are any.
    ///
    /// # Errors
    /// The kernel's.
    pub fn block() -> std::io::Result<Self> {
        Self::block_these(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
    }

    /// The same for other signals.
    ///
    /// # Errors
    /// The kernel's.
    pub fn block_these(signals: &[libc::c_int]) -> std::io::Result<Self> {
        // SAFETY: a signal set is plain data, initialised by sigemptyset before it is used.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is valid for writes; the signal numbers exist.
        unsafe {
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
        }
        // SAFETY: `set` is initialised; the old mask is not asked for.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if blocked != 0 {
            return Err(std::io::Error::from_raw_os_error(blocked));
        }
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: signalfd returned a new descriptor, which has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl Ends {
    /// The signal that has come, if one has; it does not come again.
    pub fn take(&self) -> Option<rustix::process::Signal> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        let length = rustix::io::read(&self.0, &mut bytes).ok()?;
        // The number is the first field: signalfd(2).
        let number =
            bytes.get(..4).filter(|_| length == bytes.len())?.try_into().map(i32::from_ne_bytes).ok()?;
        rustix::process::Signal::from_named_raw(number)
    }
}

impl AsFd for Ends {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
