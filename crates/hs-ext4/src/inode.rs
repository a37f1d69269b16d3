//! One inode. Offsets from the kernel's documentation, "Index Nodes".

use hs_units::to_u32;

use crate::bytes::{checksum, inode_seed, put};
use crate::plan::{Node, Time};
use crate::values::Value;

/// Size of an inode in the table.
pub(crate) const BYTES: usize = 256;
/// Extra bytes, up to and with the project number.
pub(crate) const EXTRA_BYTES: usize = 32;
/// Where a target, the number of a device or the root of a tree of extents lies.
pub(crate) const MAP: usize = 0x28;
pub(crate) const MAP_BYTES: usize = 60;
/// Where attributes begin.
const ATTRIBUTES: usize = 128 + EXTRA_BYTES;

/// Bits of the mode that say the type.
pub(crate) const TYPE: u16 = 0xf000;
pub(crate) const FIFO: u16 = 0x1000;
pub(crate) const CHARACTER_DEVICE: u16 = 0x2000;
pub(crate) const DIRECTORY: u16 = 0x4000;
pub(crate) const BLOCK_DEVICE: u16 = 0x6000;
pub(crate) const REGULAR: u16 = 0x8000;
pub(crate) const SYMLINK: u16 = 0xa000;
pub(crate) const SOCKET: u16 = 0xc000;

/// `EXT4_EXTENTS_FL`.
pub(crate) const FLAG_EXTENTS: u32 = 0x8_0000;
/// `EXT4_INDEX_FL`.
pub(crate) const FLAG_INDEX: u32 = 0x1000;

/// `EXT4_EA_INODE_FL`: it holds the value of an attribute.
const FLAG_VALUE: u32 = 0x20_0000;

/// Sectors of 512 bytes in a block.
const BLOCK_SECTORS: u64 = 8;
/// A directory with more names of its own than this has the number 1 (the feature `dir_nlink`).
const MOST_DIRECTORY_LINKS: u32 = 65_000;

/// A time in the two fields of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EncodedTime {
    seconds: u32,
    extra: u32,
}

/// Seconds are 32 signed bits and two more in the extra field, of which the other 30 are nanoseconds: from
/// 1901 to 2446. Says whether the time had to be moved to the nearest end. (Kernel documentation, "Inode
/// Timestamps".)
pub(crate) fn encode_time(time: Time) -> (EncodedTime, bool) {
    let lowest = i64::from(i32::MIN);
    let seconds = time.seconds.clamp(lowest, lowest + (1 << 34) - 1);
    let low = to_u32(seconds.cast_unsigned() & u64::from(u32::MAX));
    let epoch = to_u32(((seconds - i64::from(low.cast_signed())) >> 32).cast_unsigned() & 3);
    (EncodedTime { seconds: low, extra: time.nanoseconds << 2 | epoch }, seconds != time.seconds)
}

/// What an inode says besides what its [`Node`] has.
pub(crate) struct Placed<'a> {
    pub(crate) number: u32,
    pub(crate) flags: u32,
    pub(crate) map: [u8; MAP_BYTES],
    /// Blocks outside the inode, with those of attributes and of the tree of extents.
    pub(crate) blocks: u64,
    /// The block with attributes, or 0.
    pub(crate) attribute_block: u64,
    pub(crate) attributes: Option<&'a crate::attributes::AttributeSet>,
}

/// Writes an inode into its place, which is zeros.
pub(crate) fn write(node: &Node, placed: &Placed<'_>, seed: u32, bytes: &mut [u8]) {
    let mut put = |value, fields: &[(usize, usize)]| put(bytes, value, fields);
    put(node.mode.into(), &[(0x0, 2)]);
    put(node.uid.into(), &[(0x2, 2), (0x78, 2)]);
    put(node.gid.into(), &[(0x18, 2), (0x7a, 2)]);
    put(node.size, &[(0x4, 4), (0x6c, 4)]);
    let links = if node.is(DIRECTORY) && node.links > MOST_DIRECTORY_LINKS { 1 } else { node.links };
    put(links.into(), &[(0x1a, 2)]);
    put(placed.blocks * BLOCK_SECTORS, &[(0x1c, 4), (0x74, 2)]);
    put(placed.flags.into(), &[(0x20, 4)]);
    put(placed.attribute_block, &[(0x68, 4), (0x76, 2)]);
    put(EXTRA_BYTES as u64, &[(0x80, 2)]);
    // Times of access, change, modification and creation.
    for (seconds, extra) in [(0x8, 0x8c), (0xc, 0x84), (0x10, 0x88), (0x90, 0x94)] {
        put(node.time.seconds.into(), &[(seconds, 4)]);
        put(node.time.extra.into(), &[(extra, 4)]);
    }
    bytes[MAP..MAP + MAP_BYTES].copy_from_slice(&placed.map);
    if let Some(set) = placed.attributes {
        crate::attributes::write_in_inode(set, &mut bytes[ATTRIBUTES..]);
    }
    let sum = checksum(inode_seed(seed, placed.number), bytes);
    crate::bytes::put(bytes, sum.into(), &[(0x7c, 2), (0x82, 2)]);
}

/// Writes the inode of an attribute's value. The checksum of the value lies in the time of access, and how
/// often it is referred to in the version (`ext4_xattr_inode_set_hash`, `ext4_xattr_inode_set_ref`).
pub(crate) fn write_value(value: &Value, number: u32, map: [u8; MAP_BYTES], seed: u32, bytes: &mut [u8]) {
    let mut put = |value: u64, fields: &[(usize, usize)]| put(bytes, value, fields);
    put((REGULAR | 0o600).into(), &[(0x0, 2)]);
    put(value.bytes.len() as u64, &[(0x4, 4)]);
    put(checksum(seed, &value.bytes).into(), &[(0x8, 4)]);
    put(1, &[(0x1a, 2)]);
    put(value.blocks() * BLOCK_SECTORS, &[(0x1c, 4)]);
    put((FLAG_EXTENTS | FLAG_VALUE).into(), &[(0x20, 4)]);
    put(value.references.into(), &[(0x24, 4)]);
    put(EXTRA_BYTES as u64, &[(0x80, 2)]);
    bytes[MAP..MAP + MAP_BYTES].copy_from_slice(&map);
    let sum = checksum(inode_seed(seed, number), bytes);
    crate::bytes::put(bytes, sum.into(), &[(0x7c, 2), (0x82, 2)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the kernel's documentation, "Inode Timestamps".
    #[test]
    fn seconds_beyond_32_bits_use_the_epoch_bits() {
        let encode = |seconds| {
            let (time, moved) = encode_time(Time { seconds, nanoseconds: 0 });
            (time.seconds, time.extra, moved)
        };
        assert_eq!(encode(-1), (0xffff_ffff, 0, false));
        assert_eq!(encode(0x7fff_ffff), (0x7fff_ffff, 0, false));
        assert_eq!(encode(0x8000_0000), (0x8000_0000, 1, false));
        assert_eq!(encode(0x1_0000_0000), (0, 1, false));
        assert_eq!(encode(0x3_7fff_ffff), (0x7fff_ffff, 3, false));
        assert_eq!(encode(0x3_8000_0000), (0x7fff_ffff, 3, true));
        assert_eq!(encode(i64::from(i32::MIN)), (0x8000_0000, 0, false));
        assert_eq!(encode(i64::MIN), (0x8000_0000, 0, true));
        let fine = Time { seconds: 0, nanoseconds: 999_999_999 };
        assert_eq!(encode_time(fine).0.extra, 999_999_999 << 2);
    }
}
