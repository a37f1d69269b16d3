//! Where the blocks of a file lie: by a tree of extents, or by the older map of single blocks. Layout from
//! the kernel's documentation, "Contents of inode.i_block".

use hs_units::to_usize;

use super::error::{Expected, Ext4Error};
use super::{Ext4, Inode, u16_at, u32_at};

const EXTENT_MAGIC: u16 = 0xf30a;
const EXTENT_BYTES: usize = 12;
/// The kernel's limit for the height of a tree.
const MOST_DEPTH: u16 = 5;
/// A longer extent is one that was never written, and so much shorter.
const MOST_WRITTEN: u64 = 1 << 15;
/// Extents are of files of at most so many blocks.
const MOST_BLOCKS: u64 = 1 << 32;
const DIRECT_BLOCKS: u64 = 12;
const POINTER_BYTES: u64 = 4;
/// A run counts as so many bytes of metadata, since many may come from one node.
const RUN_COST: u64 = 16;

/// Consecutive blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first one on the disk, where the others follow; nothing where they are holes.
    pub(super) first: Option<u64>,
    /// At least 1.
    pub(super) count: u64,
}

/// What says where a file's blocks lie, with the nodes of its tree that were read last, one of each level.
pub(super) struct Mapping<'i> {
    inode: &'i Inode,
    nodes: Vec<(u64, Vec<u8>)>,
}

impl<'i> Mapping<'i> {
    pub(super) const fn of(inode: &'i Inode) -> Self {
        Self { inode, nodes: Vec::new() }
    }

    /// The blocks from `block` of the file on.
    pub(super) fn run_at(&mut self, ext4: &mut Ext4<'_>, block: u64) -> Result<Run, Ext4Error> {
        ext4.spend(RUN_COST)?;
        let run = if self.inode.has_extents() {
            self.run_of_extents(ext4, block)?
        } else {
            self.run_of_pointers(ext4, block)?
        };
        let Some(first) = run.first else { return Ok(run) };
        let is_inside =
            first > 0 && first.checked_add(run.count).is_some_and(|end| end <= ext4.geometry.blocks);
        if is_inside {
            Ok(run)
        } else {
            Err(self.unexpected("a file's block", first, ext4.geometry.blocks - 1))
        }
    }

    fn unexpected(&self, what: &'static str, found: u64, most: u64) -> Ext4Error {
        let expected = Expected::Between(1, most);
        Ext4Error::Unexpected { what, offset: self.inode.offset(), found, expected }
    }

    /// Reads a node of this level, unless it was the last one there.
    fn load(&mut self, ext4: &mut Ext4<'_>, level: usize, number: u64) -> Result<(), Ext4Error> {
        if self.nodes.get(level).is_some_and(|(here, _)| *here == number) {
            return Ok(());
        }
        self.nodes.truncate(level);
        let node = ext4.block(number, "a node of a file's map", self.inode.offset())?;
        self.nodes.push((number, node));
        Ok(())
    }

    fn run_of_extents(&mut self, ext4: &mut Ext4<'_>, block: u64) -> Result<Run, Ext4Error> {
        // Where the blocks end that the nodes so far speak of.
        let mut end = MOST_BLOCKS;
        if block >= end {
            return Err(self.unexpected("a file's number of blocks", block, end));
        }
        let mut depth = None;
        for level in 0..=usize::from(MOST_DEPTH) {
            let (node, offset) = match level.checked_sub(1) {
                None => (self.inode.map(), self.inode.offset()),
                Some(last) => (&self.nodes[last].1[..], self.nodes[last].0 * ext4.geometry.block_bytes),
            };
            let (entries, here) = open_node(node, offset, depth)?;
            let mut found = None;
            for entry in entries.chunks_exact(EXTENT_BYTES) {
                let first = u64::from(u32_at(entry, 0));
                if first > block {
                    end = end.min(first);
                    break;
                }
                found = Some(entry);
            }
            let Some(entry) = found else { return Ok(Run { first: None, count: end - block }) };
            if here == 0 {
                return Ok(run_in_extent(entry, block, end));
            }
            let child = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
            depth = Some(here - 1);
            self.load(ext4, level, child)?;
        }
        Err(self.unexpected(
            "the height of a file's extent tree",
            u64::from(MOST_DEPTH) + 1,
            MOST_DEPTH.into(),
        ))
    }

    fn run_of_pointers(&mut self, ext4: &mut Ext4<'_>, block: u64) -> Result<Run, Ext4Error> {
        if block < DIRECT_BLOCKS {
            let direct = &self.inode.map()[..to_usize(DIRECT_BLOCKS * POINTER_BYTES)];
            return Ok(run_of(direct, block));
        }
        let in_a_node = ext4.geometry.block_bytes / POINTER_BYTES;
        let mut index = block - DIRECT_BLOCKS;
        for levels in 1..=3_u32 {
            // At most 2^42, with the largest blocks.
            let mapped = in_a_node.pow(levels);
            if index >= mapped {
                index -= mapped;
                continue;
            }
            let at = (DIRECT_BLOCKS + u64::from(levels) - 1) * POINTER_BYTES;
            let mut number = u64::from(u32_at(self.inode.map(), to_usize(at)));
            for level in (0..levels).rev() {
                let each = in_a_node.pow(level);
                if number == 0 {
                    let hole = each * in_a_node;
                    return Ok(Run { first: None, count: hole - index % hole });
                }
                let depth = (levels - 1 - level) as usize;
                self.load(ext4, depth, number)?;
                let node = &self.nodes[depth].1;
                let entry = index / each % in_a_node;
                if level == 0 {
                    return Ok(run_of(node, entry));
                }
                number = u64::from(u32_at(node, to_usize(entry * POINTER_BYTES)));
            }
        }
        Err(self.unexpected("a file's number of blocks", block, MOST_BLOCKS))
    }
}

/// The entries of a node, and its height, which must be `depth` where that is known.
fn open_node(node: &[u8], offset: u64, depth: Option<u16>) -> Result<(&[u8], u16), Ext4Error> {
    let unexpected = |what, found: u16, expected| {
        Err(Ext4Error::Unexpected { what, offset, found: found.into(), expected })
    };
    let (magic, entries, here) = (u16_at(node, 0), u16_at(node, 2), u16_at(node, 6));
    if magic != EXTENT_MAGIC {
        let expected = Expected::Exactly(EXTENT_MAGIC.into());
        return unexpected("the magic number of an extent node", magic, expected);
    }
    let room = node.len() / EXTENT_BYTES - 1;
    if usize::from(entries) > room {
        let expected = Expected::Between(0, room as u64);
        return unexpected("the number of entries in an extent node", entries, expected);
    }
    if here > MOST_DEPTH || depth.is_some_and(|depth| depth != here) {
        let expected =
            depth.map_or(Expected::Between(0, MOST_DEPTH.into()), |depth| Expected::Exactly(depth.into()));
        return unexpected("the height of an extent node", here, expected);
    }
    Ok((&node[EXTENT_BYTES..][..usize::from(entries) * EXTENT_BYTES], here))
}

/// The blocks from `block` on, by an extent that begins at it or before; the next one begins at `end`.
fn run_in_extent(extent: &[u8], block: u64, end: u64) -> Run {
    let skipped = block - u64::from(u32_at(extent, 0));
    let len = u64::from(u16_at(extent, 4));
    let is_written = len <= MOST_WRITTEN;
    let len = if is_written { len } else { len - MOST_WRITTEN };
    let start = u64::from(u32_at(extent, 8)) | u64::from(u16_at(extent, 6)) << 32;
    match len.checked_sub(skipped).filter(|left| *left > 0) {
        Some(left) => {
            let first = is_written.then_some(start + skipped);
            Run { first, count: left.min(end - block) }
        }
        None => Run { first: None, count: end - block },
    }
}

/// The blocks that these pointers have from one of them on, as long as they lie one behind the other.
fn run_of(pointers: &[u8], index: u64) -> Run {
    let mut rest = pointers[to_usize(index * POINTER_BYTES)..].chunks_exact(to_usize(POINTER_BYTES));
    let first = rest.next().map_or(0, |pointer| u64::from(u32_at(pointer, 0)));
    let next = |step: u64| if first == 0 { 0 } else { first + step };
    let more =
        rest.zip(1..).take_while(|(pointer, step)| u64::from(u32_at(pointer, 0)) == next(*step)).count();
    Run { first: (first != 0).then_some(first), count: 1 + more as u64 }
}
