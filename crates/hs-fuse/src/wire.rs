//! The kernel's FUSE messages, as `<linux/fuse.h>` lays them out (protocol 7.31 to 7.45).
//!
//! Only what a file system with one file, and one that takes a journal's changes, needs is here. Every
//! message from the kernel is a [`InHeader`], then a body that depends on the operation; every answer is an
//! [`OutHeader`], then a body. Numbers are in the machine's own byte order: the other side is always our own
//! kernel. Sizes and offsets are checked when this file compiles.

use std::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major protocol version this file describes.
pub(crate) const KERNEL_VERSION: u32 = 7;
/// The newest minor version whose messages this file describes.
pub(crate) const KERNEL_MINOR_VERSION: u32 = 45;
/// The oldest minor version spoken: Linux 5.2, long-lived flags such as `FUSE_MAX_PAGES` included.
pub(crate) const MINIMUM_MINOR_VERSION: u32 = 31;

/// Operations (`enum fuse_opcode`).
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
}

/// Flags of INIT; bits 32 and up travel in `flags2`.
pub(crate) mod init_flag {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    /// Writes of more than a page.
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const HAS_RESEND: u64 = 1 << 39;
}

/// Flags of an answer to OPEN and OPENDIR.
pub(crate) mod open_flag {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    /// Since 7.35 (Linux 5.16); kernels before do not look at it.
    pub(crate) const NOFLUSH: u32 = 1 << 5;
}

/// Unasked messages to the kernel (`enum fuse_notify_code`); they travel in [`OutHeader::error`].
pub(crate) mod notify {
    pub(crate) const STORE: i32 = 4;
    pub(crate) const RESEND: i32 = 7;
}

/// `FATTR_SIZE`, of [`SetattrIn::valid`].
pub(crate) const FATTR_SIZE: u32 = 1 << 3;

/// `FUSE_ROOT_ID`.
pub(crate) const ROOT_NODE: u64 = 1;

/// A wire struct: plain bytes both ways, with its size fixed by the ABI.
macro_rules! wire {
    ($(#[$meta:meta])* $name:ident, $size:literal { $($field:ident : $type:ty = $offset:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(offset_of!($name, $field) == $offset);)*
        };
    };
}

wire! {
    /// `struct fuse_in_header`: begins every message of the kernel.
    InHeader, 40 {
        len: u32 = 0, opcode: u32 = 4, unique: u64 = 8, nodeid: u64 = 16,
        uid: u32 = 24, gid: u32 = 28, pid: u32 = 32, total_extlen: u16 = 36, padding: u16 = 38,
    }
}
wire! {
    /// `struct fuse_out_header`: begins every answer. `error` is a negative errno, or 0, or, when
    /// `unique` is 0, a code of [`notify`].
    OutHeader, 16 { len: u32 = 0, error: i32 = 4, unique: u64 = 8, }
}
wire! {
    /// `struct fuse_init_in` up to what protocol 7.31 sends; later kernels send more.
    InitIn, 16 { major: u32 = 0, minor: u32 = 4, max_readahead: u32 = 8, flags: u32 = 12, }
}
wire! {
    /// `struct fuse_init_out`.
    InitOut, 64 {
        major: u32 = 0, minor: u32 = 4, max_readahead: u32 = 8, flags: u32 = 12,
        max_background: u16 = 16, congestion_threshold: u16 = 18, max_write: u32 = 20,
        time_gran: u32 = 24, max_pages: u16 = 28, map_alignment: u16 = 30, flags2: u32 = 32,
        unused: [u32; 7] = 36,
    }
}
wire! {
    /// `struct fuse_attr`.
    Attr, 88 {
        ino: u64 = 0, size: u64 = 8, blocks: u64 = 16, atime: u64 = 24, mtime: u64 = 32, ctime: u64 = 40,
        atimensec: u32 = 48, mtimensec: u32 = 52, ctimensec: u32 = 56, mode: u32 = 60, nlink: u32 = 64,
        uid: u32 = 68, gid: u32 = 72, rdev: u32 = 76, blksize: u32 = 80, flags: u32 = 84,
    }
}
wire! {
    /// `struct fuse_attr_out`.
    AttrOut, 104 { attr_valid: u64 = 0, attr_valid_nsec: u32 = 8, dummy: u32 = 12, attr: Attr = 16, }
}
wire! {
    /// `struct fuse_entry_out`.
    EntryOut, 128 {
        nodeid: u64 = 0, generation: u64 = 8, entry_valid: u64 = 16, attr_valid: u64 = 24,
        entry_valid_nsec: u32 = 32, attr_valid_nsec: u32 = 36, attr: Attr = 40,
    }
}
wire! {
    /// `struct fuse_open_in`.
    OpenIn, 8 { flags: u32 = 0, open_flags: u32 = 4, }
}
wire! {
    /// `struct fuse_open_out`.
    OpenOut, 16 { fh: u64 = 0, open_flags: u32 = 8, padding: u32 = 12, }
}
wire! {
    /// `struct fuse_read_in`, of READ and READDIR.
    ReadIn, 40 {
        fh: u64 = 0, offset: u64 = 8, size: u32 = 16, read_flags: u32 = 20, lock_owner: u64 = 24,
        flags: u32 = 32, padding: u32 = 36,
    }
}
wire! {
    /// `struct fuse_write_in`, before the bytes of a WRITE.
    WriteIn, 40 {
        fh: u64 = 0, offset: u64 = 8, size: u32 = 16, write_flags: u32 = 20, lock_owner: u64 = 24,
        flags: u32 = 32, padding: u32 = 36,
    }
}
wire! {
    /// `struct fuse_write_out`.
    WriteOut, 8 { size: u32 = 0, padding: u32 = 4, }
}
wire! {
    /// `struct fuse_fallocate_in`.
    FallocateIn, 32 { fh: u64 = 0, offset: u64 = 8, length: u64 = 16, mode: u32 = 24, padding: u32 = 28, }
}
wire! {
    /// The beginning of `struct fuse_setattr_in`: which attributes are to be set, and the size.
    SetattrIn, 24 { valid: u32 = 0, padding: u32 = 4, fh: u64 = 8, size: u64 = 16, }
}
wire! {
    /// `struct fuse_statfs_out`, with the `struct fuse_kstatfs` in it spelt out.
    StatfsOut, 80 {
        blocks: u64 = 0, bfree: u64 = 8, bavail: u64 = 16, files: u64 = 24, ffree: u64 = 32,
        bsize: u32 = 40, namelen: u32 = 44, frsize: u32 = 48, padding: u32 = 52, spare: [u32; 6] = 56,
    }
}
wire! {
    /// `struct fuse_dirent` without its name, which follows, padded to 8 bytes.
    Dirent, 24 { ino: u64 = 0, off: u64 = 8, namelen: u32 = 16, kind: u32 = 20, }
}
wire! {
    /// `struct fuse_notify_store_out`.
    StoreOut, 24 { nodeid: u64 = 0, offset: u64 = 8, size: u32 = 16, padding: u32 = 20, }
}

/// `FUSE_UNIQUE_RESEND`: marks the number of a request that is sent again.
const UNIQUE_RESEND: u64 = 1 << 63;

/// One message of the kernel, its length checked.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The header.
    pub(crate) header: InHeader,
    /// What follows it.
    pub(crate) body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Takes one message apart. `None` when the bytes are not exactly one message: a kernel never
    /// sends that, and there is then no trustworthy `unique` to answer to.
    pub(crate) fn parse(message: &'a [u8]) -> Option<Self> {
        let (header, body) = InHeader::read_from_prefix(message).ok()?;
        (header.len as usize == message.len()).then_some(Self { header, body })
    }

    /// Whether the kernel sends it again, after [`notify::RESEND`].
    pub(crate) fn is_resent(&self) -> bool {
        self.header.unique & UNIQUE_RESEND != 0
    }

    /// The body's fixed struct. `None` when the body is too short for it.
    pub(crate) fn body_as<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.body).ok().map(|(value, _)| value)
    }

    /// The body as a NUL-terminated name (LOOKUP). `None` when no NUL ends it.
    pub(crate) fn name(&self) -> Option<&'a [u8]> {
        let end = self.body.iter().position(|&byte| byte == 0)?;
        Some(&self.body[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u32, body: &[u8]) -> Vec<u8> {
        let header = InHeader { len, opcode: opcode::LOOKUP, unique: 7, nodeid: 1, ..Default::default() };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn a_message_must_be_as_long_as_it_says() {
        let bytes = message(46, b"abcde\0");
        assert_eq!(Request::parse(&bytes).unwrap().name(), Some(&b"abcde"[..]));
        assert!(Request::parse(&bytes[..45]).is_none());
        assert!(Request::parse(&bytes[..39]).is_none());
        assert!(Request::parse(&[]).is_none());
        assert!(Request::parse(&message(41, b"")).is_none());
    }

    #[test]
    fn short_bodies_are_refused() {
        let bytes = message(44, b"abcd");
        let request = Request::parse(&bytes).unwrap();
        assert!(request.name().is_none(), "no NUL ends the name");
        assert!(request.body_as::<OpenIn>().is_none());
        assert!(request.body_as::<ReadIn>().is_none());
    }
}
