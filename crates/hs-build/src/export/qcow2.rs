//! qcow2 files, version 3, as QEMU's docs/interop/qcow2.txt describes them. All numbers are big-endian.
//!
//! ```text
//! header │ clusters of the disk and L2 tables, as they come │ L1 table │ refcount blocks │ refcount table
//! ```
//!
//! Compressed clusters lie one right after another and share clusters of the file, whose reference counts
//! say how many of them they hold.

use hs_units::{to_u32, to_usize};

use super::clusters::{Encoding, Piece};
use super::{CLUSTER_BYTES, Layout};
use crate::BuildError;
use crate::output::Output;

const CLUSTER: u64 = CLUSTER_BYTES as u64;
const CLUSTER_BITS: u32 = CLUSTER_BYTES.ilog2();
/// Entries of an L2 table, which fills a cluster.
const L2_ENTRIES: usize = CLUSTER_BYTES / 8;
/// Counts of 16 bits in a cluster.
const COUNTS_IN_BLOCK: u64 = CLUSTER / 2;
/// log2 of the bits of a count.
const REFCOUNT_ORDER: u32 = 4;
const HEADER_BYTES: u32 = 112;
/// The bit of an entry that says that nothing else refers to the cluster.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// Where in the entry of a compressed cluster the number of further sectors stands.
const SECTORS_SHIFT: u32 = 62 - (CLUSTER_BITS - 8);
/// The entry of a cluster that reads as zeros.
const ZERO: u64 = 1;
/// Incompatible feature: the header names another compression than deflate.
const COMPRESSION_TYPE: u64 = 1 << 3;
const ZSTD: u8 = 1;
const SECTOR: u64 = 512;

/// A qcow2 file that grows.
pub(super) struct Qcow2 {
    output: Output,
    disk_bytes: u64,
    compress: bool,
    /// Where the file ends.
    end: u64,
    /// The table of the clusters that come.
    l2: Vec<u64>,
    l1: Vec<u64>,
    /// For each cluster of the file, what refers to it: 2 bytes of memory for 64 KiB.
    counts: Vec<u16>,
}

impl Qcow2 {
    pub(super) fn new(output: Output, disk_bytes: u64, compress: bool) -> Self {
        let (l1, l2) = (Vec::new(), Vec::with_capacity(L2_ENTRIES));
        Self { output, disk_bytes, compress, end: CLUSTER, l2, l1, counts: vec![1] }
    }

    /// Appends whole clusters and tells where.
    fn append(&mut self, bytes: &[u8]) -> Result<u64, BuildError> {
        let at = self.end.next_multiple_of(CLUSTER);
        self.output.write_at(at, bytes)?;
        self.end = at + (bytes.len() as u64).next_multiple_of(CLUSTER);
        self.refer(at, self.end);
        Ok(at)
    }

    /// Counts a reference to the clusters that hold the bytes from `from` to `to`.
    fn refer(&mut self, from: u64, to: u64) {
        let (first, end) = ((from / CLUSTER) as usize, to_usize(to.div_ceil(CLUSTER)));
        if self.counts.len() < end {
            self.counts.resize(end, 0);
        }
        self.counts[first..end].iter_mut().for_each(|count| *count += 1);
    }

    /// Appends a compressed cluster; its entry. The file has at most 2^54 bytes, as the disk has 2^44.
    fn append_packed(&mut self, bytes: &[u8]) -> Result<u64, BuildError> {
        let at = self.end;
        self.output.write_at(at, bytes)?;
        self.end = at + bytes.len() as u64;
        let (first, last) = (at / SECTOR, (self.end - 1) / SECTOR);
        self.refer(first * SECTOR, (last + 1) * SECTOR);
        Ok(COMPRESSED | (last - first) << SECTORS_SHIFT | at)
    }

    fn flush_l2(&mut self) -> Result<(), BuildError> {
        let mut entry = 0;
        // A table that is missing stands for zeros.
        if self.l2.iter().any(|&entry| entry != ZERO) {
            self.l2.resize(L2_ENTRIES, 0);
            entry = COPIED | self.append(&big_endian(&self.l2))?;
        }
        self.l1.push(entry);
        self.l2.clear();
        Ok(())
    }

    /// Writes blocks and table of reference counts, which count themselves; where the table is, and its
    /// clusters.
    fn write_counts(&mut self) -> Result<(u64, u64), BuildError> {
        let used = self.end.div_ceil(CLUSTER);
        let (mut blocks, mut tables) = (0, 0);
        loop {
            let needed = (used + blocks + tables).div_ceil(COUNTS_IN_BLOCK);
            let table = (needed * 8).div_ceil(CLUSTER);
            if (needed, table) == (blocks, tables) {
                break;
            }
            (blocks, tables) = (needed, table);
        }
        self.counts.resize(to_usize(used + blocks + tables), 1);
        let counts: Vec<u8> = self.counts.iter().flat_map(|count| count.to_be_bytes()).collect();
        let first = used * CLUSTER;
        self.output.write_at(first, &counts)?;
        let places: Vec<u64> = (0..blocks).map(|block| first + block * CLUSTER).collect();
        let table_at = first + blocks * CLUSTER;
        self.output.write_at(table_at, &big_endian(&places))?;
        self.end = table_at + tables * CLUSTER;
        Ok((table_at, tables))
    }

    fn header(&self, l1_at: u64, counts: (u64, u64)) -> Vec<u8> {
        let (counts_at, counts_clusters) = counts;
        let mut header = b"QFI\xfb".to_vec();
        header.extend(3_u32.to_be_bytes());
        // No backing file: offset and length of its name.
        header.extend([0; 12]);
        header.extend(CLUSTER_BITS.to_be_bytes());
        header.extend(self.disk_bytes.to_be_bytes());
        // No encryption.
        header.extend([0; 4]);
        header.extend(to_u32(self.l1.len() as u64).to_be_bytes());
        header.extend(l1_at.to_be_bytes());
        header.extend(counts_at.to_be_bytes());
        header.extend(to_u32(counts_clusters).to_be_bytes());
        // No snapshots: number and offset.
        header.extend([0; 12]);
        let incompatible = if self.compress { COMPRESSION_TYPE } else { 0 };
        header.extend(incompatible.to_be_bytes());
        // No compatible and no auto-clear features.
        header.extend([0; 16]);
        header.extend(REFCOUNT_ORDER.to_be_bytes());
        header.extend(HEADER_BYTES.to_be_bytes());
        header.push(if self.compress { ZSTD } else { 0 });
        header.resize(HEADER_BYTES as usize, 0);
        header
    }
}

fn big_endian(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

impl Layout for Qcow2 {
    fn encoding(&self) -> Encoding {
        if self.compress { Encoding::Zstd } else { Encoding::Whole }
    }

    fn put(&mut self, piece: Piece) -> Result<(), BuildError> {
        let entry = match piece {
            Piece::Zero => ZERO,
            Piece::Plain(bytes) => COPIED | self.append(&bytes)?,
            Piece::Packed(bytes) => self.append_packed(&bytes)?,
        };
        self.l2.push(entry);
        if self.l2.len() == L2_ENTRIES { self.flush_l2() } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> Result<(Output, u64), BuildError> {
        if !self.l2.is_empty() {
            self.flush_l2()?;
        }
        let l1 = big_endian(&self.l1);
        let l1_at = self.append(&l1)?;
        let counts = self.write_counts()?;
        let header = self.header(l1_at, counts);
        self.output.write_at(0, &header)?;
        let end = self.end;
        Ok((self.output, end))
    }
}
