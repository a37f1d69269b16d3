//! Threads that the kernel waits for when it writes dirty pages.

/// `PR_SET_IO_FLUSHER` of <linux/prctl.h>.
const SET_IO_FLUSHER: libc::c_int = 57;

/// Tells the kernel that this thread writes for it: below a mounted file system whose disk this process
/// serves. Where memory is short, the kernel then does not make the thread wait for pages that the thread
/// itself has to write. Without `CAP_SYS_RESOURCE`, or before Linux 5.6, nothing changes.
pub fn flush_for_kernel() {
    // SAFETY: the call takes numbers only, and changes how the kernel allocates memory for this thread.
    let done = unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
    if done != 0 {
        log::debug!("this thread may have to wait for itself: {}", std::io::Error::last_os_error());
    }
}
