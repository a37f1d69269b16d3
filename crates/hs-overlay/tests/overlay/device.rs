//! A device that loses power: of what was written since the last sync, each sector may be there or not.

use std::collections::HashMap;

use hs_units::Prng;

/// What a device writes as a whole.
pub(crate) const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

/// A file on such a device.
#[derive(Clone, Default)]
pub(crate) struct Device {
    durable: HashMap<u64, Sector>,
    durable_len: u64,
    /// Sectors that were written since the last sync, in their order.
    pending: Vec<(u64, Sector)>,
    /// What a reader sees of them.
    cached: HashMap<u64, Sector>,
    len: u64,
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
}

impl Device {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset.is_multiple_of(SECTOR as u64) && bytes.len().is_multiple_of(SECTOR));
        self.writes += 1;
        for (number, sector) in bytes.chunks_exact(SECTOR).enumerate() {
            let at = offset / SECTOR as u64 + number as u64;
            let sector: Sector = sector.try_into().unwrap();
            self.pending.push((at, sector));
            self.cached.insert(at, sector);
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    pub(crate) fn allocate(&mut self, end: u64) {
        self.len = self.len.max(end);
    }

    pub(crate) fn punch(&mut self, offset: u64, len: u64) {
        for at in offset / SECTOR as u64..(offset + len) / SECTOR as u64 {
            self.pending.push((at, [0; SECTOR]));
            self.cached.insert(at, [0; SECTOR]);
        }
    }

    pub(crate) fn sync(&mut self) {
        self.syncs += 1;
        self.durable.extend(self.pending.drain(..));
        self.cached.clear();
        self.durable_len = self.len;
    }

    /// As many bytes as there are.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = (offset + len).min(self.len);
        let mut bytes = Vec::new();
        for at in offset / SECTOR as u64..end.div_ceil(SECTOR as u64) {
            let sector = self.cached.get(&at).or_else(|| self.durable.get(&at));
            bytes.extend(sector.unwrap_or(&[0; SECTOR]));
        }
        bytes
    }

    /// What the medium has after a power cut: of the versions of each sector any one, the durable one
    /// included, independently of all others; more often all or none of a moment.
    pub(crate) fn cut(&self, prng: &mut Prng) -> Self {
        let mut found = Self { durable: self.durable.clone(), ..Self::default() };
        let kept = match prng.below(4) {
            0 => 0,
            1 => 100,
            2 => 95,
            _ => prng.below(101),
        };
        for (at, sector) in &self.pending {
            if prng.below(100) < kept {
                found.durable.insert(*at, *sector);
            }
        }
        // Its length is metadata of the file system.
        found.durable_len = if prng.below(2) == 0 { self.durable_len } else { self.len };
        found.len = found.durable_len;
        found
    }

    /// A sync has failed: the kernel drops what was to be written, and takes it for written.
    pub(crate) fn lose(&mut self) {
        self.pending.clear();
    }

    /// What a reader finds that does not see the kernel's cache.
    pub(crate) fn without_cache(&self) -> Self {
        Self { durable: self.durable.clone(), durable_len: self.len, len: self.len, ..Self::default() }
    }
}
