//! The map from block numbers to places in a hot segment: a sorted table, 16 bytes an extent.

use hs_units::{BlockRange, Lba, to_u32};

use crate::error::{FormatError, Part};
use crate::hot::{HotChunk, HotPlace};

/// One extent. Block numbers fit 32 bits because disks end at 16 TiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    lba: u32,
    blocks: u32,
    chunk: u32,
    block_in_chunk: u32,
}

impl Entry {
    fn end(&self) -> u64 {
        u64::from(self.lba) + u64::from(self.blocks)
    }

    fn run(&self) -> BlockRange {
        BlockRange::new(Lba(self.lba.into()), self.blocks.into())
    }
}

/// Extents sorted by their first block; disjoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HotMap(Box<[Entry]>);

impl HotMap {
    /// The map of tables that were checked but for overlaps, which it refuses.
    pub(crate) fn new(part: Part, chunks: &[HotChunk], extents: &[BlockRange]) -> Result<Self, FormatError> {
        let mut entries = Vec::with_capacity(extents.len());
        for (chunk, hot) in chunks.iter().enumerate() {
            let first = hot.first_extent as usize;
            let mut block_in_chunk = 0;
            for run in &extents[first..first + hot.extent_count as usize] {
                let (lba, blocks) = (to_u32(run.start.0), to_u32(run.count));
                entries.push(Entry { lba, blocks, chunk: to_u32(chunk as u64), block_in_chunk });
                block_in_chunk += blocks;
            }
        }
        entries.sort_unstable_by_key(|entry| entry.lba);
        for pair in entries.windows(2) {
            if pair[0].end() > pair[1].lba.into() {
                return Err(FormatError::ExtentsOverlap {
                    part,
                    first: pair[0].run(),
                    second: pair[1].run(),
                });
            }
        }
        Ok(Self(entries.into()))
    }

    pub(crate) fn lookup(&self, lba: Lba) -> Option<HotPlace> {
        let after = self.0.partition_point(|entry| u64::from(entry.lba) <= lba.0);
        let entry = self.0[..after].last().filter(|entry| lba.0 < entry.end())?;
        let within = to_u32(lba.0 - u64::from(entry.lba));
        Some(HotPlace {
            chunk: entry.chunk,
            block_in_chunk: entry.block_in_chunk + within,
            run: entry.blocks - within,
        })
    }

    pub(crate) fn next_hot_after(&self, lba: Lba) -> Option<Lba> {
        let next = Lba(lba.0.checked_add(1)?);
        if self.lookup(next).is_some() {
            return Some(next);
        }
        let after = self.0.partition_point(|entry| u64::from(entry.lba) <= next.0);
        self.0.get(after).map(|entry| Lba(entry.lba.into()))
    }

    /// Bytes of memory that the table takes.
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
