//! Whether the log of an XFS ends with the record that an unmount writes: then all changes are in place.
//!
//! The log is a ring of sectors, each of which begins with the number of the round in which it was written.
//! Structures from "XFS Algorithms & Data Structures", chapter "Journaling Log".

use hs_units::{ByteRange, to_usize};

use crate::file_system::Journal;
use crate::reader::{Reader, be32, be64};

const SECTOR: u64 = 512;
const RECORD_MAGIC: u32 = 0xfeed_babe;
/// Sectors of the longest record, with its headers.
const MOST_RECORD_SECTORS: u64 = 512 + 8;
/// Bytes of a record for which each of its headers has room.
const HEADER_COVERS: u32 = 32 << 10;
const FLAG_UNMOUNT: u8 = 0x20;
/// XFS has no larger log.
const MOST_LOG_BYTES: u64 = 2 << 30;

/// The state of the log of the file system with this superblock.
pub(crate) fn journal<E>(disk: &mut Reader<'_, E>, superblock: &[u8]) -> Result<Journal, E> {
    let Some(range) = place(superblock).filter(|range| range.fits_in(disk.bytes())) else {
        return Ok(Journal::Unknown);
    };
    let mut log = Log { disk: disk.part(range), sectors: range.len / SECTOR };
    Ok(match log.ends_with_unmount()? {
        Some(true) => Journal::Clean,
        Some(false) => Journal::NeedsReplay,
        None => Journal::Unknown,
    })
}

/// Where the log lies, unless it is on another device.
fn place(superblock: &[u8]) -> Option<ByteRange> {
    let block_bytes = u64::from(be32(superblock, 4));
    let (start, blocks) = (be64(superblock, 48), u64::from(be32(superblock, 96)));
    let group_blocks = u64::from(be32(superblock, 84));
    let shift = u32::from(*superblock.get(124)?);
    let group = start.checked_shr(shift)?;
    let block = group.checked_mul(group_blocks)?.checked_add(start - (group << shift))?;
    let range = ByteRange::new(block.checked_mul(block_bytes)?, blocks.checked_mul(block_bytes)?);
    (start != 0 && range.len >= SECTOR && range.len <= MOST_LOG_BYTES).then_some(range)
}

struct Log<'a, E> {
    disk: Reader<'a, E>,
    sectors: u64,
}

impl<E> Log<'_, E> {
    fn sector(&mut self, number: u64) -> Result<Vec<u8>, E> {
        self.disk.read_some(number % self.sectors * SECTOR, to_usize(SECTOR))
    }

    /// The round in which a sector was written; 0 for never.
    fn round(&mut self, number: u64) -> Result<u32, E> {
        let sector = self.sector(number)?;
        let at = if be32(&sector, 0) == RECORD_MAGIC { 4 } else { 0 };
        Ok(be32(&sector, at))
    }

    /// The first sector of an earlier round: the next one that is written.
    fn head(&mut self) -> Result<u64, E> {
        let first = self.round(0)?;
        let (mut newer, mut older) = (0, self.sectors);
        while older - newer > 1 {
            let middle = newer + (older - newer) / 2;
            if self.round(middle)? == first { newer = middle } else { older = middle }
        }
        Ok(older)
    }

    /// `None` where there is no record at all.
    fn ends_with_unmount(&mut self) -> Result<Option<bool>, E> {
        let head = self.head()?;
        for back in 1..=MOST_RECORD_SECTORS.min(self.sectors) {
            let at = (head + self.sectors - back) % self.sectors;
            let header = self.sector(at)?;
            if be32(&header, 0) != RECORD_MAGIC {
                continue;
            }
            let (version, len) = (be32(&header, 8), be32(&header, 12));
            let headers =
                if version & 2 == 0 { 1 } else { be32(&header, 320).div_ceil(HEADER_COVERS).max(1) };
            let sectors = u64::from(headers) + u64::from(len).div_ceil(SECTOR);
            let operation = self.sector(at + u64::from(headers))?;
            let is_unmount = operation.get(9).is_some_and(|flags| flags & FLAG_UNMOUNT != 0);
            return Ok(Some(is_unmount && be32(&header, 40) == 1 && sectors == back));
        }
        Ok(None)
    }
}
