//! The numbers and layouts of the NBD protocol, after its specification (doc/proto.md of the project
//! NetworkBlockDevice/nbd). Everything is big-endian.

/// What a server says first.
pub(super) const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Before every option, and in the server's greeting.
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before every reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before every request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Flags of the greeting, by both sides.
pub(super) const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// No 124 zeros after `NBD_OPT_EXPORT_NAME`.
pub(super) const FLAG_NO_ZEROES: u16 = 2;

/// Options of the handshake.
pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options.
pub(super) mod option_reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub(crate) const ERR_UNSUP: u32 = ERROR | 1;
    pub(crate) const ERR_INVALID: u32 = ERROR | 3;
    pub(crate) const ERR_TLS_REQD: u32 = ERROR | 5;
    pub(crate) const ERR_UNKNOWN: u32 = ERROR | 6;
    pub(crate) const ERR_TOO_BIG: u32 = ERROR | 9;
}

/// Facts about an export in answers to `NBD_OPT_INFO` and `NBD_OPT_GO`.
pub(super) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// What an export can do.
pub(super) mod transmission {
    const HAS_FLAGS: u16 = 1;
    const READ_ONLY: u16 = 1 << 1;
    const SEND_FLUSH: u16 = 1 << 2;
    const SEND_FUA: u16 = 1 << 3;
    const SEND_TRIM: u16 = 1 << 5;
    const SEND_WRITE_ZEROES: u16 = 1 << 6;
    const SEND_DF: u16 = 1 << 7;
    const CAN_MULTI_CONN: u16 = 1 << 8;
    const SEND_CACHE: u16 = 1 << 10;
    const SEND_FAST_ZERO: u16 = 1 << 11;

    /// `NBD_FLAG_SEND_DF` only goes with structured replies. `NBD_FLAG_CAN_MULTI_CONN` is true of a writable
    /// export too: all connections share one disk, and a flush is about what all of them have written.
    pub(crate) const fn flags(structured: bool, writable: bool) -> u16 {
        let df = if structured { SEND_DF } else { 0 };
        let writes = SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
        HAS_FLAGS | CAN_MULTI_CONN | SEND_CACHE | df | if writable { writes } else { READ_ONLY }
    }
}

/// Requests.
pub(super) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
    /// It is answered when it is on the medium.
    pub(crate) const FLAG_FUA: u16 = 1;
    /// The range is not to become a hole.
    pub(crate) const FLAG_NO_HOLE: u16 = 1 << 1;
    /// The answer is to be one chunk.
    pub(crate) const FLAG_DF: u16 = 1 << 2;
    /// Block status of one extent.
    pub(crate) const FLAG_REQ_ONE: u16 = 1 << 3;
    /// Zeros are not to be written if that takes as long as writing data.
    pub(crate) const FLAG_FAST_ZERO: u16 = 1 << 4;
}

/// Kinds of chunks of a structured reply.
mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = 1 << 15 | 1;
    pub(crate) const ERROR_OFFSET: u16 = 1 << 15 | 2;
    pub(crate) const FLAG_DONE: u16 = 1;
}

/// Errors as the protocol numbers them, which is as Linux does.
pub mod errno {
    /// Not permitted: a write.
    pub const EPERM: u32 = 1;
    /// The bytes cannot be had.
    pub const EIO: u32 = 5;
    /// The request makes no sense.
    pub const EINVAL: u32 = 22;
    /// There is no space for a write, or it lies beyond the end of the disk.
    pub const ENOSPC: u32 = 28;
    /// The answer does not fit into one chunk.
    pub const EOVERFLOW: u32 = 75;
    /// The server is about to end.
    pub const ESHUTDOWN: u32 = 108;
}

/// The one metadata context, `base:allocation`, and its flags.
pub(super) const ALLOCATION_CONTEXT: &str = "base:allocation";
/// Its number in requests of this server.
pub(super) const ALLOCATION_ID: u32 = 1;
/// A hole that reads as zeros.
const STATE_HOLE_ZERO: u32 = 1 | 2;

/// How one request is answered: gives the bytes before the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The client's number of the request.
    pub cookie: u64,
    /// In chunks, which may come in any order, or whole.
    pub structured: bool,
}

impl Reply {
    /// Before `len` bytes of the disk from `offset` on. Not structured, these must be all that was asked for.
    #[must_use]
    pub fn data(self, offset: u64, len: u32, done: bool) -> Vec<u8> {
        if !self.structured {
            return self.simple(0);
        }
        let mut header = self.chunk(chunk::OFFSET_DATA, 8 + len, done);
        header.extend(offset.to_be_bytes());
        header
    }

    /// Nothing more to say.
    #[must_use]
    pub fn done(self) -> Vec<u8> {
        if self.structured { self.chunk(chunk::NONE, 0, true) } else { self.simple(0) }
    }

    /// The request failed.
    #[must_use]
    pub fn error(self, errno: u32) -> Vec<u8> {
        if !self.structured {
            return self.simple(errno);
        }
        let mut bytes = self.chunk(chunk::ERROR, 6, true);
        bytes.extend(errno.to_be_bytes());
        bytes.extend(0_u16.to_be_bytes());
        bytes
    }

    /// The part of a structured read that begins at `offset` failed.
    #[must_use]
    pub fn error_at(self, errno: u32, offset: u64, done: bool) -> Vec<u8> {
        let mut bytes = self.chunk(chunk::ERROR_OFFSET, 14, done);
        bytes.extend(errno.to_be_bytes());
        bytes.extend(0_u16.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes
    }

    /// What `base:allocation` says of consecutive extents: their lengths, and whether each is a hole.
    #[must_use]
    pub fn allocation(self, extents: &[(u32, bool)]) -> Vec<u8> {
        let mut bytes = self.chunk(chunk::BLOCK_STATUS, 4 + 8 * extents.len() as u32, true);
        bytes.extend(ALLOCATION_ID.to_be_bytes());
        for (len, hole) in extents {
            bytes.extend(len.to_be_bytes());
            bytes.extend(if *hole { STATE_HOLE_ZERO } else { 0 }.to_be_bytes());
        }
        bytes
    }

    fn simple(self, errno: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        bytes.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes.extend(errno.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes
    }

    fn chunk(self, kind: u16, payload_bytes: u32, done: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend(CHUNK_MAGIC.to_be_bytes());
        bytes.extend(if done { chunk::FLAG_DONE } else { 0 }.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(payload_bytes.to_be_bytes());
        bytes
    }
}
