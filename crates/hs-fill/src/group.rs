//! A fanotify group that gets an event before its file is read: fanotify_init(2), fanotify_mark(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use hs_units::BlockRange;
use rustix::io::Errno;

use super::event::{self, Event};
use super::ledger::Ledger;

/// `FAN_CLASS_PRE_CONTENT`.
const CLASS_PRE_CONTENT: u32 = 0x08;
const CLOEXEC: u32 = 0x01;
const NONBLOCK: u32 = 0x02;
/// No limit of the queue, because a full queue loses events; needs root.
const UNLIMITED_QUEUE: u32 = 0x10;
const MARK_ADD: u32 = 0x01;
const MARK_REMOVE: u32 = 0x02;
const ALLOW: u32 = 0x01;
const DENY: u32 = 0x02;
/// `FAN_ERRNO_SHIFT`: the bits of an answer that carry its error number, since Linux 6.14.
const ERRNO_SHIFT: u32 = 24;
/// What one read takes: some 1,300 events.
const BUFFER_BYTES: usize = 64 << 10;

/// What the descriptors of events are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only to name the file. Works whatever mount the file is read through.
    Read,
    /// To write to the file without causing events.
    Write,
}

/// A group. The kernel allows every read as soon as its last descriptor is closed.
#[derive(Debug)]
pub struct Group {
    fd: OwnedFd,
}

impl Group {
    /// A group without marks.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` or `ENOSYS` where the kernel has no such groups.
    pub fn new(access: Access) -> io::Result<Self> {
        let access = match access {
            Access::Read => libc::O_RDONLY,
            Access::Write => libc::O_RDWR,
        };
        let flags = CLASS_PRE_CONTENT | UNLIMITED_QUEUE | CLOEXEC | NONBLOCK;
        let events = access | libc::O_CLOEXEC | libc::O_LARGEFILE | libc::O_NOATIME;
        // SAFETY: two numbers; the kernel checks them.
        let fd = unsafe { libc::fanotify_init(flags, events as u32) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fanotify_init returned a new descriptor, which has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The group behind a descriptor, such as one that another process has handed on.
    #[must_use]
    pub const fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Asks for an event before `file` is read or written, and after it was written.
    ///
    /// # Errors
    /// `EINVAL` before Linux 6.14, `EOPNOTSUPP` where the file system has no such events.
    pub fn mark(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.change_mark(MARK_ADD, file)
    }

    /// Removes the mark. Events that wait for an answer go on waiting.
    ///
    /// # Errors
    /// `ENOENT` when there is none.
    pub fn unmark(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.change_mark(MARK_REMOVE, file)
    }

    fn change_mark(&self, change: u32, file: BorrowedFd<'_>) -> io::Result<()> {
        // Without a path the mark is on what the descriptor has open.
        // SAFETY: both descriptors are open; a null path is allowed.
        let done = unsafe {
            libc::fanotify_mark(
                self.fd.as_raw_fd(),
                change,
                event::PRE_ACCESS | event::MODIFY,
                file.as_raw_fd(),
                std::ptr::null(),
            )
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The events that are queued; does not wait.
    ///
    /// # Errors
    /// The kernel's error, or `InvalidData` when its bytes are no events. An event that the kernel cannot
    /// hand over it has answered itself, with an error, so the caller goes on.
    pub fn read(&self) -> io::Result<Vec<EventMessage>> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let length = match rustix::io::read(&self.fd, &mut buffer) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut messages = Vec::new();
        for event in event::events(&buffer[..length]) {
            let event = event.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            // SAFETY: the kernel has opened the descriptor of each event for this process alone.
            let fd = event.fd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            messages.push(EventMessage { event, fd });
        }
        Ok(messages)
    }

    fn answer(&self, fd: i32, answer: u32) -> io::Result<()> {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&fd.to_ne_bytes());
        bytes[4..].copy_from_slice(&answer.to_ne_bytes());
        rustix::io::write(&self.fd, &bytes)?;
        Ok(())
    }

    /// Answers with EIO the events that a dead process of this group has received and not answered. The
    /// kernel knows an event by the number of its descriptor, so all possible `numbers` are tried. Returns
    /// how many there were.
    #[must_use]
    pub fn deny_questions_of_the_dead(&self, numbers: impl Iterator<Item = i32>) -> u32 {
        numbers.filter(|number| self.answer(*number, deny(libc::EIO)).is_ok()).count() as u32
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const fn deny(errno: i32) -> u32 {
    DENY | (errno as u32) << ERRNO_SHIFT
}

/// An event, with its descriptor.
#[derive(Debug)]
pub struct EventMessage {
    /// What happened.
    pub event: Event,
    /// The file.
    pub fd: Option<OwnedFd>,
}

impl EventMessage {
    /// The question in it, if there is one.
    #[must_use]
    pub fn question(self, group: &Arc<Group>) -> Option<Question> {
        let fd = self.fd.filter(|_| self.event.asks())?;
        Some(Question {
            group: Arc::clone(group),
            number: fd.as_raw_fd(),
            fd: Some(fd),
            ledger: None,
            is_answered: false,
        })
    }
}

/// A reader that waits. Dropped without an answer it gets EIO.
#[derive(Debug)]
pub struct Question {
    group: Arc<Group>,
    /// The number by which the kernel knows it.
    number: i32,
    /// Held until it is answered, so that no other question gets the number.
    fd: Option<OwnedFd>,
    ledger: Option<Arc<Ledger>>,
    is_answered: bool,
}

impl Question {
    /// A question that a dead process has left in `ledger`.
    pub(super) fn left(group: &Arc<Group>, number: i32, ledger: &Arc<Ledger>) -> Self {
        let (group, ledger) = (Arc::clone(group), Some(Arc::clone(ledger)));
        Self { group, number, fd: None, ledger, is_answered: false }
    }

    /// Notes the reader's blocks for another process, in case this one dies.
    #[must_use]
    pub(super) fn noted(mut self, blocks: BlockRange, ledger: &Arc<Ledger>) -> Self {
        ledger.note(self.number, blocks);
        self.ledger = Some(Arc::clone(ledger));
        self
    }

    /// Lets the reader read.
    pub fn allow(mut self) {
        self.answer(ALLOW);
    }

    /// Gives the reader an error: EIO, ENOSPC or EDQUOT; the kernel refuses most others.
    pub fn deny(mut self, errno: i32) {
        self.answer(deny(errno));
    }

    fn answer(&mut self, answer: u32) {
        self.is_answered = true;
        let answered = self.group.answer(self.number, answer);
        if let Some(ledger) = &self.ledger {
            ledger.clear(self.number);
        }
        // From here on the number may be another question's.
        self.fd = None;
        match answered {
            Ok(()) => {}
            // The reader was killed while it waited.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => log::error!("a reader of a self-filling file cannot be answered: {error}"),
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer(deny(libc::EIO));
        }
    }
}
