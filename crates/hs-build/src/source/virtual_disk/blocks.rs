//! What all formats come to: a disk in blocks of one size, and where in the file each lies.

use std::io::Read;

use hs_units::{ByteRange, to_usize};

use super::fault::VirtualDiskFault;
use crate::source::qcow2::file::{Bytes, push};

/// The most blocks of a disk: eight bytes of memory each.
pub(super) const MOST_BLOCKS: u64 = 16 << 20;
/// Sizes of blocks that are taken.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=256 << 20;
/// The largest compressed block: it is unpacked as a whole.
const MOST_PACKED_BYTES: u64 = 16 << 20;
/// In front of a compressed block: its place on the disk (8 bytes), and its size (4).
const MARKER_BYTES: usize = 12;
/// A compressed block begins with one.
const SECTOR_BYTES: u64 = 512;

/// Where the blocks of a disk lie.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) disk_bytes: u64,
    block_bytes: u64,
    /// Offsets in the file; 0 for zeros.
    places: Vec<u64>,
    is_packed: bool,
}

impl Blocks {
    /// A disk that is zeros.
    pub(super) fn new(disk_bytes: u64, block_bytes: u64, is_packed: bool) -> Result<Self, VirtualDiskFault> {
        let is_size = block_bytes.is_power_of_two() && BLOCK_BYTES.contains(&block_bytes);
        if !is_size || (is_packed && block_bytes > MOST_PACKED_BYTES) {
            return Err(VirtualDiskFault::Damaged("size of parts"));
        }
        let blocks = disk_bytes.div_ceil(block_bytes);
        if blocks > MOST_BLOCKS {
            return Err(VirtualDiskFault::LargeDisk { bytes: disk_bytes, block_bytes });
        }
        Ok(Self { disk_bytes, block_bytes, places: vec![0; to_usize(blocks)], is_packed })
    }

    /// A disk that lies in the file as it is, from an offset on.
    pub(super) fn plain(disk_bytes: u64, offset: u64) -> Self {
        // It is one block.
        Self { disk_bytes, block_bytes: u64::MAX, places: vec![offset], is_packed: false }
    }

    pub(super) const fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Says where a block lies; what is behind the last one is ignored.
    pub(super) fn place(&mut self, block: usize, offset: u64) {
        if let Some(place) = self.places.get_mut(block) {
            *place = offset;
        }
    }

    /// What the blocks take in the file at least, where no two share a place. The last one may be cut.
    fn least_stored_bytes(&self) -> u64 {
        if self.is_plain() {
            return 0;
        }
        let each = if self.is_packed { SECTOR_BYTES } else { self.block_bytes };
        let stored = self.places.iter().filter(|&&place| place != 0).count() as u64;
        stored.saturating_sub(1).saturating_mul(each)
    }

    fn is_plain(&self) -> bool {
        self.block_bytes == u64::MAX
    }

    /// Where the disk may hold anything but zeros.
    pub(super) fn ranges(&self) -> Vec<ByteRange> {
        if self.is_plain() {
            return vec![ByteRange::new(0, self.disk_bytes)];
        }
        let mut ranges = Vec::new();
        for (block, &place) in (0..).zip(&self.places) {
            let start = block * self.block_bytes;
            if place != 0 {
                push(&mut ranges, start, self.block_bytes.min(self.disk_bytes - start));
            }
        }
        ranges
    }
}

/// A disk that is read from a file.
pub(super) struct BlockDisk<B> {
    from: B,
    file_bytes: u64,
    blocks: Blocks,
    /// The block that was unpacked last: where it lies in the file.
    unpacked: Option<(u64, Vec<u8>)>,
}

impl<B: Bytes> BlockDisk<B> {
    /// Refuses a small file that has a disk without end: one whose blocks lie in one place.
    pub(super) fn new(from: B, blocks: Blocks) -> Result<Self, VirtualDiskFault> {
        let file_bytes = from.len();
        if blocks.least_stored_bytes() > file_bytes {
            return Err(VirtualDiskFault::SharedParts { file_bytes });
        }
        Ok(Self { file_bytes, from, blocks, unpacked: None })
    }

    pub(super) const fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Fills `buf` from `offset`; behind the end of the disk are zeros.
    pub(super) fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), VirtualDiskFault> {
        let there = to_usize(self.blocks.disk_bytes.saturating_sub(offset).min(buf.len() as u64));
        let (mut rest, missing) = buf.split_at_mut(there);
        missing.fill(0);
        if self.blocks.is_plain() {
            return read(&self.from, self.blocks.places[0].saturating_add(offset), rest);
        }
        let mut at = offset;
        while !rest.is_empty() {
            let within = at % self.blocks.block_bytes;
            let here = to_usize((self.blocks.block_bytes - within).min(rest.len() as u64));
            let (piece, later) = rest.split_at_mut(here);
            match self.blocks.places[to_usize(at / self.blocks.block_bytes)] {
                0 => piece.fill(0),
                place if self.blocks.is_packed => {
                    piece.copy_from_slice(&self.unpack(place)?[to_usize(within)..][..here]);
                }
                place => self.read_stored(place.saturating_add(within), piece)?,
            }
            at += here as u64;
            rest = later;
        }
        Ok(())
    }

    fn read_stored(&self, offset: u64, buf: &mut [u8]) -> Result<(), VirtualDiskFault> {
        if offset >= self.file_bytes {
            return Err(VirtualDiskFault::OutOfFile { what: "a part", offset });
        }
        // The last block of a file may be shorter: the rest are zeros.
        let stored = to_usize((self.file_bytes - offset).min(buf.len() as u64));
        let (stored, rest) = buf.split_at_mut(stored);
        rest.fill(0);
        read(&self.from, offset, stored)
    }

    fn unpack(&mut self, offset: u64) -> Result<&[u8], VirtualDiskFault> {
        if self.unpacked.as_ref().is_none_or(|(known, _)| *known != offset) {
            self.unpacked = None;
            let mut marker = [0; MARKER_BYTES];
            read(&self.from, offset, &mut marker)?;
            let bytes = u64::from(u32::from_le_bytes([marker[8], marker[9], marker[10], marker[11]]));
            // What does not compress grows by a little.
            if bytes > 2 * self.blocks.block_bytes {
                return Err(VirtualDiskFault::Compressed { offset });
            }
            let mut stored = vec![0; to_usize(bytes)];
            // The marker lies in the file, so this does not overflow.
            read(&self.from, offset + MARKER_BYTES as u64, &mut stored)?;
            let mut block = Vec::with_capacity(to_usize(self.blocks.block_bytes));
            let decoder = flate2::bufread::ZlibDecoder::new(&stored[..]);
            let unpacked = decoder.take(self.blocks.block_bytes).read_to_end(&mut block);
            unpacked.map_err(|_| VirtualDiskFault::Compressed { offset })?;
            // The last block of a disk may end with it.
            block.resize(to_usize(self.blocks.block_bytes), 0);
            self.unpacked = Some((offset, block));
        }
        let Some((_, block)) = &self.unpacked else { unreachable!("it has just been unpacked") };
        Ok(block)
    }
}

/// Reads a part of the file.
pub(super) fn read<B: Bytes>(from: &B, offset: u64, buf: &mut [u8]) -> Result<(), VirtualDiskFault> {
    let bytes = buf.len() as u64;
    from.read_exact_at(buf, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => VirtualDiskFault::OutOfFile { what: "something", offset },
        _ => VirtualDiskFault::Read { offset, bytes, error },
    })
}

/// Reads a table of so many bytes, which the file must have before memory is taken for it.
pub(super) fn read_table<B: Bytes>(
    from: &B,
    what: &'static str,
    offset: u64,
    bytes: u64,
) -> Result<Vec<u8>, VirtualDiskFault> {
    if offset.checked_add(bytes).is_none_or(|end| end > from.len()) {
        return Err(VirtualDiskFault::OutOfFile { what, offset });
    }
    let mut table = vec![0; to_usize(bytes)];
    read(from, offset, &mut table)?;
    Ok(table)
}

/// The bytes of a field; the caller has read as many.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}
