//! The first exchange of a session: INIT.

use std::path::Path;

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::device::Device;
use super::session::SessionOptions;
use super::wire::{
    InitIn, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION, MINIMUM_MINOR_VERSION, Request, init_flag, opcode,
};
use crate::FuseError;

/// The kernel insists on room for a write, even for a file system that takes none; this is its least.
const LEAST_WRITE_BYTES: u32 = 4096;
/// The longest write of a disk that takes them: as long as a read.
const LONGEST_WRITE_BYTES: u32 = 1 << 20;
/// What a page is to FUSE on the machines headstart runs on.
const PAGE_BYTES: u32 = 4096;
/// Messages fit: the header, a small write (never sent), names of at most 255 bytes. The kernel refuses
/// to read into less than 8 KiB.
pub(crate) const MESSAGE_BYTES: usize = 16 * 1024;
/// The same where writes are sent.
pub(crate) const WRITE_MESSAGE_BYTES: usize = LONGEST_WRITE_BYTES as usize + 4096;

/// Flags asked for where the kernel has them. Reads overlap (`ASYNC_*`), a read may be 1 MiB
/// (`MAX_PAGES`), nothing but an explicit message drops pages (`EXPLICIT_INVAL_DATA`), and a server that
/// takes over can ask again for what its predecessor had taken (`HAS_RESEND`, Linux 6.9).
const WANTED_FLAGS: u64 = init_flag::ASYNC_READ
    | init_flag::ASYNC_DIO
    | init_flag::PARALLEL_DIROPS
    | init_flag::MAX_PAGES
    | init_flag::EXPLICIT_INVAL_DATA
    | init_flag::INIT_EXT
    | init_flag::DIRECT_IO_ALLOW_MMAP
    | init_flag::BIG_WRITES
    | init_flag::HAS_RESEND;

/// What was agreed in INIT. It is plain data (`as_bytes`, `read_from_bytes`): a supervisor keeps it
/// with the descriptors and hands both to the next server, which cannot ask the kernel again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Negotiated {
    /// Flags that both sides have, as in `<linux/fuse.h>`; `flags2` in the upper half.
    pub flags: u64,
    /// The kernel's minor protocol version.
    pub kernel_minor: u32,
    /// The most the kernel reads ahead, in bytes, as agreed; see [`super::Session::set_read_ahead`].
    pub max_readahead_bytes: u32,
    /// The longest read, in bytes.
    pub max_read_bytes: u32,
    /// Requests that may be under way without a reader waiting (read-ahead, asynchronous direct I/O).
    pub max_background: u16,
    /// Of these, the number from which on the kernel calls the file system congested.
    pub congestion_threshold: u16,
}

impl Negotiated {
    /// True when the kernel can be asked for taken requests again (Linux 6.9).
    pub fn has_resend(&self) -> bool {
        self.flags & init_flag::HAS_RESEND != 0
    }

    /// Agrees on as much as both sides can. `flags2` is absent in messages of older kernels.
    fn agree(init: &InitIn, flags2: Option<u32>, options: &SessionOptions) -> Self {
        let mut offered = u64::from(init.flags);
        if offered & init_flag::INIT_EXT != 0 {
            offered |= u64::from(flags2.unwrap_or(0)) << 32;
        }
        let resend = if options.resend { 0 } else { init_flag::HAS_RESEND };
        let writes = if options.writes { 0 } else { init_flag::BIG_WRITES };
        let flags = offered & WANTED_FLAGS & !resend & !writes;
        // Without MAX_PAGES the kernel sends 32 pages at most, whatever the answer is.
        let most = if flags & init_flag::MAX_PAGES == 0 { 32 * PAGE_BYTES } else { u32::MAX };
        Self {
            flags,
            kernel_minor: init.minor,
            max_readahead_bytes: options.max_readahead_bytes,
            max_read_bytes: options.max_read_bytes.min(most),
            max_background: options.max_background,
            congestion_threshold: options.congestion_threshold,
        }
    }

    fn to_wire(self) -> InitOut {
        InitOut {
            major: KERNEL_VERSION,
            minor: KERNEL_MINOR_VERSION.min(self.kernel_minor),
            max_readahead: self.max_readahead_bytes,
            flags: self.flags as u32,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold,
            max_write: if self.flags & init_flag::BIG_WRITES == 0 {
                LEAST_WRITE_BYTES
            } else {
                LONGEST_WRITE_BYTES
            },
            time_gran: 1,
            max_pages: self.max_read_bytes.div_ceil(PAGE_BYTES) as u16,
            map_alignment: 0,
            flags2: (self.flags >> 32) as u32,
            unused: [0; 7],
        }
    }
}

/// Waits for INIT, which the kernel sends as soon as the mount exists, and answers it.
pub(crate) fn handshake(
    device: &Device,
    target: &Path,
    options: &SessionOptions,
) -> Result<Negotiated, FuseError> {
    let mut buffer = vec![0; MESSAGE_BYTES];
    let failed = |detail: String| FuseError::Handshake { target: target.into(), detail };
    loop {
        let len = match device.receive(&mut buffer) {
            Ok(len) => len,
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(errno) => return Err(failed(errno.to_string())),
        };
        let request =
            Request::parse(&buffer[..len]).ok_or_else(|| failed(format!("{len} bytes of noise")))?;
        if request.header.opcode != opcode::INIT {
            return Err(failed(format!("operation {} came instead", request.header.opcode)));
        }
        let init: InitIn = request.body_as().ok_or_else(|| failed("INIT was cut short".into()))?;
        let unique = request.header.unique;
        let respond = |answer: InitOut| {
            device.answer(unique, 0, &[answer.as_bytes()]).map_err(|errno| failed(errno.to_string()))
        };
        if init.major > KERNEL_VERSION {
            // The protocol's way of stepping down: name our version, and INIT comes once more.
            respond(InitOut { major: KERNEL_VERSION, minor: KERNEL_MINOR_VERSION, ..Default::default() })?;
            continue;
        }
        if init.major < KERNEL_VERSION || init.minor < MINIMUM_MINOR_VERSION {
            // The mount fails either way; how the kernel takes the refusal changes nothing.
            let _ = device.answer(unique, libc::EPROTO, &[]);
            return Err(FuseError::FuseTooOld { major: init.major, minor: init.minor });
        }
        let flags2 = request.body.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        let negotiated = Negotiated::agree(&init, flags2, options);
        respond(negotiated.to_wire())?;
        return Ok(negotiated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(minor: u32, flags: u32) -> InitIn {
        InitIn { major: 7, minor, max_readahead: 128 * 1024, flags }
    }

    #[test]
    fn an_old_kernel_gets_only_what_it_offers() {
        let offered = (init_flag::ASYNC_READ | init_flag::MAX_PAGES) as u32;
        let agreed = Negotiated::agree(&init(31, offered), Some(u32::MAX), &SessionOptions::default());
        assert_eq!(agreed.flags, u64::from(offered), "flags2 counts only with INIT_EXT");
        assert!(!agreed.has_resend());
        assert_eq!(agreed.max_read_bytes, 1 << 20);
        assert_eq!(agreed.to_wire().minor, 31);
        let tiny = Negotiated::agree(&init(31, 0), None, &SessionOptions::default());
        assert_eq!(tiny.max_read_bytes, 128 * 1024);
    }

    #[test]
    fn a_new_kernel_gets_everything_asked_for() {
        let agreed = Negotiated::agree(&init(99, u32::MAX), Some(u32::MAX), &SessionOptions::default());
        assert_eq!(agreed.flags, WANTED_FLAGS & !init_flag::BIG_WRITES);
        assert!(agreed.has_resend());
        assert_eq!(agreed.to_wire().minor, KERNEL_MINOR_VERSION);
        assert_eq!(agreed.to_wire().max_pages, 256);
    }

    #[test]
    fn what_was_agreed_survives_as_bytes() {
        let agreed = Negotiated::agree(&init(45, u32::MAX), Some(u32::MAX), &SessionOptions::default());
        assert_eq!(Negotiated::read_from_bytes(agreed.as_bytes()).unwrap(), agreed);
    }
}
