//! Writes to a disk that are kept in memory, so that a kernel can replay the journal of its file system.
//!
//! They lie in one anonymous file, which another process may hold when this one dies: first the sectors that
//! were written, in their places on the disk, then a bit for each. What was not written is a hole. A sector
//! counts as written only when its bytes are there.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hs_units::{ByteRange, ByteSize, to_usize};
use parking_lot::Mutex;
use rustix::fs::MemfdFlags;

use crate::{Disk, DoneReply, Reply};

/// A device's smallest sector, so all that is written comes in whole ones.
const SECTOR: u64 = 512;
/// The most that is kept. A journal has at most 1 GiB with ext4 and 2 GiB with XFS, and is rarely full.
const MOST_BYTES: u64 = 512 << 20;

/// A disk that takes no writes itself, with what was written to it.
pub(crate) struct Replay {
    below: Arc<dyn Disk>,
    sectors: Arc<Sectors>,
}

impl Replay {
    /// Nothing is written yet.
    pub(crate) fn new(below: Arc<dyn Disk>) -> io::Result<Self> {
        Ok(Self { sectors: Arc::new(Sectors::new(below.bytes())?), below })
    }

    /// With what a server that died has written.
    pub(crate) fn of(memory: OwnedFd, below: Arc<dyn Disk>) -> Self {
        Self { sectors: Arc::new(Sectors::of(memory, below.bytes())), below }
    }
}

impl AsFd for Replay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sectors.memory.as_fd()
    }
}

impl Disk for Replay {
    fn bytes(&self) -> u64 {
        self.below.bytes()
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        self.below.read(offset, len, reply.covered(&self.sectors, offset));
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write(&self, offset: u64, bytes: Vec<u8>, reply: DoneReply) {
        reply.result(self.sectors.write(offset, &bytes));
    }

    fn zero(&self, _: ByteRange, _: bool, reply: DoneReply) {
        reply.error(libc::EOPNOTSUPP);
    }
}

/// What was written to a disk of a fixed length.
#[derive(Debug)]
pub(crate) struct Sectors {
    memory: File,
    disk_bytes: u64,
    written: Mutex<u64>,
}

impl Sectors {
    /// Nothing is written yet.
    fn new(disk_bytes: u64) -> io::Result<Self> {
        let memory = File::from(rustix::fs::memfd_create("headstart-replay", MemfdFlags::CLOEXEC)?);
        memory.set_len(Self::bits_at(disk_bytes) + disk_bytes.div_ceil(SECTOR).div_ceil(8))?;
        Ok(Self { memory, disk_bytes, written: Mutex::new(0) })
    }

    /// What a server that died has written.
    fn of(memory: OwnedFd, disk_bytes: u64) -> Self {
        // What it had written counts again, which leaves less room at worst.
        Self { memory: memory.into(), disk_bytes, written: Mutex::new(0) }
    }

    const fn bits_at(disk_bytes: u64) -> u64 {
        disk_bytes.next_multiple_of(SECTOR)
    }

    /// Keeps whole sectors.
    ///
    /// # Errors
    /// The number of the error: they are not whole, do not lie on the disk, or there is no more room.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), i32> {
        let len = bytes.len() as u64;
        let end = offset.checked_add(len).filter(|end| *end <= Self::bits_at(self.disk_bytes));
        if end.is_none() || !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
            return Err(libc::EINVAL);
        }
        // Two writes may share a byte of bits.
        let mut written = self.written.lock();
        if *written + len > MOST_BYTES {
            log::error!(
                "the replay of a journal writes more than {}: that is too much",
                ByteSize(MOST_BYTES)
            );
            return Err(libc::ENOSPC);
        }
        *written += len;
        let (first, count) = (offset / SECTOR, len / SECTOR);
        let kept = self.memory.write_all_at(bytes, offset).and_then(|()| {
            let mut bits = self.bits(first, count)?;
            (first..first + count).for_each(|sector| {
                bits[to_usize(sector / 8 - first / 8)] |= 1 << (sector % 8);
            });
            self.memory.write_all_at(&bits, Self::bits_at(self.disk_bytes) + first / 8)
        });
        kept.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Puts what was written over what the disk has from `offset`.
    pub(crate) fn cover(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        let (first, last) = (offset / SECTOR, end.div_ceil(SECTOR));
        let bits = self.bits(first, last - first)?;
        for sector in first..last {
            if bits[to_usize(sector / 8 - first / 8)] & 1 << (sector % 8) != 0 {
                let (from, to) = ((sector * SECTOR).max(offset), ((sector + 1) * SECTOR).min(end));
                let place = to_usize(from - offset)..to_usize(to - offset);
                self.memory.read_exact_at(&mut bytes[place], from)?;
            }
        }
        Ok(())
    }

    /// Whether any sector of a range was written.
    pub(crate) fn covers_any(&self, offset: u64, len: u64) -> bool {
        let (first, last) = (offset / SECTOR, (offset + len).div_ceil(SECTOR));
        self.bits(first, last - first).map_or(true, |bits| {
            (first..last).any(|sector| bits[to_usize(sector / 8 - first / 8)] & 1 << (sector % 8) != 0)
        })
    }

    /// The bytes with the bits of these sectors.
    fn bits(&self, first: u64, count: u64) -> io::Result<Vec<u8>> {
        let (from, to) = (first / 8, (first + count).div_ceil(8));
        let mut bits = vec![0; to_usize(to - from)];
        self.memory.read_exact_at(&mut bits, Self::bits_at(self.disk_bytes) + from)?;
        Ok(bits)
    }
}

#[cfg(test)]
mod tests {
    use hs_units::Prng;

    use super::*;

    #[test]
    fn what_was_written_covers_the_disk_and_nothing_else_does() {
        const BYTES: u64 = 100 * SECTOR;
        let replay = Sectors::new(BYTES - 100).unwrap();
        let mut disk = vec![7; BYTES as usize];
        let original = disk.clone();
        let mut prng = Prng::new(3);
        for round in 0..200 {
            let first = prng.below(100);
            let count = 1 + prng.below((100 - first).min(9));
            let mut bytes = vec![0; (count * SECTOR) as usize];
            prng.fill(&mut bytes);
            replay.write(first * SECTOR, &bytes).unwrap();
            disk[(first * SECTOR) as usize..][..bytes.len()].copy_from_slice(&bytes);
            let offset = prng.below(BYTES - 1000);
            let len = 1 + prng.below(900) as usize;
            let mut read = original[offset as usize..][..len].to_vec();
            // The next server goes on with the same memory.
            let next = Sectors::of(replay.memory.try_clone().unwrap().into(), BYTES - 100);
            next.cover(offset, &mut read).unwrap();
            assert!(read == disk[offset as usize..][..len], "round {round}");
        }
        let fresh = Sectors::new(BYTES).unwrap();
        assert!(!fresh.covers_any(0, BYTES) && replay.covers_any(0, BYTES));
        for (offset, len) in [(1, 512), (0, 511), (BYTES, 512), (u64::MAX - 511, 512)] {
            assert_eq!(fresh.write(offset, &vec![0; len]), Err(libc::EINVAL), "{offset}+{len}");
        }
    }

    #[test]
    fn it_has_an_end() {
        let replay = Sectors::new(1 << 40).unwrap();
        *replay.written.lock() = MOST_BYTES - 512;
        assert_eq!(replay.write(0, &[1; 512]), Ok(()));
        assert_eq!(replay.write(0, &[1; 512]), Err(libc::ENOSPC));
    }
}
