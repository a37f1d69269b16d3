//! The file of an overlay: its space, and what its blocks hold.

use std::collections::BTreeMap;

use hs_units::{BLOCK_BYTES, ByteRange};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A sparse file. Blocks of one byte repeated, as programs of experiments write them, are kept as that byte.
#[derive(Debug, Default)]
pub(super) struct SparseFile {
    /// Blocks with space, and the first byte of each.
    space: BTreeMap<u64, u8>,
    /// Of these, the ones that hold more than one byte.
    others: BTreeMap<u64, Vec<u8>>,
}

fn blocks(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / BLOCK_BYTES..(offset + len) / BLOCK_BYTES
}

impl SparseFile {
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (block, bytes) in (offset / BLOCK_BYTES..).zip(bytes.chunks(BLOCK)) {
            self.space.insert(block, bytes[0]);
            self.others.remove(&block);
            if bytes != [bytes[0]; BLOCK] {
                self.others.insert(block, bytes.to_vec());
            }
        }
    }

    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        for block in blocks(offset, len) {
            self.space.entry(block).or_default();
        }
    }

    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        for block in blocks(offset, len) {
            self.space.remove(&block);
            self.others.remove(&block);
        }
    }

    pub(super) fn read(&self, range: ByteRange) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(range.len as usize);
        for block in blocks(range.offset, range.len) {
            match self.others.get(&block) {
                Some(other) => bytes.extend_from_slice(other),
                None => {
                    let byte = self.space.get(&block).copied().unwrap_or_default();
                    bytes.resize(bytes.len() + BLOCK, byte);
                }
            }
        }
        bytes
    }

    /// Bytes that it takes.
    pub(super) fn space_bytes(&self) -> u64 {
        self.space.len() as u64 * BLOCK_BYTES
    }
}
