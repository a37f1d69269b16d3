//! Writes that are gathered in memory until they are in the file.

use hs_units::BLOCK_BYTES;

use crate::layout::BLOCK;
use crate::map::{Content, ExtentMap};
use crate::record::{SUM_BYTES, sum};

/// Gathered writes: of each block the last one.
#[derive(Default)]
pub(crate) struct Batch {
    /// Places are numbers of blocks in `data`.
    pub(crate) map: ExtentMap,
    data: Vec<u8>,
    /// Of each block of `data`: made while an append of others is under way.
    sums: Vec<[u8; SUM_BYTES]>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Bytes that it holds in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.data.len() as u64
    }

    /// The sums of so many blocks from this number on.
    pub(crate) fn sums(&self, number: u64, count: u64) -> &[[u8; SUM_BYTES]] {
        &self.sums[number as usize..][..count as usize]
    }

    /// So many blocks from this number on.
    pub(crate) fn blocks(&self, number: u64, count: u64) -> &[u8] {
        let start = number as usize * BLOCK;
        &self.data[start..start + count as usize * BLOCK]
    }

    /// Whole blocks of the disk from `start` on.
    pub(crate) fn write(&mut self, start: u64, bytes: &[u8]) {
        let end = start + bytes.len() as u64 / BLOCK_BYTES;
        let mut added = Vec::new();
        let Self { map, data, sums } = self;
        map.pieces(start, end, |from, to, content| {
            let bytes = &bytes[(from - start) as usize * BLOCK..(to - start) as usize * BLOCK];
            let new_sums = bytes.chunks_exact(BLOCK).map(sum);
            if let Some(Content::Data(place)) = content {
                data[place as usize * BLOCK..][..bytes.len()].copy_from_slice(bytes);
                sums[place as usize..].iter_mut().zip(new_sums).for_each(|(old, new)| *old = new);
            } else {
                added.push((from, to, Content::Data(data.len() as u64 / BLOCK_BYTES)));
                data.extend_from_slice(bytes);
                sums.extend(new_sums);
            }
        });
        for (from, to, content) in added {
            map.insert(from, to, content, &mut |_, _| {});
        }
    }

    /// The blocks from `start` up to `end` hold no data.
    pub(crate) fn clear(&mut self, start: u64, end: u64, content: Content) {
        self.map.insert(start, end, content, &mut |_, _| {});
    }

    /// Adds later writes.
    pub(crate) fn add(&mut self, later: &Self) {
        for (start, blocks, content) in later.map.iter() {
            match content {
                Content::Data(place) => self.write(start, later.blocks(place, blocks)),
                other => self.clear(start, start + blocks, other),
            }
        }
    }
}
