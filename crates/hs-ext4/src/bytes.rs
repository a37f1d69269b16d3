//! Numbers and checksums in the structures of a file system.

use hs_units::{BLOCK_BYTES, to_usize};

/// Bytes of a block.
pub(crate) const BLOCK: usize = to_usize(BLOCK_BYTES);

/// A block under construction.
pub(crate) type Block = [u8; BLOCK];

/// Puts a number into fields of so many bytes each, the lowest bytes into the first: ext4 keeps the upper
/// half of many numbers apart. What does not fit must be zero.
pub(crate) fn put(bytes: &mut [u8], value: u64, fields: &[(usize, usize)]) {
    let little = value.to_le_bytes();
    let mut taken = 0;
    for &(at, len) in fields {
        bytes[at..at + len].copy_from_slice(&little[taken..taken + len]);
        taken += len;
    }
    assert!(little[taken..].iter().all(|&byte| byte == 0), "{value} does not fit into {taken} bytes");
}

/// ext4's CRC-32C: a seed is a finished checksum that goes on, without the usual inversions.
pub(crate) fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// The seed of checksums in what belongs to an inode: its number, and its generation, which is 0.
pub(crate) fn inode_seed(seed: u32, inode: u32) -> u32 {
    checksum(checksum(seed, &inode.to_le_bytes()), &[0; 4])
}
