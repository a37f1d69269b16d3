//! What the device is: its features, and its configuration space (virtio 1.2, 5.2.3 and 5.2.4).

use vhost::vhost_user::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};

/// What the driver counts in.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// The largest queue: what QEMU has at most.
pub(crate) const MOST_QUEUE_ENTRIES: u16 = 1024;
/// Queues of a device at most.
pub const MOST_QUEUES: u16 = 64;
/// Buffers for the data of a request: a queue of QEMU's size, 128, has room for so many beside the header and
/// the status.
const SEG_MAX: u32 = 126;
/// Blocks of the image are 4 KiB: eight sectors.
const PHYSICAL_BLOCK_EXP: u8 = 3;
/// What one request discards or zeroes at most: 1 GiB.
const MOST_ZERO_SECTORS: u32 = 1 << 21;
/// What a front end may ask for (`VHOST_USER_MAX_CONFIG_SIZE`).
const CONFIG_BYTES: usize = 256;

const F_SEG_MAX: u64 = 1 << 2;
const F_RO: u64 = 1 << 5;
const F_BLK_SIZE: u64 = 1 << 6;
pub(crate) const F_FLUSH: u64 = 1 << 9;
const F_TOPOLOGY: u64 = 1 << 10;
const F_MQ: u64 = 1 << 12;
const F_DISCARD: u64 = 1 << 13;
const F_WRITE_ZEROES: u64 = 1 << 14;
const RING_F_INDIRECT_DESC: u64 = 1 << 28;
pub(crate) const RING_F_EVENT_IDX: u64 = 1 << 29;
const F_VERSION_1: u64 = 1 << 32;

/// What the device can do.
pub(crate) fn features(is_writable: bool) -> u64 {
    let changes = if is_writable { F_DISCARD | F_WRITE_ZEROES } else { F_RO };
    changes
        | F_SEG_MAX
        | F_BLK_SIZE
        | F_FLUSH
        | F_TOPOLOGY
        | F_MQ
        | RING_F_INDIRECT_DESC
        | RING_F_EVENT_IDX
        | F_VERSION_1
        | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
}

/// What the protocol can do.
pub(crate) fn protocol_features() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
}

/// A part of the configuration space.
pub(crate) fn space(disk_bytes: u64, queues: u16, offset: u32, len: u32) -> Vec<u8> {
    let mut space = [0; CONFIG_BYTES];
    space[0..8].copy_from_slice(&(disk_bytes / SECTOR_BYTES).to_le_bytes());
    space[12..16].copy_from_slice(&SEG_MAX.to_le_bytes());
    space[20..24].copy_from_slice(&(SECTOR_BYTES as u32).to_le_bytes());
    space[24] = PHYSICAL_BLOCK_EXP;
    space[26..28].copy_from_slice(&(1_u16 << PHYSICAL_BLOCK_EXP).to_le_bytes());
    space[34..36].copy_from_slice(&queues.to_le_bytes());
    // Discards, and zeros: sectors and ranges of a request at most. What is aligned to blocks costs least.
    let alignment = 1 << PHYSICAL_BLOCK_EXP;
    for (number, value) in [MOST_ZERO_SECTORS, 1, alignment, MOST_ZERO_SECTORS, 1].into_iter().enumerate() {
        space[36 + 4 * number..][..4].copy_from_slice(&u32::to_le_bytes(value));
    }
    // Zeros may be holes.
    space[56] = 1;
    let start = (offset as usize).min(CONFIG_BYTES);
    let end = start.saturating_add(len as usize).min(CONFIG_BYTES);
    space[start..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_space_are_cut_at_its_end() {
        let whole = space(4096 * 10, 3, 0, 60);
        assert_eq!(whole.len(), 60);
        assert_eq!(&whole[0..8], &[80, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&whole[20..24], &[0, 2, 0, 0]);
        assert_eq!(&whole[34..36], &[3, 0]);
        assert_eq!(
            &whole[36..60],
            &[0, 0, 32, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 32, 0, 1, 0, 0, 0, 1, 0, 0, 0]
        );
        assert_eq!(space(4096 * 10, 3, 34, 2), [3, 0]);
        assert_eq!(space(1, 1, 250, 60).len(), 6);
        assert_eq!(space(1, 1, u32::MAX, u32::MAX), []);
    }
}
