//! The limit of the size of files that a process may write (`ulimit -f`, `LimitFSIZE=`).

/// From now on a write beyond that limit fails with `EFBIG`, instead of ending the process by SIGXFSZ.
/// Programs that it starts are ended as ever: a handler, unlike an ignored signal, is not theirs too.
pub fn fail_beyond_size_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: sigactions of zeros are valid, the pointers live until each call returns, and the handler does
    // nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let is_read = libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut action) == 0;
        // Where it is ignored already, that is for those that are started too.
        if is_read && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
        }
    }
}
