//! What the kernel and a server say to each other: linux/ublk_cmd.h. Numbers are the machine's own.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `_IOC`: a command that is read, written or both, by its number and the bytes of its argument.
const fn command(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

const READ: u32 = 2;
const BOTH: u32 = 3;

pub(super) const GET_DEV_INFO: u32 = command(READ, 0x02, size_of::<ControlCommand>());
pub(super) const ADD_DEV: u32 = command(BOTH, 0x04, size_of::<ControlCommand>());
pub(super) const DEL_DEV: u32 = command(BOTH, 0x05, size_of::<ControlCommand>());
pub(super) const START_DEV: u32 = command(BOTH, 0x06, size_of::<ControlCommand>());
pub(super) const STOP_DEV: u32 = command(BOTH, 0x07, size_of::<ControlCommand>());
pub(super) const SET_PARAMS: u32 = command(BOTH, 0x08, size_of::<ControlCommand>());
pub(super) const START_USER_RECOVERY: u32 = command(BOTH, 0x10, size_of::<ControlCommand>());
pub(super) const END_USER_RECOVERY: u32 = command(BOTH, 0x11, size_of::<ControlCommand>());
pub(super) const DEL_DEV_ASYNC: u32 = command(READ, 0x14, size_of::<ControlCommand>());
pub(super) const FETCH: u32 = command(BOTH, 0x20, size_of::<QueueCommand>());
pub(super) const COMMIT_AND_FETCH: u32 = command(BOTH, 0x21, size_of::<QueueCommand>());

pub(super) const F_USER_RECOVERY: u64 = 1 << 3;
pub(super) const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
pub(super) const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
pub(super) const F_USER_COPY: u64 = 1 << 7;

pub(super) const STATE_DEAD: u16 = 0;
pub(super) const STATE_LIVE: u16 = 1;

pub(super) const PARAM_BASIC: u32 = 1;
pub(super) const ATTRIBUTE_READ_ONLY: u32 = 1;

pub(super) const OP_READ: u32 = 0;
pub(super) const OP_FLUSH: u32 = 2;
pub(super) const OP_MASK: u32 = 0xff;

/// A queue's descriptors lie so far behind those of the queue before it.
pub(super) const MOST_DEPTH: usize = 4096;
/// The bytes of requests lie here in the character device: queue, tag and place in the request.
pub(super) const BYTES_AT: u64 = 0x8000_0000;
pub(super) const TAG_SHIFT: u32 = 25;
pub(super) const QUEUE_SHIFT: u32 = 41;

/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    pub(super) queue: u16,
    pub(super) len: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) pad0: u16,
    pub(super) most_bytes: u32,
    pub(super) device: u32,
    pub(super) process: i32,
    pub(super) pad1: u32,
    pub(super) flags: u64,
    /// The server's own: the kernel keeps it.
    pub(super) mark: u64,
    pub(super) owner_user: u32,
    pub(super) owner_group: u32,
    pub(super) reserved: [u64; 2],
}

/// `struct ublk_params`, with the basic ones.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Parameters {
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) attributes: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) optimal_shift: u8,
    pub(super) least_shift: u8,
    pub(super) most_sectors: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) boundary_mask: u64,
}

/// `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct QueueCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    pub(super) address: u64,
}

/// `struct ublksrv_io_desc`.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) op_and_flags: u32,
    pub(super) sectors: u32,
    pub(super) first_sector: u64,
    pub(super) address: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_those_of_the_header() {
        // As a C compiler evaluates the header's macros.
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(size_of::<DeviceInfo>(), 64);
        assert_eq!(size_of::<Parameters>(), 40);
        assert_eq!(size_of::<Descriptor>(), 24);
    }
}
