//! A queue of a device: its requests, and their answers.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::IntoBytes;

use super::abi::{self, Descriptor, QueueCommand};
use super::ring_for;

/// The device and the event, in the ring's table of files.
const DEVICE: types::Fixed = types::Fixed(0);
const WAKE: types::Fixed = types::Fixed(1);
const SECTOR_BYTES: u64 = 512;
const PAGE_BYTES: usize = 4096;
/// Pieces of one call: `IOV_MAX`.
const MOST_PIECES: usize = 1024;
/// What the event's answer is known by; tags are smaller.
const WOKEN: u64 = u64::MAX;

/// What a reader of the device asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// These bytes.
    Read {
        /// Where they begin in the disk.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// What was written is to last.
    Flush,
    /// Something else.
    Other,
}

/// What happens to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request has come, by this tag.
    Request(u16, Request),
    /// No request comes by this tag any more.
    Closed(u16),
    /// The event that wakes it was raised. It is watched once more after [`Queue::watch_wake`].
    Woken,
}

/// A queue of a device. Its requests are taken and committed by one thread.
pub struct Queue {
    ring: IoUring,
    /// Once it has begun.
    descriptors: Option<Descriptors>,
    device: Arc<File>,
    number: u16,
    depth: u16,
}

impl Queue {
    /// The queue of this number, of a device that has the character device `device`. `wake` is an event that
    /// ends its wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(device: &Arc<File>, number: u16, depth: u16, wake: BorrowedFd<'_>) -> io::Result<Self> {
        let operations = [opcode::UringCmd16::CODE, opcode::PollAdd::CODE];
        // One more than tags, for the event.
        let ring = ring_for(u32::from(depth) + 1, &[device.as_fd(), wake], &operations)?;
        Ok(Self { ring, descriptors: None, device: Arc::clone(device), number, depth })
    }

    /// Lets a request come by each tag, and watches the event. Call it in the thread that serves the queue.
    ///
    /// Between the two last calls to the kernel a process must not die: the descriptors are its own from then
    /// on, and the next one is not given them before a queue has waited for requests (Linux 6.12).
    ///
    /// # Errors
    /// The kernel's, when the device is served by another process, or is gone.
    pub fn begin(&mut self) -> io::Result<()> {
        for tag in 0..self.depth {
            self.push_command(abi::FETCH, tag, -1)?;
        }
        self.watch_wake()?;
        self.descriptors = Some(Descriptors::map(&self.device, self.number, self.depth)?);
        self.ring.submit()?;
        // What is refused is refused at once.
        match self.ring.completion().find(|answer| answer.result() < 0) {
            Some(refused) => Err(io::Error::from_raw_os_error(-refused.result())),
            None => Ok(()),
        }
    }

    /// Watches the event from the next wait on.
    ///
    /// # Errors
    /// There can be none but a full ring.
    pub fn watch_wake(&mut self) -> io::Result<()> {
        self.push(&opcode::PollAdd::new(WAKE, libc::POLLIN as u32).build().user_data(WOKEN))
    }

    /// Answers a request: with the bytes that it got, which [`Reply`] has brought, or a negative error
    /// number. The kernel learns it at the next wait.
    ///
    /// # Errors
    /// There can be none but a full ring.
    pub fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.push_command(abi::COMMIT_AND_FETCH, tag, result)
    }

    /// Tells the kernel what was committed, and waits until something happens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let Some(descriptors) = &self.descriptors else { return Ok(()) };
        for answer in self.ring.completion() {
            let tag = answer.user_data() as u16;
            events.push(match (answer.user_data(), answer.result()) {
                (WOKEN, _) => Event::Woken,
                (_, 0) => Event::Request(tag, descriptors.request(tag)),
                (_, _) => Event::Closed(tag),
            });
        }
        Ok(())
    }

    /// The bytes of the request that came by this tag.
    #[must_use]
    pub fn reply(&self, tag: u16) -> Reply {
        let at = u64::from(self.number) << abi::QUEUE_SHIFT | u64::from(tag) << abi::TAG_SHIFT;
        Reply { device: Arc::clone(&self.device), at: abi::BYTES_AT + at }
    }

    fn push_command(&mut self, op: u32, tag: u16, result: i32) -> io::Result<()> {
        let command = QueueCommand { queue: self.number, tag, result, address: 0 };
        let mut bytes = [0; size_of::<QueueCommand>()];
        bytes.copy_from_slice(command.as_bytes());
        self.push(&opcode::UringCmd16::new(DEVICE, op).cmd(bytes).build().user_data(tag.into()))
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) -> io::Result<()> {
        // SAFETY: none of these entries points to memory: they name a file of the ring's table, and have
        // their arguments in them.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)
    }
}

/// The place for the bytes of one request, for any thread, until the request is committed.
#[derive(Clone, Debug)]
pub struct Reply {
    device: Arc<File>,
    at: u64,
}

impl Reply {
    /// Gives these bytes, from the beginning of the request.
    ///
    /// # Errors
    /// The kernel's, when the request is not there any more.
    pub fn give(&self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut at = self.at;
        for some in pieces.chunks(MOST_PIECES) {
            let mut slices: Vec<IoSlice<'_>> = some.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut left = &mut slices[..];
            while left.iter().any(|slice| !slice.is_empty()) {
                match rustix::io::pwritev(&*self.device, left, at) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(given) => {
                        at += given as u64;
                        IoSlice::advance_slices(&mut left, given);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

/// The requests of a queue, in memory that the kernel writes.
struct Descriptors {
    first: NonNull<Descriptor>,
    depth: u16,
}

// SAFETY: the mapping belongs to this value alone, and is only read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn bytes(depth: u16) -> usize {
        (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(PAGE_BYTES)
    }

    fn map(device: &File, number: u16, depth: u16) -> io::Result<Self> {
        let apart = (abi::MOST_DEPTH * size_of::<Descriptor>()).next_multiple_of(PAGE_BYTES);
        let (flags, offset) = (MapFlags::SHARED | MapFlags::POPULATE, u64::from(number) * apart as u64);
        // SAFETY: the kernel chooses the place, where nothing else is; a device's descriptors stay mapped.
        let mapped = unsafe {
            mmap(std::ptr::null_mut(), Self::bytes(depth), ProtFlags::READ, flags, device, offset)?
        };
        let first = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { first, depth })
    }

    /// The request of a tag that has come.
    fn request(&self, tag: u16) -> Request {
        assert!(tag < self.depth, "tags are below the depth");
        // SAFETY: the place is in the mapping. The kernel writes it before it says that the request is there,
        // and not again before that is committed.
        let found = unsafe { self.first.add(tag.into()).read_volatile() };
        match found.op_and_flags & abi::OP_MASK {
            abi::OP_READ => Request::Read {
                offset: found.first_sector.saturating_mul(SECTOR_BYTES),
                bytes: found.sectors.saturating_mul(SECTOR_BYTES as u32),
            },
            abi::OP_FLUSH => Request::Flush,
            _ => Request::Other,
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), Self::bytes(self.depth)) };
    }
}
