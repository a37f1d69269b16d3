//! One inode. Offsets from the kernel's documentation, ext4, "Index Nodes".

use hs_units::to_u32;

use super::super::tree::Timestamp;
use super::{checksum, u16_at, u32_at};

/// Size of an inode in the table.
pub(super) const BYTES: usize = 256;

const MODE: usize = 0x0;
const UID: usize = 0x2;
const SIZE: usize = 0x4;
const ATIME: usize = 0x8;
const CTIME: usize = 0xc;
const MTIME: usize = 0x10;
const GID: usize = 0x18;
const VERSION: usize = 0x24;
const GENERATION: usize = 0x64;
const ATTRIBUTE_BLOCK: usize = 0x68;
const SIZE_HIGH: usize = 0x6c;
const ATTRIBUTE_BLOCK_HIGH: usize = 0x76;
const UID_HIGH: usize = 0x78;
const GID_HIGH: usize = 0x7a;
const CHECKSUM: usize = 0x7c;
const EXTRA_BYTES: usize = 0x80;
const CHECKSUM_HIGH: usize = 0x82;
const CTIME_EXTRA: usize = 0x84;
const MTIME_EXTRA: usize = 0x88;
const ATIME_EXTRA: usize = 0x8c;
const CRTIME: usize = 0x90;
const CRTIME_EXTRA: usize = 0x94;
const VERSION_HIGH: usize = 0x98;

/// Extra bytes of the inodes that mke2fs makes: up to and with the project number.
pub(super) const EXTRA_SIZE: usize = 32;

/// An inode as it lies in its table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Inode {
    number: u32,
    bytes: [u8; BYTES],
}

impl Inode {
    pub(super) fn new(number: u32, bytes: [u8; BYTES]) -> Self {
        Self { number, bytes }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn bytes(&self) -> &[u8; BYTES] {
        &self.bytes
    }

    /// Where extended attributes go.
    pub(super) fn attribute_area(&mut self) -> &mut [u8] {
        &mut self.bytes[EXTRA_BYTES + EXTRA_SIZE..]
    }

    /// Whether it has the extra bytes that hold fine times and the upper half of the checksum.
    pub(in super::super) fn has_extra_bytes(&self) -> bool {
        usize::from(u16_at(&self.bytes, EXTRA_BYTES)) == EXTRA_SIZE
    }

    pub(in super::super) fn mode(&self) -> u32 {
        u32::from(u16_at(&self.bytes, MODE))
    }

    pub(in super::super) fn uid(&self) -> u32 {
        u32::from(u16_at(&self.bytes, UID)) | u32::from(u16_at(&self.bytes, UID_HIGH)) << 16
    }

    pub(in super::super) fn gid(&self) -> u32 {
        u32::from(u16_at(&self.bytes, GID)) | u32::from(u16_at(&self.bytes, GID_HIGH)) << 16
    }

    /// Size of the file or directory in bytes.
    pub(in super::super) fn size(&self) -> u64 {
        u64::from(u32_at(&self.bytes, SIZE)) | u64::from(u32_at(&self.bytes, SIZE_HIGH)) << 32
    }

    /// The block with attributes that found no room in the inode; 0 for none.
    pub(super) fn attribute_block(&self) -> u64 {
        u64::from(u32_at(&self.bytes, ATTRIBUTE_BLOCK))
            | u64::from(u16_at(&self.bytes, ATTRIBUTE_BLOCK_HIGH)) << 32
    }

    /// Sets permissions and owner; the type stays.
    pub(in super::super) fn set_owner(&mut self, mode: u32, uid: u32, gid: u32) {
        let mode = (self.mode() & 0o170_000) | (mode & 0o7777);
        let [low, high, ..] = mode.to_le_bytes();
        self.put(MODE, [low, high]);
        self.put_halves((UID, UID_HIGH), uid);
        self.put_halves((GID, GID_HIGH), gid);
    }

    /// Sets all four times to `time` and the change counter to 0.
    pub(in super::super) fn set_times(&mut self, time: Timestamp) {
        let (seconds, extra) = encode_time(time);
        for field in [ATIME, CTIME, MTIME, CRTIME] {
            self.put_u32(field, seconds);
        }
        for field in [ATIME_EXTRA, CTIME_EXTRA, MTIME_EXTRA, CRTIME_EXTRA] {
            self.put_u32(field, extra);
        }
        self.put_u32(VERSION, 0);
        self.put_u32(VERSION_HIGH, 0);
    }

    /// The checksum is over the file system's seed, the number, the generation and the inode without it.
    pub(super) fn update_checksum(&mut self, seed: u32) {
        self.put_halves((CHECKSUM, CHECKSUM_HIGH), 0);
        let seed = checksum(seed, &self.number.to_le_bytes());
        let seed = checksum(seed, &self.bytes[GENERATION..GENERATION + 4]);
        let sum = checksum(seed, &self.bytes);
        self.put_halves((CHECKSUM, CHECKSUM_HIGH), sum);
    }

    /// Puts a number of 32 bits into two fields, of which the second one has its upper half.
    fn put_halves(&mut self, (low_field, high_field): (usize, usize), value: u32) {
        let [low, second, third, high] = value.to_le_bytes();
        self.put(low_field, [low, second]);
        self.put(high_field, [third, high]);
    }

    fn put_u32(&mut self, offset: usize, value: u32) {
        self.put(offset, value.to_le_bytes());
    }

    fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        self.bytes[offset..offset + N].copy_from_slice(&bytes);
    }
}

/// Seconds are 32 signed bits and two more in the extra field, of which the other 30 are nanoseconds: from
/// 1901 to 2446. Times outside are moved to the nearest end. (Kernel documentation, "Inode Timestamps".)
fn encode_time(time: Timestamp) -> (u32, u32) {
    let lowest = i64::from(i32::MIN);
    let seconds = time.seconds.clamp(lowest, lowest + (1 << 34) - 1);
    let low = to_u32(seconds.cast_unsigned() & u64::from(u32::MAX));
    let epoch = ((seconds - i64::from(low.cast_signed())) >> 32) as u32 & 3;
    (low, time.nanoseconds << 2 | epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the kernel's documentation, ext4, "Inode Timestamps".
    #[test]
    fn seconds_beyond_32_bits_use_the_epoch_bits() {
        let encode = |seconds| encode_time(Timestamp { seconds, nanoseconds: 0 });
        assert_eq!(encode(-1), (0xffff_ffff, 0));
        assert_eq!(encode(0x7fff_ffff), (0x7fff_ffff, 0));
        assert_eq!(encode(0x8000_0000), (0x8000_0000, 1));
        assert_eq!(encode(0x1_0000_0000), (0, 1));
        assert_eq!(encode(0x3_7fff_ffff), (0x7fff_ffff, 3));
        assert_eq!(encode(i64::MAX), (0x7fff_ffff, 3));
        assert_eq!(encode(i64::MIN), (0x8000_0000, 0));
        assert_eq!(encode_time(Timestamp { seconds: 0, nanoseconds: 999_999_999 }).1, 999_999_999 << 2);
    }
}
