//! Signals sent to this process, passed on to the command.
//!
//! What the terminal sends (Ctrl-C, Ctrl-\) reaches the whole foreground process group, the command
//! included, so it is only ignored here; what somebody sends to this process with `kill` is passed on.
//! The kernel marks the difference in `si_code`.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Signals that are passed on.
const FORWARDED: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

const NOBODY: i32 = -1;

/// Descriptor of the process that gets them. Signal handlers are the process's, and can be told
/// nothing but by something static.
static RECEIVER: AtomicI32 = AtomicI32::new(NOBODY);

/// While this lives, signals are passed on; then the old handlers come back.
#[derive(Debug)]
pub(super) struct Forwarding {
    /// Kept open as long as the handlers may use it.
    _receiver: Arc<OwnedFd>,
    previous: Vec<(libc::c_int, SavedAction)>,
}

/// An action as `sigaction(2)` gave it.
struct SavedAction(libc::sigaction);

impl std::fmt::Debug for SavedAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SavedAction").field(&self.0.sa_sigaction).finish()
    }
}

impl Forwarding {
    /// Starts to pass signals on to `receiver`, a pidfd. `None` when they already go to another command:
    /// one process has one terminal.
    pub(super) fn to(receiver: Arc<OwnedFd>) -> Option<Self> {
        RECEIVER
            .compare_exchange(NOBODY, receiver.as_raw_fd(), Ordering::SeqCst, Ordering::SeqCst)
            .ok()?;
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = pass_on;
        let mut previous = Vec::with_capacity(FORWARDED.len());
        for signal in FORWARDED {
            // SAFETY: a sigaction of zeros is valid; the handler does only what a handler may, and both
            // pointers live until the call returns.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let mut old: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                if libc::sigaction(signal, &raw const action, &raw mut old) == 0 {
                    previous.push((signal, SavedAction(old)));
                }
            }
        }
        Some(Self { _receiver: receiver, previous })
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        for (signal, SavedAction(old)) in &self.previous {
            // SAFETY: the action came from sigaction for the same signal.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
        RECEIVER.store(NOBODY, Ordering::SeqCst);
    }
}

/// True for a signal that a process sent, in contrast to the terminal.
pub(super) fn sent_by_a_process(code: libc::c_int) -> bool {
    code <= 0
}

extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo. pidfd_send_signal may be called in a
    // handler; it changes errno, which the interrupted code may be about to read, so that is put back.
    unsafe {
        let code = (*info).si_code;
        let interactive = matches!(signal, libc::SIGINT | libc::SIGQUIT);
        let receiver = RECEIVER.load(Ordering::SeqCst);
        if receiver != NOBODY && (!interactive || sent_by_a_process(code)) {
            let errno = *libc::__errno_location();
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                receiver,
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            );
            *libc::__errno_location() = errno;
        }
    }
}
