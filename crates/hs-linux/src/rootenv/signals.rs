//! Signals sent to this process, passed on to the command.
//!
//! What the terminal sends (Ctrl-C, Ctrl-\) reaches the whole foreground process group, the command included,
//! so it is only ignored here. What a process sends to this process with `kill` is passed on. The kernel
//! marks the difference in `si_code`.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Signals that are passed on.
const FORWARDED: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Nothing is passed on.
const NOBODY: i32 = -1;
/// A command is about to be started; all signals are kept for it.
const COMING: i32 = -2;
/// It is being started, in a process that the terminal reaches by itself.
const STARTING: i32 = -3;

/// Descriptor of the process that gets them, or one of the three above. Signal handlers belong to the whole
/// process, and have no other input than statics.
static RECEIVER: AtomicI32 = AtomicI32::new(NOBODY);
/// Descriptor that is written to when a signal came that asks programs to end, or [`NOBODY`].
static TOLD: AtomicI32 = AtomicI32::new(NOBODY);
/// Signals that came while the command was starting, one bit each.
static KEPT: AtomicU32 = AtomicU32::new(0);

/// While this lives, signals are passed on; then the old handlers come back.
#[derive(Debug)]
pub(super) struct Forwarding {
    /// Kept open as long as the handlers may use it.
    receiver: Option<Arc<OwnedFd>>,
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
    /// Starts to keep signals for a command that is about to be started. `None` when they already go to
    /// another one: one process has one terminal.
    pub(super) fn begin() -> Option<Self> {
        RECEIVER.compare_exchange(NOBODY, COMING, Ordering::SeqCst, Ordering::SeqCst).ok()?;
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
        Some(Self { receiver: None, previous })
    }

    /// From now on signals go to `receiver`, a pidfd; the kept ones go there at once.
    pub(super) fn attach(&mut self, receiver: Arc<OwnedFd>) {
        let number = receiver.as_raw_fd();
        self.receiver = Some(receiver);
        RECEIVER.store(number, Ordering::SeqCst);
        for signal in take_kept() {
            send(number, signal);
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        for (signal, SavedAction(old)) in &self.previous {
            // SAFETY: the action came from sigaction for the same signal.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
        RECEIVER.store(NOBODY, Ordering::SeqCst);
        // The command never came; what was meant for it is for this process after all.
        for signal in take_kept() {
            // SAFETY: raise has no preconditions.
            unsafe { libc::raise(signal) };
        }
    }
}

/// Called just before the command's first process starts, by the caller of [`Forwarding::begin`].
pub(super) fn command_is_starting() {
    RECEIVER.store(STARTING, Ordering::SeqCst);
}

fn take_kept() -> impl Iterator<Item = libc::c_int> {
    let kept = KEPT.swap(0, Ordering::SeqCst);
    FORWARDED.into_iter().filter(move |signal| kept & (1 << signal) != 0)
}

/// True for a signal that a process sent, in contrast to the terminal.
pub(super) fn sent_by_a_process(code: libc::c_int) -> bool {
    code <= 0
}

/// True for what the terminal sends to all processes in the foreground.
pub(super) fn from_the_terminal(signal: libc::c_int, code: libc::c_int) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGQUIT) && !sent_by_a_process(code)
}

extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    let reaches_it_anyway = from_the_terminal(signal, code);
    let told = TOLD.load(Ordering::SeqCst);
    if told != NOBODY && matches!(signal, libc::SIGINT | libc::SIGTERM) {
        tell(told);
    }
    match RECEIVER.load(Ordering::SeqCst) {
        NOBODY => {}
        STARTING if reaches_it_anyway => {}
        COMING | STARTING => {
            KEPT.fetch_or(1 << signal, Ordering::SeqCst);
        }
        _ if reaches_it_anyway => {}
        receiver => send(receiver, signal),
    }
}

/// From now on each INT and TERM that comes is counted in `told`, an eventfd that is never closed.
pub fn tell_of_endings(told: OwnedFd) {
    TOLD.store(told.into_raw_fd(), Ordering::SeqCst);
}

/// Adds one to an eventfd; as [`send`] it may be called in a signal handler.
fn tell(told: i32) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: the bytes live until the call returns; a descriptor that is no eventfd is only an error.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(told, one.as_ptr().cast(), one.len());
        *libc::__errno_location() = errno;
    }
}

/// Sends a signal to a pidfd. It may be called in a signal handler: it makes one system call, and puts
/// back errno, which the interrupted code may be about to read.
fn send(receiver: i32, signal: libc::c_int) {
    // SAFETY: the call reads no memory of ours; a number that is no pidfd is only an error.
    unsafe {
        let errno = *libc::__errno_location();
        let info = std::ptr::null::<libc::siginfo_t>();
        libc::syscall(libc::SYS_pidfd_send_signal, receiver, signal, info, 0);
        *libc::__errno_location() = errno;
    }
}
