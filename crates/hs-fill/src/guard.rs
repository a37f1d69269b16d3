//! What the guard process does. It holds the group whatever becomes of the server, and answers events with an
//! error while there is no server. Without a guard the kernel would allow every read, and programs would read
//! zeros.

use std::collections::BTreeMap;
use std::io;

use hs_units::BlockRange;

use super::attachment::Attachment;
use super::ledger::SLOTS;

/// A reader that was waiting when so many servers died gets an error: it may be the reason.
const MOST_DEATHS: u32 = 3;

/// Bounds this process's descriptors, so that a guard can find the events that it has not answered. Call it
/// before it reads events.
///
/// # Errors
/// When the limit cannot be set.
pub fn limit_descriptors() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max.min(SLOTS as u64);
    limit.rlim_max = limit.rlim_cur;
    // SAFETY: `limit` is initialised.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Readers that a dead server has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The next server answers them.
    pub waiting: u32,
    /// They got an error.
    pub denied: u32,
}

/// What a guard knows of the readers that dead servers left. A server must have limited its descriptors with
/// [`limit_descriptors`].
#[derive(Debug, Default)]
pub struct Survivors {
    /// How many servers have died on a reader.
    deaths: BTreeMap<(i32, u64, u64), u32>,
}

impl Survivors {
    /// After the death of a server, and before the next one. Events that the server had not noted in the
    /// ledger get an error. So do readers that were waiting when too many servers died by a fault of their
    /// own; a server that was killed does not count. The other readers go on waiting.
    pub fn after_a_death(&mut self, attachment: &Attachment, was_own_fault: bool) -> Left {
        let ledger = attachment.ledger();
        let before = std::mem::take(&mut self.deaths);
        for (number, blocks) in ledger.waiting(attachment.disk_blocks()) {
            let BlockRange { start, count } = blocks;
            let reader = (number, start.0, count);
            let deaths = before.get(&reader).copied().unwrap_or(0) + u32::from(was_own_fault);
            if deaths >= MOST_DEATHS {
                ledger.clear(number);
            } else {
                self.deaths.insert(reader, deaths);
            }
        }
        let waits = |number| self.deaths.keys().any(|(waiting, ..)| *waiting == number);
        let denied =
            attachment.group().deny_questions_of_the_dead((0..SLOTS as i32).filter(|number| !waits(*number)));
        Left { waiting: self.deaths.len() as u32, denied }
    }

    /// When no server follows: every waiting reader gets an error. Returns how many there were.
    pub fn give_up(&mut self, attachment: &Attachment) -> u32 {
        self.deaths.clear();
        (0..SLOTS as i32).for_each(|number| attachment.ledger().clear(number));
        attachment.group().deny_questions_of_the_dead(0..SLOTS as i32)
    }
}

/// The readers and writers that got an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// Readers that got an error.
    pub readers: u32,
    /// A process that has written to the file; a guard cannot prevent that.
    pub writer: Option<i32>,
}

/// Answers the events that are there now with an error; does not wait.
///
/// # Errors
/// When the group cannot be read.
pub fn deny_events(attachment: &Attachment) -> io::Result<Denied> {
    let group = attachment.group();
    let mut denied = Denied::default();
    for message in group.read()? {
        if !message.event.asks() {
            denied.writer = Some(message.event.pid);
        } else if let Some(question) = message.question(group) {
            question.deny(libc::EIO);
            denied.readers += 1;
        }
    }
    Ok(denied)
}
