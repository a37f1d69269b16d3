//! What the process does that holds the group while nobody fills: it says no. Were it not there, the kernel would let
//! every reader pass, and a reader would see zeros.

use std::io;
use std::sync::Arc;

use super::group::Group;

/// Descriptors that a process may have which fills a file, and so readers that it may have waiting.
const MOST_DESCRIPTORS: u32 = 16_384;

/// Readers that got an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// How many.
    pub readers: u32,
    /// A process that has written to the file, which no guard can hinder.
    pub writer: Option<i32>,
}

/// Bounds this process's descriptors, so that a guard can find what it has not answered. Call it before it reads events.
///
/// # Errors
/// When the limit cannot be set.
pub fn limit_descriptors() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max.min(MOST_DESCRIPTORS.into());
    limit.rlim_max = limit.rlim_cur;
    // SAFETY: `limit` is initialised.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives an error to those whom a dead process of this group has not answered. Its descriptors must have been limited by
/// [`limit_descriptors`].
#[must_use]
pub fn deny_left_questions(group: &Group) -> u32 {
    group.deny_questions_of_the_dead(MOST_DESCRIPTORS.cast_signed())
}

/// Gives an error to everybody who asks now; does not wait.
///
/// # Errors
/// When the group cannot be read.
pub fn deny_events(group: &Arc<Group>) -> io::Result<Denied> {
    let mut denied = Denied::default();
    for told in group.read()? {
        if !told.event.asks() {
            denied.writer = Some(told.event.pid);
        } else if let Some(question) = told.question(group) {
            question.deny(libc::EIO);
            denied.readers += 1;
        }
    }
    Ok(denied)
}
