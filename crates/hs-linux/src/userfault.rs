//! Page faults that another process handles: userfaultfd(2).
//!
//! The structs and numbers are those of linux/userfaultfd.h.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::c_ulong;

/// `UFFD_API`.
const API: u64 = 0xaa;
const IOCTL_API: c_ulong = 0xc018_aa3f;
const IOCTL_REGISTER: c_ulong = 0xc020_aa00;
const IOCTL_WAKE: c_ulong = 0x8010_aa02;
const IOCTL_COPY: c_ulong = 0xc028_aa03;
const IOCTL_ZEROPAGE: c_ulong = 0xc020_aa04;
const IOCTL_POISON: c_ulong = 0xc020_aa08;
/// `UFFDIO_REGISTER_MODE_MISSING`.
const MISSING: u64 = 1;
/// The events that are heard of, `UFFD_EVENT_…`.
const EVENT_PAGEFAULT: u8 = 0x12;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;
/// How the kernel names such a descriptor.
const KIND: &str = "anon_inode:[userfaultfd]";
/// Bytes of `struct uffd_msg`.
const MESSAGE_BYTES: usize = 32;
/// Messages that are read at once.
const MESSAGES: usize = 64;
/// `UFFD_USER_MODE_ONLY`: faults of the kernel are not handled, for which no privilege is needed.
const USER_MODE_ONLY: libc::c_int = 1;

/// What happened in memory that is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryEvent {
    /// A thread waits for the page at this address.
    Fault {
        /// The address, somewhere in the page.
        address: u64,
    },
    /// The process has given up what it had there; it reads as zeros.
    Removed {
        /// The first address.
        start: u64,
        /// The first address behind it.
        end: u64,
    },
    /// Something else, which needs no answer.
    Other,
}

/// Faults of the memory of one process.
#[derive(Debug)]
pub struct Userfault(File);

impl Userfault {
    /// For memory of this process, which it must [register](Self::register); with faults of the kernel, where
    /// this process may have those.
    ///
    /// # Errors
    /// When the kernel has or allows none.
    pub fn new() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let made = [flags, flags | USER_MODE_ONLY].into_iter().find_map(|flags| {
            // SAFETY: takes flags, and gives a descriptor that only this has.
            let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
            (descriptor >= 0).then_some(descriptor)
        });
        let descriptor = made.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the call has just given it.
        let this = Self(unsafe { std::os::fd::FromRawFd::from_raw_fd(descriptor as i32) });
        let mut api = [API, 0, 0];
        this.request(IOCTL_API, &mut api)?;
        Ok(this)
    }

    /// A descriptor that another process has made, and sent.
    ///
    /// # Errors
    /// When it is of something else, which could have this process wait.
    pub fn of_another(descriptor: OwnedFd) -> io::Result<Self> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
        if link.as_os_str() != KIND {
            return Err(io::Error::other(format!(
                "a descriptor of {} came, not one of faults",
                link.display()
            )));
        }
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        rustix::fs::fcntl_setfl(&descriptor, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self(descriptor.into()))
    }

    /// From now on a thread of this process that touches a page there which it does not have waits.
    ///
    /// # Errors
    /// When the range is not of whole mapped pages.
    pub fn register(&self, address: u64, bytes: u64) -> io::Result<()> {
        self.request(IOCTL_REGISTER, &mut [address, bytes, MISSING, 0])
    }

    /// What has happened since, without waiting.
    ///
    /// # Errors
    /// When the descriptor is none of this kind, or its process is gone.
    pub fn events(&self) -> io::Result<Vec<MemoryEvent>> {
        let mut buffer = [0; MESSAGES * MESSAGE_BYTES];
        let read = match (&self.0).read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            read => read?,
        };
        Ok(buffer[..read].chunks_exact(MESSAGE_BYTES).map(event).collect())
    }

    /// Gives the process pages at `address`, and wakes the threads that wait for them. A page that it has
    /// already stays as it is.
    ///
    /// # Errors
    /// When there is no such memory, or the process is gone.
    pub fn copy(&self, address: u64, pages: &[u8]) -> io::Result<()> {
        let bytes = pages.len() as u64;
        self.each(address, bytes, |done| {
            let source = pages[done as usize..].as_ptr() as u64;
            let mut copy = [address + done, source, bytes - done, 0, 0];
            let result = self.request(IOCTL_COPY, &mut copy);
            (result, copy[4])
        })
    }

    /// The same with zeros.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    pub fn zero(&self, address: u64, bytes: u64) -> io::Result<()> {
        self.each(address, bytes, |done| {
            let mut zero = [address + done, bytes - done, 0, 0];
            let result = self.request(IOCTL_ZEROPAGE, &mut zero);
            (result, zero[3])
        })
    }

    /// From now on what touches these pages gets SIGBUS.
    ///
    /// # Errors
    /// As [`copy`](Self::copy); and before Linux 6.6.
    pub fn poison(&self, address: u64, bytes: u64) -> io::Result<()> {
        self.each(address, bytes, |done| {
            let mut poison = [address + done, bytes - done, 0, 0];
            let result = self.request(IOCTL_POISON, &mut poison);
            (result, poison[3])
        })
    }

    /// Wakes threads that wait there: they touch the page again.
    ///
    /// # Errors
    /// When the range is not of whole pages.
    pub fn wake(&self, address: u64, bytes: u64) -> io::Result<()> {
        self.request(IOCTL_WAKE, &mut [address, bytes])
    }

    /// Makes a request for what it has not been made for yet; it tells how many bytes it did, or an error
    /// number. A page that is there already is left out, and its waiting threads are woken.
    fn each(
        &self,
        address: u64,
        bytes: u64,
        request: impl Fn(u64) -> (io::Result<()>, u64),
    ) -> io::Result<()> {
        let page = rustix::param::page_size() as u64;
        let mut done = 0;
        while done < bytes {
            let (result, did) = request(done);
            match result {
                Ok(()) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    // It was interrupted, or has met a page that is there.
                    Some(libc::EAGAIN) if did.cast_signed() > 0 => done += did,
                    Some(libc::EAGAIN) => std::thread::yield_now(),
                    Some(libc::EEXIST) => {
                        self.wake(address + done, page)?;
                        done += page;
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn request<const N: usize>(&self, number: c_ulong, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: the words are the struct that the request has by its number, of which the kernel checks
        // every address; the source of a copy is a slice that outlives the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), number, words.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `struct uffd_msg`: the kind in the first byte, and numbers from the eighth on.
fn event(message: &[u8]) -> MemoryEvent {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&message[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    match message[0] {
        EVENT_PAGEFAULT => MemoryEvent::Fault { address: word(16) },
        EVENT_REMOVE | EVENT_UNMAP => MemoryEvent::Removed { start: word(8), end: word(16) },
        _ => MemoryEvent::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_answered_with_what_is_copied() {
        let Ok(faults) = Userfault::new() else {
            return hs_testing::skip("userfaultfd is not allowed");
        };
        let page = rustix::param::page_size();
        // SAFETY: new memory, which nothing else has.
        let memory = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                4 * page,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::PRIVATE,
            )
        }
        .unwrap();
        let address = memory as u64;
        faults.register(address, 4 * page as u64).unwrap();
        assert_eq!(faults.events().unwrap(), []);
        faults.copy(address, &vec![7; 2 * page]).unwrap();
        // What is there stays.
        faults.copy(address + page as u64, &vec![9; 2 * page]).unwrap();
        faults.zero(address + 2 * page as u64, 2 * page as u64).unwrap();
        // SAFETY: four pages that were given above.
        let bytes = unsafe { std::slice::from_raw_parts(memory as *const u8, 4 * page) };
        let firsts: Vec<u8> = bytes.chunks(page).map(|page| page[17]).collect();
        assert_eq!(firsts, [7, 7, 9, 0]);
        assert!(faults.copy(4096, &vec![1; page]).is_err());
        // SAFETY: nothing refers to it any more.
        unsafe { rustix::mm::munmap(memory, 4 * page) }.unwrap();
    }

    #[test]
    fn messages_are_told_apart() {
        let mut message = [0; MESSAGE_BYTES];
        message[0] = EVENT_PAGEFAULT;
        message[16..24].copy_from_slice(&0x7000_u64.to_ne_bytes());
        assert_eq!(event(&message), MemoryEvent::Fault { address: 0x7000 });
        message[0] = EVENT_REMOVE;
        message[8..16].copy_from_slice(&0x6000_u64.to_ne_bytes());
        assert_eq!(event(&message), MemoryEvent::Removed { start: 0x6000, end: 0x7000 });
        message[0] = 0x13;
        assert_eq!(event(&message), MemoryEvent::Other);
    }
}
